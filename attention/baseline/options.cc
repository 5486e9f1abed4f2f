#include "attention/baseline/options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attention/baseline/softmax.h"
#include "attention/core/compute_capability.h"
#include "attention/core/dtype.h"
#include "attention/cuda/memory.h"
#include "attention/device/element_of.h"

namespace attnlab::baseline {
namespace {

constexpr int64_t kRowAlignment = 16;

int64_t RoundUp(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

absl::Status Invalid(absl::string_view key, absl::string_view value, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("config: ", key, "=", value, " is not one of ", allowed));
}

absl::StatusOr<bool> Choice(const LaunchConfig& config, absl::string_view key, absl::string_view no,
                            absl::string_view yes) {
  const std::string value = config.Get(key, no);
  if (value == no) return false;
  if (value == yes) return true;
  return Invalid(key, value, absl::StrCat(no, ", ", yes));
}

// The fewest threads that hold a row in their registers: most loads in flight, and fewest steps of
// reductions across threads.
int DefaultSoftmaxBlock(int64_t skv) {
  int block = 32;
  while (block < 512 && skv > int64_t{kRowInRegisters} * block) block *= 2;
  return block;
}

// Bytes of the scores and probabilities of one (sequence, KV head).
double HeadBytes(const AttentionProblem& p, device::Element element) {
  const int64_t scores = RoundUp(p.skv, kRowAlignment / 4) * 4;
  const int64_t probabilities =
      element == device::Element::kFloat32 ? 0 : RoundUp(p.skv, kRowAlignment / 2) * 2;
  return static_cast<double>(p.GroupSize()) * static_cast<double>(p.sq) *
         static_cast<double>(scores + probabilities);
}

}  // namespace

std::vector<std::string> ConfigKeys() {
  return {
      "block: threads per block of the elementwise kernels: 32, 64, 128, 256 or 512 [128 for "
      "permutations, by row length for the softmax]",
      "permute: auto (only if the matrix products need it) or always [auto]",
      "math: fp32, or tf32 for fp32 inputs [fp32]",
      "softmax: unfused (scale and mask are a separate step) or fused [unfused]",
      "heads: (sequence, KV head) pairs whose scores are in memory at once [what fits a quarter of "
      "the device's memory]",
  };
}

device::Element ComputeElement(const AttentionProblem& p, const DeviceInfo& device) {
  if (p.dtype == DType::kBFloat16 && device.compute_capability < 80) {
    return device::Element::kFloat32;
  }
  return device::ElementOf(p.dtype);
}

absl::StatusOr<Options> OptionsFor(const AttentionProblem& p, const DeviceInfo& device,
                                   const LaunchConfig& config) {
  absl::Status s = config.CheckKeys({"block", "permute", "math", "softmax", "heads"});
  if (!s.ok()) return s;
  Options options;
  options.softmax_block = DefaultSoftmaxBlock(p.skv);
  if (!config.Get("block", "").empty()) {
    const absl::StatusOr<int64_t> block = config.GetInteger("block", 0, 32, 512);
    if (!block.ok()) return block.status();
    if ((*block & (*block - 1)) != 0) {
      return Invalid("block", absl::StrCat(*block), "32, 64, 128, 256, 512");
    }
    options.permute_block = options.softmax_block = static_cast<int>(*block);
  }
  const absl::StatusOr<bool> always = Choice(config, "permute", "auto", "always");
  if (!always.ok()) return always.status();
  const absl::StatusOr<bool> tf32 = Choice(config, "math", "fp32", "tf32");
  if (!tf32.ok()) return tf32.status();
  const absl::StatusOr<bool> fused = Choice(config, "softmax", "unfused", "fused");
  if (!fused.ok()) return fused.status();
  options.always_permute = *always;
  options.tf32 = *tf32;
  options.fused = *fused;
  if (*tf32 && p.dtype != DType::kFloat32) {
    return absl::InvalidArgumentError(
        absl::StrCat("config: math=tf32 is for dtype=fp32, not ", Name(p.dtype)));
  }
  if (*tf32 && device.compute_capability < 80) {
    return absl::UnimplementedError(absl::StrCat("config: math=tf32 needs compute capability 8.0; ",
                                                 ToString(device.device), " has ",
                                                 CapabilityName(device.compute_capability)));
  }

  // At most 65535, which cuBLAS is sure to take in one product. More would gain nothing.
  const int64_t most = std::min<int64_t>(p.b * p.hkv, 65535);
  const double head_bytes = HeadBytes(p, ComputeElement(p, device));
  const double fits = static_cast<double>(device.memory_bytes) / 4 / std::max(head_bytes, 1.0);
  const int64_t otherwise =
      std::clamp<int64_t>(static_cast<int64_t>(std::min(fits, 65535.0)), 1, most);
  const absl::StatusOr<int64_t> heads = config.GetInteger("heads", otherwise, 1, INT64_MAX);
  if (!heads.ok()) return heads.status();
  options.heads = std::min(*heads, most);
  return options;
}

absl::Status CheckMemory(const AttentionProblem& p, const DeviceInfo& device,
                         const Options& options) {
  const double inner = device::SizeOf(ComputeElement(p, device));
  const double rows = static_cast<double>(p.b * p.hq) * static_cast<double>(p.sq);
  const double keys = static_cast<double>(p.b * p.hkv) * static_cast<double>(p.skv);
  const double scores =
      static_cast<double>(options.heads) * HeadBytes(p, ComputeElement(p, device));
  // A rough size first; the exact one only if the sizes of Layout cannot overflow.
  double needed = scores + (rows + keys) * static_cast<double>(p.d + p.dv) * inner;
  if (needed < 0x1p58) needed = static_cast<double>(Layout(p, device, options).total);
  // If the device's memory is unknown, only sizes that no device has are refused.
  const double there = device.memory_bytes > 0 ? static_cast<double>(device.memory_bytes) : 0x1p58;
  if (needed <= there) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "memory: scratch needs %.4g GiB, %.4g of them for scores and probabilities of %d KV "
      "%s at once, but %s has %.4g GiB",
      needed / 0x1p30, scores / 0x1p30, options.heads, options.heads == 1 ? "head" : "heads",
      ToString(device.device), there / 0x1p30));
}

Layout::Layout(const AttentionProblem& p, const DeviceInfo& device, const Options& options)
    : element(ComputeElement(p, device)) {
  const int64_t size = device::SizeOf(element);
  const int64_t row = kRowAlignment / size;
  q_stride = RoundUp(p.d, row);
  v_stride = RoundUp(p.dv, row);
  score_stride = RoundUp(p.skv, kRowAlignment / 4);
  probability_stride = RoundUp(p.skv, row);

  const auto place = [this](int64_t bytes) {
    const int64_t at = total;
    total += AlignedBytes(bytes);
    return at;
  };
  q = place(p.b * p.hq * p.sq * q_stride * size);
  k = place(p.b * p.hkv * p.skv * q_stride * size);
  v = place(p.b * p.hkv * p.skv * v_stride * size);
  o = place(p.b * p.hq * p.sq * v_stride * size);
  const int64_t score_rows = options.heads * p.GroupSize() * p.sq;
  scores = place(score_rows * score_stride * 4);
  probabilities =
      element == device::Element::kFloat32 ? scores : place(score_rows * probability_stride * size);
  // What cuBLAS recommends for Hopper and for other GPUs. Small products need less.
  const bool small = score_rows * score_stride < (1 << 20);
  cublas_bytes = device.compute_capability >= 90 && !small ? 32 << 20 : 4 << 20;
  cublas = place(cublas_bytes);
}

}  // namespace attnlab::baseline
