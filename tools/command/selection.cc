#include "tools/command/selection.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "attention/dtype.h"
#include "attention/registry.h"
#include "tools/presets.h"
#include "tools/sweep.h"
#include "tools/table.h"

namespace attnlab::command {
namespace {

// Lengths, offsets and the like, which a batch takes even where its sequences are empty.
constexpr double kBytesPerSequence = 64;

}  // namespace

const char kProblemHelp[] =
    "key=value,key=value. Required: hq (query heads), sq (query length), d (head dim).\n"
    "b       batch, 1                       dtype    fp32, fp16, bf16 (the default)\n"
    "hkv     KV heads, hq                   mask     none, causal, window:LEFT:RIGHT\n"
    "skv     KV length, sq                  scale    1/sqrt(d)\n"
    "dv      head dim of V, d               softcap  none\n"
    "lens    fixed, packed, padded          page     tokens a KV page, none\n"
    "A value can be a list, fp32/bf16; an integer also a doubling range, 512..16384, and 4k is\n"
    "4096. All combinations are done.";

void AddProblemFlags(ArgumentParser* parser, ProblemFlags* flags) {
  parser->AddStrings(
      "problem", "LINE", &flags->problems,
      "Problem in the one-line form, see below, or a preset. Repeatable; \";\" separates several.");
  parser->AddStrings("preset", "NAME", &flags->presets,
                     "gpt2, or MODEL-PHASE-LENGTH as in llama3-8b-prefill-4k; keys behind a comma "
                     "change it. `attnlab list` has the models. Repeatable.");
  parser->AddString("dtype", "DTYPE", &flags->dtype,
                    "The dtype of all problems, whatever they say; a list as in fp32/bf16.");
}

absl::StatusOr<std::vector<AttentionProblem>> ProblemsOf(const ProblemFlags& flags) {
  std::vector<AttentionProblem> problems;
  const auto add = [&problems](absl::string_view text, bool preset) -> absl::Status {
    std::string line(text);
    if (preset) {
      absl::StatusOr<std::string> expanded = PresetLine(text);
      if (!expanded.ok()) return expanded.status();
      line = *std::move(expanded);
    }
    absl::StatusOr<std::vector<AttentionProblem>> some = ExpandSweep(line);
    if (!some.ok()) return some.status();
    problems.insert(problems.end(), some->begin(), some->end());
    return absl::OkStatus();
  };
  for (const std::string& flag : flags.problems) {
    for (absl::string_view text : absl::StrSplit(flag, ';')) {
      // Every item of a line has a "="; a preset begins with a name.
      const absl::string_view first = text.substr(0, text.find(','));
      const bool preset = !first.empty() && !absl::StrContains(first, '=');
      if (absl::Status s = add(text, preset); !s.ok()) {
        return absl::Status(s.code(), absl::StrCat("--problem: ", s.message()));
      }
    }
  }
  for (const std::string& flag : flags.presets) {
    for (absl::string_view text : absl::StrSplit(flag, ';')) {
      if (absl::Status s = add(text, /*preset=*/true); !s.ok()) {
        return absl::Status(s.code(), absl::StrCat("--preset: ", s.message()));
      }
    }
  }
  if (!flags.dtype.empty()) {
    std::vector<AttentionProblem> changed;
    std::vector<DType> dtypes;
    for (absl::string_view name : absl::StrSplit(flags.dtype, '/')) {
      const absl::StatusOr<DType> dtype = ParseDType(name);
      if (!dtype.ok()) {
        return absl::Status(dtype.status().code(), absl::StrCat("--", dtype.status().message()));
      }
      dtypes.push_back(*dtype);
    }
    for (const AttentionProblem& problem : problems) {
      for (DType dtype : dtypes) {
        changed.push_back(problem);
        changed.back().dtype = dtype;
      }
    }
    problems = std::move(changed);
  }
  if (static_cast<int64_t>(problems.size()) > kMostProblems) {
    return absl::InvalidArgumentError(
        absl::StrCat("--problem: ", problems.size(), " problems are more than ", kMostProblems));
  }
  return problems;
}

absl::StatusOr<std::vector<const Kernel*>> KernelsOf(absl::string_view names) {
  if (absl::Status s = Registry::Global().Check(); !s.ok()) return s;
  std::vector<const Kernel*> all = Registry::Global().All();
  if (all.empty()) return absl::UnimplementedError("this program links no kernel");
  if (names.empty() || names == "all") {
    std::stable_sort(all.begin(), all.end(), [](const Kernel* a, const Kernel* b) {
      return a->traits().preference < b->traits().preference;
    });
    return all;
  }
  std::vector<const Kernel*> kernels;
  for (absl::string_view name : absl::StrSplit(names, ',')) {
    absl::StatusOr<const Kernel*> kernel = Registry::Global().Find(name);
    if (!kernel.ok()) {
      std::vector<std::string> linked;
      for (const Kernel* k : all) linked.push_back(k->traits().name);
      const std::string nearest = Nearest(name, linked);
      return absl::InvalidArgumentError(absl::StrCat(
          "--kernel: there is no \"", name, "\"; there are ", absl::StrJoin(linked, ", "),
          nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
    }
    if (std::find(kernels.begin(), kernels.end(), *kernel) == kernels.end()) {
      kernels.push_back(*kernel);
    }
  }
  return kernels;
}

absl::StatusOr<std::vector<LaunchConfig>> ConfigsOf(const std::vector<std::string>& lines) {
  if (lines.empty()) return std::vector<LaunchConfig>(1);
  std::vector<LaunchConfig> configs;
  for (const std::string& line : lines) {
    absl::StatusOr<LaunchConfig> config = LaunchConfig::Parse(line);
    if (!config.ok()) {
      return absl::Status(config.status().code(), absl::StrCat("--", config.status().message()));
    }
    configs.push_back(*std::move(config));
  }
  return configs;
}

absl::StatusOr<DeviceInfo> DeviceOf(absl::string_view text, const AttentionProblem& problem,
                                    absl::Span<const Kernel* const> kernels,
                                    const LaunchConfig& config) {
  if (text == "auto") {
    const absl::StatusOr<std::vector<DeviceInfo>> gpus = CudaInfo();
    if (gpus.ok() && !gpus->empty()) {
      for (const Kernel* kernel : kernels) {
        if (PlanFor(*kernel, problem, gpus->front(), config).ok()) return gpus->front();
      }
    }
    return CpuInfo();
  }
  const absl::StatusOr<Device> device = ParseDevice(text);
  if (!device.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device: \"", text, "\" is not one of auto, cpu, cuda, cuda:N"));
  }
  absl::StatusOr<DeviceInfo> info = InfoOf(*device);
  if (!info.ok())
    return absl::UnavailableError(
        absl::StrCat("--", info.status().message(), "; --device=cpu is always there"));
  return info;
}

absl::StatusOr<Plan> PlanFor(const Kernel& kernel, const AttentionProblem& problem,
                             const DeviceInfo& device, const LaunchConfig& config) {
  absl::StatusOr<Plan> plan = MakePlan(problem, device.device, kernel.traits().name, config);
  if (!plan.ok()) return plan;
  // A system that promises more memory than it has would kill the process later on.
  const AttentionProblem& p = problem;
  const double b = static_cast<double>(p.b);
  double bytes = static_cast<double>(plan->workspace_bytes) + kBytesPerSequence * b;
  // Packed sequences have the maximal lengths at most, so their sum may be anything below.
  if (p.lens != Lengths::kPacked) {
    bytes += b * static_cast<double>(SizeOf(p.dtype)) * static_cast<double>(p.d + p.dv) *
             (static_cast<double>(p.sq * p.hq) + static_cast<double>(p.skv * p.hkv));
  }
  if (bytes > static_cast<double>(device.memory_bytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory: ", kernel.traits().name, " on ", p.ToString(), " takes ",
                     Bytes(static_cast<int64_t>(std::min(bytes, 9e18))), ", and ",
                     ToString(device.device), " has ", Bytes(device.memory_bytes)));
  }
  return plan;
}

}  // namespace attnlab::command
