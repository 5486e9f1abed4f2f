// What shells complete of a command line, as a script for bash that zsh reads, too.
#ifndef TOOLS_COMMAND_COMPLETION_H_
#define TOOLS_COMMAND_COMPLETION_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace attnlab::command {

// The flags in a help text: "--json", and "--kernel=" where it needs a value.
std::vector<std::string> FlagsOfHelp(absl::string_view help);

// `helps` are the subcommands with their help texts. Values of flags are those of this program and
// machine: kernels, presets, devices, dtypes.
std::string CompletionScript(absl::Span<const std::pair<std::string, std::string>> helps);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_COMPLETION_H_
