#include "tools/command/completion.h"

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "attention/core/kernel.h"
#include "attention/core/registry.h"
#include "attention/cuda/machine.h"
#include "tools/command/presets.h"

namespace attnlab::command {
namespace {

// Bash splits "--flag=value" into three words, zsh does not. Where $words is empty, the shell
// completes file names.
constexpr char kScript[] = R"(_attnlab() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} flag= prefix= words= flags=
  case ${COMP_WORDS[1]} in
FLAGS  esac
  if [[ $cur == = ]]; then
    flag=$prev cur=
  elif [[ $prev == = ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  elif [[ $cur == --*=* ]]; then
    flag=${cur%%=*} prefix=${cur%%=*}= cur=${cur#*=}
  elif [[ " $flags " == *" $prev= "* ]]; then
    flag=$prev
  fi
  case ${COMP_WORDS[1]}$flag in
    run--kernel | *--baseline) words="KERNELS" ;;
    *--kernel) words="all KERNELS" ;;
    *--problem | *--preset) words="PRESETS" ;;
    profile--device) words="GPUS" ;;
    *--device) words="auto cpu GPUS" ;;
    *--dtype) words="fp32 fp16 bf16" ;;
    *--out_dtype) words="auto fp32 fp16 bf16 fp64" ;;
    *--*) ;;
    *) words=$flags ;;
  esac
  if [[ $COMP_CWORD == 1 ]]; then words="SUBCOMMANDS"; fi
  COMPREPLY=($(compgen -P "$prefix" -W "$words" -- "$cur"))
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o default -F _attnlab attnlab
)";

std::string Presets() {
  std::vector<std::string> names = {"gpt2"};
  for (const Model& model : Models()) {
    names.push_back(absl::StrCat(model.name, "-prefill-4k"));
    names.push_back(absl::StrCat(model.name, "-decode-4k"));
  }
  return absl::StrJoin(names, " ");
}

std::string Gpus() {
  std::vector<std::string> names;
  const absl::StatusOr<std::vector<DeviceInfo>> gpus = CudaInfo();
  if (!gpus.ok()) return "";
  for (const DeviceInfo& gpu : *gpus) names.push_back(ToString(gpu.device));
  return absl::StrJoin(names, " ");
}

}  // namespace

std::vector<std::string> FlagsOfHelp(absl::string_view help) {
  std::vector<std::string> flags;
  for (absl::string_view line : absl::StrSplit(help, '\n')) {
    if (!absl::ConsumePrefix(&line, "  --")) continue;
    const size_t end = line.find_first_of(" =[");
    const bool value = end != absl::string_view::npos && line[end] == '=';
    flags.push_back(absl::StrCat("--", line.substr(0, end), value ? "=" : ""));
  }
  flags.push_back("--help");
  return flags;
}

std::string CompletionScript(absl::Span<const std::pair<std::string, std::string>> helps) {
  std::string flags, subcommands = "help";
  for (const auto& [name, help] : helps) {
    absl::StrAppend(&flags, "    ", name, ") flags=\"", absl::StrJoin(FlagsOfHelp(help), " "),
                    "\" ;;\n");
    absl::StrAppend(&subcommands, " ", name);
  }
  const std::string kernels = absl::StrJoin(
      Registry::Global().All(), " ",
      [](std::string* out, const Kernel* kernel) { out->append(kernel->traits().name); });
  return absl::StrReplaceAll(kScript, {{"FLAGS", flags},
                                       {"SUBCOMMANDS", subcommands},
                                       {"KERNELS", kernels},
                                       {"PRESETS", Presets()},
                                       {"GPUS", Gpus()}});
}

}  // namespace attnlab::command
