// Completion of command lines: a script for bash that zsh reads, too.
#ifndef TOOLS_COMMAND_COMPLETION_H_
#define TOOLS_COMMAND_COMPLETION_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace attnlab::command {

// The flags in a help text: "--json", or "--kernel=" if the flag needs a value.
std::vector<std::string> FlagsOfHelp(absl::string_view help);

// `helps`: each subcommand with its help text. The script also completes kernels of this program,
// devices of this machine, presets and dtypes.
std::string CompletionScript(absl::Span<const std::pair<std::string, std::string>> helps);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_COMPLETION_H_
