// The tiles of the Hopper kernel, one per head dim, and the shared memory that each takes.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_SHAPE_H_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_SHAPE_H_

namespace attnlab::warp_specialized {

// kDim_, kDimV_: the most that d and dv may be. kKeys_: keys per tile. kStages_: tiles of K, and of V,
// in shared memory. kConsumers_: warpgroups that compute, with 64 rows of the query tile each.
template <int kDim_, int kDimV_, int kKeys_, int kStages_, int kConsumers_>
struct HopperShape {
  static constexpr int kDim = kDim_, kDimV = kDimV_;
  static constexpr int kKeys = kKeys_, kStages = kStages_, kConsumers = kConsumers_;
  static constexpr int kRows = 64 * kConsumers;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  // Query tiles that are worked out: the current one, and those of which the producer copies keys ahead.
  static constexpr int kWorks = 4;

  // Consumers keep Q in registers if there are enough. Its place in shared memory is then free for
  // the next query tile as soon as they have read it. If not, small tiles have two places.
  static constexpr bool kKeepsQ = kConsumers == 2 && kDim <= 128;
  static constexpr int kQStages = kConsumers == 3 ? 2 : 1;
  // Whether the products of one query tile run beside the last ones of the tile before.
  static constexpr bool kGoesAcross = kKeepsQ || kQStages == 2;

  // Registers per thread. A block starts with equal shares of 65536 registers, in units of 8 per
  // thread. Warpgroups may only take what others have given.
  static constexpr int kProducerRegisters = kConsumers == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = kConsumers == 3 ? 160 : 232;

  // Blocks of 64 columns; the last may be half empty.
  static constexpr int kBlocks = (kDim + 63) / 64, kBlocksV = (kDimV + 63) / 64;
  static constexpr int kQBytes = kRows * kBlocks * 128;
  static constexpr int kKBytes = kKeys * kBlocks * 128, kVBytes = kKeys * kBlocksV * 128;
  // The rest of HopperShared: the Works and the barriers.
  static constexpr int kSharedBytes = kQStages * kQBytes + kStages * (kKBytes + kVBytes) +
                                      kWorks * 48 + 16 * (kWorks + kQStages + 2 * kStages) + 16;

  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <=
                (kConsumers + 1) * (65536 / kThreads / 8 * 8));
  static_assert(kSharedBytes <= 227 * 1024);
};

// By head dim. In registers, S takes kKeys / 2 per thread, P kKeys / 4, O kDimV / 2, and Q, where it
// is kept, kDim / 4.
using Hopper64 = HopperShape<64, 64, 128, 4, 3>;
using Hopper96 = HopperShape<96, 96, 128, 3, 2>;
using Hopper128 = HopperShape<128, 128, 128, 3, 2>;
using Hopper192v128 = HopperShape<192, 128, 128, 2, 2>;
using Hopper192 = HopperShape<192, 192, 112, 2, 2>;  // 128 keys do not fit shared memory
using Hopper256 = HopperShape<256, 256, 80, 2, 2>;   // nor do 96 here

// Calls f(Hopper64(), Hopper96(), …), with all of them in the order in which they are tried.
template <typename F>
constexpr auto WithHopperShapes(F f) {
  return f(Hopper64(), Hopper96(), Hopper128(), Hopper192v128(), Hopper192(), Hopper256());
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_SHAPE_H_
