#include "tools/command/selection.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "attention/core/dtype.h"
#include "attention/core/registry.h"
#include "attention/core/runs_on.h"
#include "attention/cuda/machine.h"
#include "attention/cuda/memory.h"
#include "tools/command/presets.h"
#include "tools/command/sweep.h"
#include "tools/lib/similar_names.h"
#include "tools/lib/table.h"

namespace attnlab::command {
namespace {

// Lengths, offsets and the like, which even empty sequences have.
constexpr double kBytesPerSequence = 64;

double TensorBytes(const AttentionProblem& p) {
  const double b = static_cast<double>(p.b);
  const double bytes = kBytesPerSequence * b;
  // The lengths of packed sequences may be anything up to the maximum, so their sum is unknown. So
  // is that of padded ones with pages, because a sequence has only the pages that it needs.
  if (p.lens == Lengths::kPacked) return bytes;
  const int64_t kv_tokens = p.page == 0                  ? p.skv
                            : p.lens == Lengths::kPadded ? 0
                                                         : p.Pages(p.skv) * p.page;
  return bytes + b * static_cast<double>(p.d + p.dv) *
                     (static_cast<double>(SizeOf(p.dtype)) * static_cast<double>(p.sq * p.hq) +
                      static_cast<double>(SizeOf(p.KvDType())) * static_cast<double>(p.hkv) *
                          static_cast<double>(kv_tokens));
}

std::string BytesText(double bytes) { return Bytes(static_cast<int64_t>(std::min(bytes, 9e18))); }

// ResourceExhausted if the device has too little free memory for the tensors and the workspace.
absl::Status CheckMemory(const Kernel& kernel, const AttentionProblem& problem,
                         const DeviceInfo& device, double tensors, double workspace) {
  const absl::StatusOr<int64_t> free = FreeMemory(device.device);
  const bool know_free = free.ok() && *free < device.memory_bytes;
  const int64_t available = know_free ? *free : device.memory_bytes;
  if (tensors + workspace <= static_cast<double>(available)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "memory: ", kernel.traits().name, " on ", problem.ToString(), " takes ",
      BytesText(tensors + workspace),
      workspace > 0 ? absl::StrCat(", ", BytesText(workspace), " of it workspace") : "", ", and ",
      ToString(device.device), " has ", Bytes(device.memory_bytes),
      know_free ? absl::StrCat(", of which ", Bytes(*free), " are free") : ""));
}

// The device of "cpu", "cuda" or "cuda:N".
absl::StatusOr<DeviceInfo> NamedDevice(absl::string_view text) {
  const absl::StatusOr<Device> device = ParseDevice(text);
  if (!device.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device: \"", text, "\" is not one of auto, cpu, cuda, cuda:N"));
  }
  absl::StatusOr<DeviceInfo> info = InfoOf(*device);
  if (absl::IsInvalidArgument(info.status())) return info;  // $ATTNLAB_COMPUTE_CAPABILITY
  if (!info.ok()) {
    return absl::UnavailableError(
        absl::StrCat("--", info.status().message(), "; --device=cpu is always there"));
  }
  return info;
}

#define ATTNLAB_ONE_PROBLEM_HELP                                                         \
  "key=value,key=value. Required: hq (query heads), sq (query length), d (head dim).\n"  \
  "b       batch, 1                       dtype    fp32, fp16, bf16 (the default),\n"    \
  "                                                fp8_e4m3\n"                           \
  "                                       kvdtype  dtype; fp8_e4m3 with 16-bit dtypes\n" \
  "hkv     KV heads, hq                   mask     none, causal, window:LEFT:RIGHT\n"    \
  "skv     KV length, sq                  scale    1/sqrt(d)\n"                          \
  "dv      head dim of V, d               softcap  none\n"                               \
  "lens    fixed, packed, padded          page     tokens a KV page, none\n"             \
  "scaleblock  64 or 128 rows of fp8      odtype   of O, bf16 if dtype is fp8_e4m3\n"    \
  "            with one scale, none       vdtype   of V, kvdtype; fp8_e5m2 if dtype\n"   \
  "                                                is fp8_e4m3\n"

void AddOnce(const AttentionProblem& problem, std::vector<AttentionProblem>* problems) {
  if (std::find(problems->begin(), problems->end(), problem) == problems->end()) {
    problems->push_back(problem);
  }
}

std::vector<std::string> KeysOf(const Kernel& kernel) {
  std::vector<std::string> keys;
  for (const std::string& line : kernel.traits().config_keys) {
    keys.push_back(line.substr(0, line.find(':')));
  }
  return keys;
}

// InvalidArgument if a configuration has a key that none of the kernels reads.
absl::Status CheckConfigKeys(absl::Span<const LaunchConfig> configs,
                             absl::Span<const Kernel* const> kernels) {
  if (kernels.empty()) return absl::OkStatus();
  std::vector<std::string> known, parts;
  for (const Kernel* kernel : kernels) {
    const std::vector<std::string> keys = KeysOf(*kernel);
    known.insert(known.end(), keys.begin(), keys.end());
    parts.push_back(absl::StrCat(kernel->traits().name, " has ",
                                 keys.empty() ? "none" : absl::StrJoin(keys, ", ")));
  }
  for (const LaunchConfig& config : configs) {
    for (const std::string& key : config.Keys()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      return absl::InvalidArgumentError(absl::StrCat("--config: unknown key \"", key, "\"; ",
                                                     absl::StrJoin(parts, "; "),
                                                     DidYouMean(key, known)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

const char kLseHint[] = "; only `attnlab run` writes the log-sum-exp to a file";

const char kOneProblemHelp[] = ATTNLAB_ONE_PROBLEM_HELP "4k is 4096. One value each.";
const char kProblemHelp[] = ATTNLAB_ONE_PROBLEM_HELP
    "A value can be a list, fp32/bf16; an integer also a doubling range, 512..16384, and 4k is\n"
    "4096. All combinations are done.";

void AddProblemFlags(ArgumentParser* parser, ProblemFlags* flags) {
  parser->AddStrings("problem", "LINE", &flags->problems,
                     "one-line form, see below, or a preset; repeatable, or with \";\"");
  parser->AddStrings("preset", "NAME", &flags->presets,
                     "gpt2 or MODEL-PHASE-LENGTH: llama3-8b-prefill-4k,b=8; repeatable");
  parser->AddString("dtype", "DTYPE", &flags->dtype,
                    "dtype of all problems, or a list, as in fp32/bf16 [as each says]");
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
    for (const AttentionProblem& problem : *some) AddOnce(problem, &problems);
    return absl::OkStatus();
  };
  for (const std::string& flag : flags.problems) {
    for (absl::string_view text : absl::StrSplit(flag, ';')) {
      // Every item of a line has a "="; a preset begins with a name.
      const absl::string_view first = text.substr(0, text.find(','));
      const bool preset = !first.empty() && !absl::StrContains(first, '=');
      if (absl::Status s = add(text, preset); !s.ok()) {
        // Errors of the one-line form begin with "problem: " already.
        return absl::Status(
            s.code(), absl::StrCat("--problem: ", absl::StripPrefix(s.message(), "problem: ")));
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
        AttentionProblem with_dtype = problem;
        with_dtype.dtype = dtype;
        if (const absl::Status s = with_dtype.Validate(); !s.ok()) {
          return absl::Status(s.code(),
                              absl::StrCat("--dtype: ", absl::StripPrefix(s.message(), "dtype: ")));
        }
        AddOnce(with_dtype, &changed);
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
  std::stable_sort(all.begin(), all.end(), [](const Kernel* a, const Kernel* b) {
    return a->traits().preference < b->traits().preference;
  });
  if (names.empty()) return all;
  std::vector<const Kernel*> kernels;
  const auto add = [&kernels](const Kernel* kernel) {
    if (std::find(kernels.begin(), kernels.end(), kernel) == kernels.end()) {
      kernels.push_back(kernel);
    }
  };
  for (absl::string_view name : absl::StrSplit(names, ',')) {
    if (name == "all") {
      for (const Kernel* kernel : all) add(kernel);
      continue;
    }
    const absl::StatusOr<const Kernel*> kernel = Registry::Global().Find(name);
    if (!kernel.ok()) {
      std::vector<std::string> linked;
      for (const Kernel* k : Registry::Global().All()) linked.push_back(k->traits().name);
      return absl::InvalidArgumentError(absl::StrCat("--kernel: there is no \"", name,
                                                     "\"; there are ", absl::StrJoin(linked, ", "),
                                                     DidYouMean(name, linked)));
    }
    add(*kernel);
  }
  return kernels;
}

bool IsNamed(const Kernel& kernel, absl::string_view names) {
  const std::vector<absl::string_view> parts = absl::StrSplit(names, ',');
  return std::find(parts.begin(), parts.end(), kernel.traits().name) != parts.end();
}

absl::StatusOr<std::vector<LaunchConfig>> ConfigsOf(const std::vector<std::string>& lines,
                                                    absl::Span<const Kernel* const> kernels) {
  if (lines.empty()) return std::vector<LaunchConfig>(1);
  std::vector<LaunchConfig> configs;
  for (const std::string& line : lines) {
    const absl::StatusOr<std::vector<LaunchConfig>> some =
        line == "default" ? std::vector<LaunchConfig>(1) : ExpandConfigs(line);
    if (!some.ok()) {
      const absl::string_view message = some.status().message();
      return absl::Status(some.status().code(), absl::StartsWith(message, "config: ")
                                                    ? absl::StrCat("--", message)
                                                    : absl::StrCat("--config: ", message));
    }
    for (const LaunchConfig& config : *some) {
      if (std::find(configs.begin(), configs.end(), config) == configs.end()) {
        configs.push_back(config);
      }
    }
  }
  if (static_cast<int64_t>(configs.size()) > kMostConfigs) {
    return absl::InvalidArgumentError(
        absl::StrCat("--config: ", configs.size(), " configurations are more than ", kMostConfigs));
  }
  if (absl::Status s = CheckConfigKeys(configs, kernels); !s.ok()) return s;
  return configs;
}

bool HasKeysOf(const Kernel& kernel, const LaunchConfig& config) {
  const std::vector<std::string> known = KeysOf(kernel), keys = config.Keys();
  return std::all_of(keys.begin(), keys.end(), [&known](const std::string& key) {
    return std::find(known.begin(), known.end(), key) != known.end();
  });
}

absl::StatusOr<DeviceInfo> DeviceOf(absl::string_view text, const AttentionProblem& problem,
                                    absl::Span<const Kernel* const> kernels,
                                    const LaunchConfig& config) {
  if (text == "auto") {
    const absl::StatusOr<std::vector<DeviceInfo>> gpus = CudaInfo();
    if (absl::IsInvalidArgument(gpus.status())) return gpus.status();
    if (gpus.ok() && !gpus->empty()) {
      for (const Kernel* kernel : kernels) {
        if (PlanFor(*kernel, problem, gpus->front(), config).ok()) return gpus->front();
      }
    }
    // With GPU kernels only, an error about the CPU would hide what the GPU lacks.
    const bool only_gpus = std::all_of(kernels.begin(), kernels.end(), [](const Kernel* kernel) {
      return kernel->traits().device == DeviceKind::kCuda;
    });
    if (only_gpus && !kernels.empty()) return DeviceFor("auto", *kernels.front());
    return CpuInfo();
  }
  return NamedDevice(text);
}

absl::StatusOr<DeviceInfo> DeviceFor(absl::string_view text, const Kernel& kernel) {
  if (text != "auto") return NamedDevice(text);
  const KernelTraits& traits = kernel.traits();
  if (traits.device == DeviceKind::kCpu) return CpuInfo();
  const absl::StatusOr<std::vector<DeviceInfo>> gpus = CudaInfo();
  if (!gpus.ok() && absl::IsInvalidArgument(gpus.status())) return gpus.status();
  if (!gpus.ok() || gpus->empty()) {
    return absl::UnavailableError(absl::StrCat(
        traits.name, ": runs on GPUs; ", gpus.ok() ? "there is none" : gpus.status().message()));
  }
  for (const DeviceInfo& gpu : *gpus) {
    if (RunsOn(traits, gpu).ok()) return gpu;
  }
  return absl::UnavailableError(
      absl::StrCat(traits.name, ": ", RunsOn(traits, gpus->front()).message()));
}

bool LeavesOut(absl::string_view device, const absl::Status& error) {
  return device == "auto" && !absl::IsInvalidArgument(error);
}

void Blame::Add(const absl::Status& status) {
  if (status.ok()) return;
  (absl::IsInvalidArgument(status) ? invalid_
   : absl::IsUnavailable(status)   ? no_device_
                                   : impossible_) = true;
}

void Blame::AddInputs(const absl::Status& status) {
  Add(status);
  if (absl::IsInvalidArgument(status)) bad_inputs_ = true;
}

absl::Status Blame::NothingDone(absl::string_view where) const {
  if (Flags()) return absl::InvalidArgumentError("no kernel takes these flags");
  if (no_device_ && !impossible_) {
    return absl::UnavailableError("this machine has no device for the kernels that might");
  }
  return absl::UnimplementedError(absl::StrCat("no kernel here does any of these problems", where));
}

absl::StatusOr<Plan> PlanFor(const Kernel& kernel, const AttentionProblem& problem,
                             const DeviceInfo& device, const LaunchConfig& config) {
  absl::StatusOr<Plan> plan = MakePlan(problem, device.device, kernel.traits().name, config);
  if (!plan.ok()) return plan;
  // A system that overcommits memory would kill the process later.
  const double tensors = TensorBytes(problem);
  const double workspace = static_cast<double>(plan->workspace_bytes);
  absl::Status s = CheckMemory(kernel, problem, device, tensors, workspace);
  if (s.ok() && device.device.kind != DeviceKind::kCpu) {
    s = CheckMemory(kernel, problem, CpuInfo(), tensors, 0);
  }
  if (!s.ok()) return s;
  return plan;
}

}  // namespace attnlab::command
