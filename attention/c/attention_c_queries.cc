// The parts of the C interface that describe problems, kernels and devices.
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/c/attention_c.h"
#include "attention/c/attention_c_internal.h"
#include "attention/core/kernel.h"
#include "attention/core/registry.h"
#include "attention/cuda/machine.h"

namespace attnlab::c {
namespace {

// A copy that lives until the program ends. There are only as many as kernels and devices.
const char* Kept(std::string text) {
  static std::mutex mutex;
  static auto* const kStrings = new std::set<std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  return kStrings->insert(std::move(text)).first->c_str();
}

absl::Status ProblemParse(const char* line, attnlab_problem* to) {
  if (line == nullptr) return Invalid("line", "is null");
  absl::StatusOr<AttentionProblem> problem = AttentionProblem::Parse(line);
  if (!problem.ok()) return problem.status();
  return Write("problem", ToC(*problem), to);
}

absl::Status ProblemPrint(const attnlab_problem* from, char* line, int64_t bytes) {
  absl::StatusOr<AttentionProblem> problem = ReadProblem(from);
  if (!problem.ok()) return problem.status();
  if (absl::Status s = problem->Validate(); !s.ok()) return s;
  if (line == nullptr) return Invalid("line", "is null");
  const std::string text = problem->ToString();
  if (bytes < 0 || static_cast<uint64_t>(bytes) <= text.size()) {
    return Invalid("bytes", absl::StrCat(bytes, ", but ", text.size() + 1, " are needed"));
  }
  std::memcpy(line, text.c_str(), text.size() + 1);
  return absl::OkStatus();
}

absl::Status KernelInfo(int64_t index, attnlab_kernel_info* to) {
  const std::vector<const Kernel*> all = Registry::Global().All();
  if (index < 0 || index >= static_cast<int64_t>(all.size())) {
    return absl::NotFoundError(
        absl::StrCat("index: ", index, " is not one of the library's ", all.size(), " kernels"));
  }
  const KernelTraits& traits = all[index]->traits();
  static_assert(sizeof(int) == sizeof(int32_t));
  attnlab_kernel_info info = {};
  info.name = traits.name.c_str();
  info.summary = traits.summary.c_str();
  info.config_keys = Kept(absl::StrJoin(traits.config_keys, "\n"));
  info.built_for = traits.compute_capabilities.data();
  info.built_for_entries = static_cast<int64_t>(traits.compute_capabilities.size());
  info.device_kind = static_cast<int32_t>(traits.device);
  info.preference = traits.preference;
  return Write("info", info, to);
}

absl::Status DeviceCount(int32_t kind, int64_t* count) {
  if (count == nullptr) return Invalid("count", "is null");
  *count = 0;
  absl::StatusOr<Device> device = ReadDevice(kind, 0);
  if (!device.ok()) return device.status();
  if (device->kind == DeviceKind::kCpu) {
    *count = 1;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<DeviceInfo>> gpus = CudaInfo();
  if (!gpus.ok()) return gpus.status();
  *count = static_cast<int64_t>(gpus->size());
  return absl::OkStatus();
}

absl::Status GetDeviceInfo(int32_t kind, int32_t ordinal, attnlab_device_info* to) {
  absl::StatusOr<Device> device = ReadDevice(kind, ordinal);
  if (!device.ok()) return device.status();
  absl::StatusOr<DeviceInfo> found = InfoOf(*device);
  if (!found.ok()) return found.status();
  attnlab_device_info info = {};
  info.name = Kept(found->name);
  info.memory_bytes = found->memory_bytes;
  info.last_level_cache_bytes = found->last_level_cache_bytes;
  info.shared_memory_per_block = found->shared_memory_per_block;
  info.threads = found->threads;
  info.compute_capability = found->compute_capability;
  info.multiprocessors = found->multiprocessors;
  return Write("info", info, to);
}

}  // namespace
}  // namespace attnlab::c

extern "C" {

using attnlab::c::Report;

int32_t attnlab_problem_parse(const char* line, attnlab_problem* problem) {
  return Report([&] { return attnlab::c::ProblemParse(line, problem); });
}

int32_t attnlab_problem_print(const attnlab_problem* problem, char* line, int64_t bytes) {
  return Report([&] { return attnlab::c::ProblemPrint(problem, line, bytes); });
}

const char* attnlab_kernels(void) {
  static const std::string* const kNames = [] {
    std::vector<std::string> names;
    for (const attnlab::Kernel* kernel : attnlab::Registry::Global().All()) {
      names.push_back(kernel->traits().name);
    }
    return new std::string(absl::StrJoin(names, ","));
  }();
  return kNames->c_str();
}

int32_t attnlab_kernel_get_info(int64_t index, attnlab_kernel_info* info) {
  return Report([&] { return attnlab::c::KernelInfo(index, info); });
}

int32_t attnlab_device_count(int32_t kind, int64_t* count) {
  return Report([&] { return attnlab::c::DeviceCount(kind, count); });
}

int32_t attnlab_device_get_info(int32_t kind, int32_t ordinal, attnlab_device_info* info) {
  return Report([&] { return attnlab::c::GetDeviceInfo(kind, ordinal, info); });
}

}  // extern "C"
