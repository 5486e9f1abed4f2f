#include "attention/baseline/traffic.h"

#include <algorithm>
#include <cstdint>

#include "attention/baseline/as_matrices.h"
#include "attention/baseline/softmax.h"
#include "attention/core/dtype.h"
#include "attention/core/l2_reuse.h"
#include "attention/core/mask.h"
#include "attention/core/tensor.h"

namespace attnlab::baseline {
namespace {

// Registers per thread of the softmax of long rows: 45 in code for 9.0, rounded up to the unit of
// allocation.
constexpr int kLongSoftmaxRegisters = 48;

// Elements of Q, K, V and O that permutations copy.
double Permuted(const AttentionProblem& p, const DeviceInfo& device, const Options& options) {
  double elements = 0;
  const auto add = [&](int64_t length, int64_t heads, int64_t dim, int64_t group) {
    // An aligned address, as most tensors have.
    const ConstTensorView view = BshdView(static_cast<const void*>(nullptr), p.dtype, device.device,
                                          p.b, length, heads, dim);
    if (options.always_permute || p.lens != Lengths::kFixed ||
        device::SizeOf(ComputeElement(p, device)) != SizeOf(p.dtype) ||
        !AsMatrices(view, group).has_value()) {
      elements += static_cast<double>(p.b * heads) * static_cast<double>(length * dim);
    }
  };
  add(p.sq, p.hq, p.d, p.GroupSize());
  add(p.skv, p.hkv, p.d, 1);
  add(p.skv, p.hkv, p.dv, 1);
  add(p.sq, p.hq, p.dv, p.GroupSize());
  return elements;
}

}  // namespace

Traffic ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                        const Options& options) {
  AttentionProblem all = p;
  all.mask = Mask::None();
  Traffic traffic = CompulsoryTraffic(all);

  const double element = device::SizeOf(ComputeElement(p, device));
  const double copies = element * Permuted(p, device, options);
  const double scores_of_head =
      static_cast<double>(p.GroupSize() * p.sq) * static_cast<double>(p.skv);
  const double scores = static_cast<double>(p.b * p.hkv) * scores_of_head;
  // S is written and read once, and once more if scale and mask are a separate step.
  const double between_steps = scores * ((options.fused ? 4 : 8) + element);
  traffic.bytes_written =
      WholeBytes(static_cast<double>(traffic.bytes_written) + copies + between_steps);

  // Written data lies in L2 once, however many multiprocessors read it.
  ReadAgain again(static_cast<double>(device.last_level_cache_bytes));
  const double s_at_a_time =
      4 * scores_of_head * static_cast<double>(std::min(options.heads, p.b * p.hkv));
  again.Add(between_steps, /*since=*/s_at_a_time);
  again.Add(copies, /*since=*/copies + s_at_a_time);
  // The softmax reads a row twice if it is too long for registers. Each block works on one row at a
  // time.
  if (p.skv > int64_t{kRowInRegisters} * options.softmax_block) {
    const int64_t blocks = std::max<int64_t>(
        1, device.registers_per_multiprocessor / (kLongSoftmaxRegisters * options.softmax_block));
    again.Add(4 * scores, /*since=*/4 * static_cast<double>(device.multiprocessors * blocks) *
                              static_cast<double>(p.skv));
  }
  again.AddTo(&traffic);
  return traffic;
}

}  // namespace attnlab::baseline
