// The tiles of the Hopper kernel, one per head dim, and the shared memory that each takes.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_SHAPE_H_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_SHAPE_H_

namespace attnlab::warp_specialized {

// Of a query tile.
constexpr int kRowsOfAWarp = 16;

// kDim_, kDimV_: the most that d and dv may be. kKeys_: keys per tile. kStages_: tiles of K, and of V,
// in shared memory. kConsumers_: warpgroups that compute, with 64 rows of the query tile each. kBytes_: of
// an element of Q, K and V. kE5m2V_: whether V is fp8_e5m2. kPretransposed_: of fp8, whether a kernel of its own
// has transposed V (hopper_pretranspose.cu).
template <int kDim_, int kDimV_, int kKeys_, int kStages_, int kConsumers_, int kBytes_ = 2,
          bool kE5m2V_ = false, bool kPretransposed_ = false>
struct HopperShape {
  static constexpr bool kE5m2V = kE5m2V_;
  static constexpr int kBytes = kBytes_;
  static constexpr bool kFp8 = kBytes == 1;
  static constexpr bool kPretransposed = kPretransposed_;
  static constexpr bool kTransposes = kFp8 && !kPretransposed;  // blocks do, tile by tile
  static constexpr int kDim = kDim_, kDimV = kDimV_;
  static constexpr int kKeys = kKeys_, kStages = kStages_, kConsumers = kConsumers_;
  static constexpr int kRows = 64 * kConsumers;
  // Of fp8: what a block sets aside of O in the workspace, as bf16. 0: in registers.
  static constexpr int kAsideBytes =
      kFp8 && (kDimV > 128 || kConsumers > 2) ? kRows * kDimV * 2 : 0;
  static constexpr bool kHasSoftcap = !kPretransposed;  // whether there is code for one
  // Whether two blocks may share copies of K and V (PairOf).
  static constexpr bool kPairs = !kE5m2V && kDim >= 128;
  static constexpr int kCluster = 1;  // blocks that do
  // Whether consumers take turns to start their products.
  static constexpr bool kTakesTurns = true;
  // Whether P V of a tile is awaited behind half of the next tile's exponentials, not before: faster at these head dims.
  static constexpr bool kAwaitsLate = !kFp8 && kDim > 64 && kDim <= 128;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  // Query tiles that are worked out: the current one, and those of which the producer copies keys ahead.
  static constexpr int kWorks = 4;

  // Consumers keep Q in registers if there are enough. Its place in shared memory is then free for
  // the next query tile as soon as they have read it. If not, small tiles have two places.
  static constexpr bool kKeepsQ = !kFp8 && kConsumers == 2 && kDim <= 128;
  static constexpr int kQStages = kConsumers == 3 || (kFp8 && kDim <= 128) ? 2 : 1;
  // Whether the products of one query tile run beside the last ones of the tile before.
  static constexpr bool kGoesAcross = kKeepsQ || kQStages == 2;

  // Registers per thread. A block starts with equal shares of 65536 registers, in units of 8 per
  // thread. Warpgroups may only take what others have given.
  static constexpr int kProducerRegisters = kConsumers == 3 ? 32 : kFp8 && kDim > 192 ? 24 : 40;
  static constexpr int kConsumerRegisters = kConsumers == 3 ? 160 : kFp8 && kDim > 192 ? 240 : 232;

  // Blocks of 128 bytes of each row; the last may be partly empty.
  static constexpr int kBlockColumns = 128 / kBytes;
  static constexpr int kBlocks = (kDim + kBlockColumns - 1) / kBlockColumns,
                       kBlocksV = (kDimV + kBlockColumns - 1) / kBlockColumns;
  static constexpr int kQBytes = kRows * kBlocks * 128, kKBytes = kKeys * kBlocks * 128;
  // V as TMA copies it, and as consumers read it: fp8 is transposed in between, block by block
  // (hopper_transpose.cuh). At head dim 256 that leaves room for one more tile of V.
  static constexpr int kCopiedBlocksV = kTransposes ? 1 : kBlocksV,
                       kCopiedVBytes = kKeys * kCopiedBlocksV * 128;
  static constexpr int kVBytes = kFp8 ? kDimV * 128 : kCopiedVBytes;
  static constexpr int kStagesV = kTransposes && kDim > 192 ? kStages + 1 : kStages;
  // O of other keys, to which a query tile is added, comes after the last tile of V as if it were one more. If
  // products do not go across, it takes Q's place, which is free by then.
  static constexpr int kOBytes = kRows * kBlocksV * 128;
  static constexpr bool kAdds = !kFp8 && kOBytes <= (kGoesAcross ? kVBytes : kQBytes);
  // What a block leaves in the workspace of a query tile that it shares: the rows' states and O, in the lanes'
  // order.
  static constexpr int kPartFloats = 4 + kDimV / 2;  // per thread
  static constexpr int kPartBytes = kConsumers * 128 * kPartFloats * 4;
  // Whether a kernel may store O by TMA (StoredByTma), and whether this one does.
  static constexpr bool kHasTmaStores = kTransposes && !kE5m2V && kDimV > 192;
  static constexpr bool kStoresByTma = false;
  static constexpr int kCopiedStages = kTransposes ? 2 : 0;
  static constexpr int kTransposers = kTransposes ? 2 : 0;  // warps
  static constexpr int kScales = kStages + 1;               // places for the scales of a tile
  // The rest of HopperShared: the Works, the barriers, and of fp8 three numbers per 64 keys.
  static constexpr int SharedBytes(int more) {
    return kQStages * kQBytes + kStages * kKBytes + kStagesV * kVBytes +
           kCopiedStages * kCopiedVBytes + kWorks * 64 +
           16 * (kWorks + kQStages + kStages + kStagesV + kCopiedStages) +
           ((kFp8 ? kScales * kKeys * 3 / 16 : 0) + 8 + more + 15) / 16 * 16;
  }
  static constexpr int kSharedBytes = SharedBytes(0);

  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <=
                (kConsumers + 1) * (65536 / kThreads / 8 * 8));
  static_assert(kSharedBytes <= 227 * 1024);
  static_assert(!kPretransposed || kVBytes == kCopiedVBytes, "a tile of V is one box");
  static_assert(!kFp8 || kKeys == 64 || kKeys == 128,
                "a tile begins where a block of scales does, and a row of V has 128 bytes");
};

// A shape of blocks that run in pairs, clusters of two. They have neighbouring query tiles of a head, so they
// need the same K and V, and each copies half of a tile to both.
template <typename Shape>
struct PairOf : Shape {
  static constexpr int kCluster = 2;
  static constexpr bool kTakesTurns = !Shape::kFp8;                     // faster, by measurement
  static constexpr int kSharedBytes = Shape::SharedBytes(/*more=*/24);  // HopperNext
  static_assert(kSharedBytes <= 227 * 1024);
};

// A shape whose consumers store O by TMA, through the stages that had V of the query tile's last two tiles of keys: so
// they need not wait until it is stored. Without turns, a consumer could come to a named barrier once more before the
// other one has left it.
template <typename Shape>
struct StoredByTma : Shape {
  static constexpr bool kStoresByTma = true;
  static_assert(Shape::kConsumers == 2 && Shape::kTakesTurns && Shape::kCluster == 1);
  static_assert(Shape::kStagesV > 2, "of which two are kept");
  static_assert(!Shape::kGoesAcross, "or V of the last tile is read beside the next query tile");
  static_assert(Shape::kRows - 64 < Shape::kKeys, "or a consumer may leave a tile of keys out");
};

// By head dim. In registers, S takes kKeys / 2 per thread, P kKeys / 4, O kDimV / 2, and Q, where it
// is kept, kDim / 4.
using Hopper64 = HopperShape<64, 64, 128, 4, 3>;
using Hopper96 = HopperShape<96, 96, 128, 3, 2>;
using Hopper128 = HopperShape<128, 128, 128, 3, 2>;
using Hopper192v128 = HopperShape<192, 128, 128, 2, 2>;
using Hopper192 = HopperShape<192, 192, 112, 2, 2>;  // 128 keys do not fit shared memory
using Hopper256 = HopperShape<256, 256, 80, 2, 2>;   // nor do 96 here

// fp8. S takes kKeys / 2, P kKeys / 8, O kDimV / 2.
using Fp8Hopper64 = HopperShape<64, 64, 128, 4, 3, 1>;
using Fp8Hopper128 = HopperShape<128, 128, 128, 4, 2, 1>;
using Fp8Hopper192v128 = HopperShape<192, 128, 128, 3, 2, 1>;
using Fp8Hopper256 = HopperShape<256, 256, 128, 2, 2, 1>;

// The same, with V transposed before: there is room for one stage more.
using PretransposedHopper128 = HopperShape<128, 128, 128, 5, 2, 1, false, true>;
using PretransposedHopper256 = HopperShape<256, 256, 128, 3, 2, 1, false, true>;

// The same with V of fp8_e5m2.
using E5m2Hopper64 = HopperShape<64, 64, 128, 4, 3, 1, true>;
using E5m2Hopper128 = HopperShape<128, 128, 128, 4, 2, 1, true>;
using E5m2Hopper192v128 = HopperShape<192, 128, 128, 3, 2, 1, true>;
using E5m2Hopper256 = HopperShape<256, 256, 128, 2, 2, 1, true>;

// Calls f(Hopper64(), Hopper96(), …), with all of them in the order in which they are tried.
template <typename F>
constexpr auto WithHopperShapes(F f) {
  return f(Hopper64(), Hopper96(), Hopper128(), Hopper192v128(), Hopper192(), Hopper256(),
           Fp8Hopper64(), Fp8Hopper128(), Fp8Hopper192v128(), Fp8Hopper256(),
           PretransposedHopper128(), PretransposedHopper256(), E5m2Hopper64(), E5m2Hopper128(),
           E5m2Hopper192v128(), E5m2Hopper256());
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_SHAPE_H_
