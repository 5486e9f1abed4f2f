#include <signal.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/command/command.h"
#include "tools/command/completion.h"
#include "tools/lib/arguments.h"
#include "tools/lib/similar_names.h"

namespace attnlab::command {
namespace {

struct Subcommand {
  const char* name;
  const char* summary;
  int (*run)(const Arguments&, const Streams&);
};

constexpr Subcommand kSubcommands[] = {
    {"list", "kernels, what each supports, what this machine has", List},
    {"run", "attention on .npy files, or on generated inputs", Run},
    {"verify", "kernels against the oracle: a table of errors", Verify},
    {"bench", "verifies kernels, then times them", Bench},
    {"tune", "finds the fastest configuration of a kernel, and keeps it", Tune},
    {"replay", "memory of a paged KV cache for a trace of requests", Replay},
    {"simulate", "predicts what a problem takes on many GPUs", Simulate},
    {"profile", "what kernels move, by a GPU's own counters", Profile},
    {"version", "version, commit, CUDA, and what GPUs the kernels are for", Version},
    {"completion", "a script that completes commands in bash or zsh", Completion},
};

std::string Help() {
  std::string help =
      "attnlab computes attention, checks it, times it and counts what it moves.\n\n"
      "Usage: attnlab SUBCOMMAND [flags]\n\nSubcommands:\n";
  for (const Subcommand& s : kSubcommands) {
    absl::StrAppend(&help, "  ", s.name, std::string(12 - std::string(s.name).size(), ' '),
                    s.summary, "\n");
  }
  absl::StrAppend(
      &help,
      "\nExamples:\n"
      "  attnlab bench                            a problem that this machine does in seconds\n"
      "  attnlab verify --preset=gpt2\n"
      "  attnlab run --q=q.npy --k=k.npy --v=v.npy --mask=causal --out=o.npy\n"
      "\n`attnlab SUBCOMMAND --help` has the flags and more examples.\n"
      "Relative paths are those of the directory you are in, under `bazel run` too.\n"
      "\nExit codes:\n  ",
      absl::StrJoin(absl::StrSplit(kExitCodesHelp, '\n'), "\n  "), "\n");
  return help;
}

}  // namespace

int Completion(const Arguments& arguments, const Streams& streams) {
  std::vector<std::string> shells;
  ArgumentParser parser("attnlab completion",
                        "Prints a script that completes subcommands, flags, kernels, presets, "
                        "devices and dtypes.");
  parser.AddPositional("bash|zsh", &shells);
  parser.AddSection("Examples",
                    "source <(attnlab completion bash)    for this shell, or in ~/.bashrc\n"
                    "source <(attnlab completion zsh)     for this shell, or in ~/.zshrc");
  int code = kOk;
  if (ParsedToEnd(&parser, "completion", arguments, streams, &code)) return code;
  if (shells != Arguments{"bash"} && shells != Arguments{"zsh"}) {
    return Fail(streams, "completion",
                absl::InvalidArgumentError("expected one shell: bash or zsh"));
  }
  std::vector<std::pair<std::string, std::string>> helps;
  for (const Subcommand& s : kSubcommands) {
    std::ostringstream help;
    s.run({"--help"}, {help, streams.err});
    helps.emplace_back(s.name, help.str());
  }
  if (shells[0] == "zsh") {
    streams.out << "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n";
  }
  streams.out << CompletionScript(helps);
  return kOk;
}

int Main(const Arguments& arguments, const Streams& streams) {
  // Without the signal, write() returns an error when a file exceeds the limit on sizes.
  signal(SIGXFSZ, SIG_IGN);
  if (arguments.empty()) {
    streams.err << Help();
    return kUsage;
  }
  std::string name = arguments[0];
  Arguments rest(arguments.begin() + 1, arguments.end());
  if (name == "help") {  // `attnlab help run` is `attnlab run --help`
    if (rest.empty()) {
      name = "--help";
    } else {
      name = rest[0];
      rest = {"--help"};
    }
  }
  if (name == "--version") name = "version";
  if (name == "--help" || name == "-h") {
    streams.out << Help();
    return kOk;
  }
  std::vector<std::string> names;
  for (const Subcommand& s : kSubcommands) {
    if (name == s.name) return s.run(rest, streams);
    names.push_back(s.name);
  }
  streams.err << "attnlab: unknown subcommand \"" << name << "\"" << DidYouMean(name, names) << "\n"
              << "`attnlab --help` lists the subcommands\n";
  return kUsage;
}

}  // namespace attnlab::command
