#include "attention/baseline/traffic.h"

#include <algorithm>
#include <cstdint>

#include "attention/baseline/as_matrices.h"
#include "attention/baseline/softmax.h"
#include "attention/l2_reuse.h"
#include "attention/tensor.h"

namespace attnlab::baseline {
namespace {

enum Tensors { kQ, kK, kV, kO, kMatricesQ, kMatricesK, kMatricesV, kMatricesO, kS, kP };

// Of a thread of the softmax of long rows, rounded up as they are given out: 45 in code for 9.0.
constexpr int kLongSoftmaxRegisters = 48;

// Whether a row that is too long for registers comes from memory when it is read again, too: L2 has
// it still if it holds all rows that are under way, one a block.
bool ReadsRowsTwice(const AttentionProblem& p, const DeviceInfo& device, const Options& options) {
  if (p.skv <= int64_t{kRowInRegisters} * options.softmax_block) return false;
  const int64_t blocks = std::max<int64_t>(
      1, device.registers_per_multiprocessor / (kLongSoftmaxRegisters * options.softmax_block));
  const double under_way = static_cast<double>(device.multiprocessors * blocks) * 4;
  return under_way * static_cast<double>(p.skv) > L2BytesFor(device, 1);
}

// With L2 as the device says.
Traffic TrafficOf(const AttentionProblem& p, const DeviceInfo& device, const Options& options) {
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
  // What is written lies in L2 once, wherever it is read.
  L2Steps steps(static_cast<double>(device.last_level_cache_bytes));
  // 1. Permutations of the inputs.
  const int64_t group = p.GroupSize();
  const auto input = [&](int tensor, int matrices, double elements, bool permute) {
    if (permute) steps.Add({{tensor, elements * size}}, {{matrices, elements * inner}});
    return L2Steps::Access{permute ? matrices : tensor, elements * inner};
  };
  const auto q = input(kQ, kMatricesQ, rows * d, permuted(p.sq, p.hq, p.d, group));
  const auto k = input(kK, kMatricesK, keys * d, permuted(p.skv, p.hkv, p.d, 1));
  const auto v = input(kV, kMatricesV, keys * dv, copies_v || permuted(p.skv, p.hkv, p.dv, 1));
  // 2. S = Q Kᵀ.
  steps.Add({q, k}, {{kS, 4 * scores}});
  // 3. Scale and mask.
  if (!options.fused) steps.Add({{kS, 4 * scores}}, {{kS, 4 * scores}});
  // 4. Softmax.
  steps.Add({{kS, (ReadsRowsTwice(p, device, options) ? 8 : 4) * scores}}, {{kP, scores * inner}});
  // 5. O = P V.
  const bool permutes_o = permuted(p.sq, p.hq, p.dv, group);
  steps.Add({{kP, scores * inner}, v}, {{permutes_o ? kMatricesO : kO, rows * dv * inner}});
  // 6. Permutation of O.
  if (permutes_o) steps.Add({{kMatricesO, rows * dv * inner}}, {{kO, rows * dv * size}});

  Traffic traffic;
  traffic.flops = 2 * scores * (d + dv);
  traffic.bytes_read = WholeBytes(steps.BytesRead());
  traffic.bytes_written = WholeBytes(steps.BytesWritten());
  return traffic;
}

}  // namespace

Traffic ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                        const Options& options) {
  return WithL2InDoubt(device,
                       [&](const DeviceInfo& other) { return TrafficOf(p, other, options); });
}

}  // namespace attnlab::baseline
