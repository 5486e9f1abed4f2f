#include "attention/baseline/traffic.h"

#include <algorithm>
#include <cstdint>

#include "attention/baseline/as_matrices.h"
#include "attention/baseline/softmax.h"
#include "attention/tensor.h"

namespace attnlab::baseline {
namespace {

// Counts in double: quadratic figures can be more than an int64 holds.
struct Bytes {
  double read = 0, written = 0;
  void Read(double elements, double size) { read += elements * size; }
  void Write(double elements, double size) { written += elements * size; }
};

int64_t Whole(double bytes) { return static_cast<int64_t>(std::min(bytes, 0x1p61)); }

}  // namespace

Traffic ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                        const Options& options) {
  const device::Element element = ComputeElement(p, device);
  const double size = SizeOf(p.dtype), inner = device::SizeOf(element);
  const double rows = static_cast<double>(p.b * p.hq) * static_cast<double>(p.sq);
  const double keys = static_cast<double>(p.b * p.hkv) * static_cast<double>(p.skv);
  const double scores = rows * static_cast<double>(p.skv);
  const auto d = static_cast<double>(p.d), dv = static_cast<double>(p.dv);

  // Products take V without its NaN and infinities where a mask hides keys (repair.h).
  const bool copies_v = p.mask != Mask::None();
  const auto permuted = [&](int64_t length, int64_t heads, int64_t dim, int64_t group) {
    if (options.always_permute || p.lens != Lengths::kFixed || size != inner) return true;
    // An address that is aligned, as those of most tensors are.
    const ConstTensorView view = BshdView(static_cast<const void*>(nullptr), p.dtype, device.device,
                                          p.b, length, heads, dim);
    return !AsMatrices(view, group).has_value();
  };
  Bytes bytes;
  const auto permute = [&](double elements, double from, double to) {
    bytes.Read(elements, from);
    bytes.Write(elements, to);
  };
  // 1. Permutations of the inputs.
  const int64_t group = p.GroupSize();
  if (permuted(p.sq, p.hq, p.d, group)) permute(rows * d, size, inner);
  if (permuted(p.skv, p.hkv, p.d, 1)) permute(keys * d, size, inner);
  if (copies_v || permuted(p.skv, p.hkv, p.dv, 1)) permute(keys * dv, size, inner);
  // 2. S = Q Kᵀ.
  bytes.Read(rows * d + keys * d, inner);
  bytes.Write(scores, 4);
  // 3. Scale and mask.
  if (!options.fused) permute(scores, 4, 4);
  // 4. Softmax; long rows are read twice.
  bytes.Read(p.skv > int64_t{kRowInRegisters} * options.softmax_block ? 2 * scores : scores, 4);
  bytes.Write(scores, inner);
  // 5. O = P V.
  bytes.Read(scores + keys * dv, inner);
  bytes.Write(rows * dv, inner);
  // 6. Permutation of O.
  if (permuted(p.sq, p.hq, p.dv, group)) permute(rows * dv, inner, size);

  Traffic traffic;
  traffic.flops = 2 * scores * (d + dv);
  traffic.bytes_read = Whole(bytes.read);
  traffic.bytes_written = Whole(bytes.written);
  return traffic;
}

}  // namespace attnlab::baseline
