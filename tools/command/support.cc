#include "tools/command/support.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/core/dtype.h"
#include "attention/core/mask.h"
#include "attention/core/problem.h"

namespace attnlab::command {
namespace {

using Change = std::function<void(AttentionProblem*)>;

// A kernel may support a feature only for some dtypes, lengths or head dims. One is enough.
class Prober {
 public:
  Prober(const Kernel& kernel, const DeviceInfo& device) : kernel_(kernel), device_(device) {}

  bool Any(const std::vector<int64_t>& head_dims, const std::vector<DType>& dtypes,
           const Change& change) const {
    for (int64_t d : head_dims) {
      for (DType dtype : dtypes) {
        for (const Mask& mask : {Mask::None(), Mask::Causal()}) {
          for (int64_t sq : {128, 1}) {
            AttentionProblem p;
            p.hq = p.hkv = 8;
            p.sq = sq;
            p.skv = 128;
            p.d = p.dv = d;
            p.dtype = dtype;
            p.mask = mask;
            change(&p);
            if (p.Validate().ok() && kernel_.Supports(p, device_, LaunchConfig()).ok()) {
              return true;
            }
          }
        }
      }
    }
    return false;
  }

 private:
  const Kernel& kernel_;
  const DeviceInfo& device_;
};

}  // namespace

Support Probe(const Kernel& kernel, const DeviceInfo& device) {
  const Prober prober(kernel, device);
  const std::vector<DType> all = {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                  DType::kFloat8E4M3};
  Support support;
  std::vector<DType> dtypes;
  for (int64_t d = 1; d <= AttentionProblem::kMaxHeadDim; ++d) {
    if (prober.Any({d}, all, [](AttentionProblem*) {})) support.head_dims.push_back(d);
  }
  // A dozen head dims, spread over all, are enough for the other probes.
  std::vector<int64_t> dims;
  const size_t step = support.head_dims.size() / 12 + 1;
  for (int64_t d : {64, 128}) {
    if (prober.Any({d}, all, [](AttentionProblem*) {})) dims.push_back(d);
  }
  for (size_t i = 0; i < support.head_dims.size(); i += step) dims.push_back(support.head_dims[i]);

  for (DType dtype : all) {
    if (!prober.Any(dims, {dtype}, [](AttentionProblem*) {})) continue;
    dtypes.push_back(dtype);
    support.dtypes.emplace_back(Name(dtype));
  }
  const auto add = [&](std::vector<std::string>* list, const char* name, const Change& change) {
    if (prober.Any(dims, dtypes, change)) list->push_back(name);
  };
  add(&support.masks, "none", [](AttentionProblem* p) { p->mask = Mask::None(); });
  add(&support.masks, "causal", [](AttentionProblem* p) { p->mask = Mask::Causal(); });
  add(&support.masks, "window", [](AttentionProblem* p) { p->mask = Mask::SlidingWindow(63, 0); });
  add(&support.lengths, "fixed", [](AttentionProblem*) {});
  add(&support.lengths, "packed", [](AttentionProblem* p) { p->lens = Lengths::kPacked; });
  add(&support.lengths, "padded", [](AttentionProblem* p) { p->lens = Lengths::kPadded; });
  add(&support.features, "prefill", [](AttentionProblem* p) { p->sq = 128; });
  add(&support.features, "decode", [](AttentionProblem* p) { p->sq = 1; });
  add(&support.features, "gqa", [](AttentionProblem* p) { p->hkv = 2; });
  add(&support.features, "scale", [](AttentionProblem* p) { p->scale = 0.5f; });
  add(&support.features, "softcap", [](AttentionProblem* p) { p->softcap = 30; });
  add(&support.features, "dv!=d", [](AttentionProblem* p) { p->dv = p->d == 64 ? 128 : 64; });
  add(&support.features, "paged", [](AttentionProblem* p) { p->page = 16; });
  return support;
}

std::string Ranges(const std::vector<int64_t>& sorted) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < sorted.size();) {
    // The longest run of equal steps from here; three make a range.
    size_t end = i + 1;
    const int64_t step = end < sorted.size() ? sorted[end] - sorted[i] : 0;
    while (end < sorted.size() && sorted[end] - sorted[end - 1] == step) ++end;
    if (end - i >= 3) {
      parts.push_back(absl::StrCat(sorted[i], "-", sorted[end - 1],
                                   step == 1 ? "" : absl::StrCat(" step ", step)));
      i = end;
    } else {
      parts.push_back(absl::StrCat(sorted[i]));
      ++i;
    }
  }
  return absl::StrJoin(parts, ", ");
}

DeviceInfo TypicalGpu(int compute_capability) {
  DeviceInfo gpu;
  gpu.device = Device::Cuda(0);
  gpu.name = absl::StrCat("sm_", compute_capability);
  gpu.compute_capability = compute_capability;
  gpu.memory_bytes = int64_t{16} << 30;
  gpu.last_level_cache_bytes = int64_t{32} << 20;
  gpu.multiprocessors = 64;
  gpu.registers_per_multiprocessor = 65536;
  // "Maximum amount of shared memory per thread block" in the guide's table of technical
  // specifications per compute capability.
  int64_t kib = 227;                      // 9.0, 10.0
  if (compute_capability < 80) kib = 64;  // 7.5
  if (compute_capability == 80 || compute_capability == 87) kib = 163;
  if (compute_capability == 86 || compute_capability == 89) kib = 99;
  if (compute_capability >= 120) kib = 99;
  gpu.shared_memory_per_block = kib * 1024;
  return gpu;
}

}  // namespace attnlab::command
