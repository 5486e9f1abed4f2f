// The shapes of FlashAttention-2's tiles on tensor cores, and their shared memory.
#ifndef ATTENTION_FA2_TENSOR_CORE_SHAPE_H_
#define ATTENTION_FA2_TENSOR_CORE_SHAPE_H_

namespace attnlab::fa2 {

// What a kernel is compiled for. `HeadDim` is that of Q, K and V, padded with zeros. Elements have
// 16 bits.
template <int HeadDim, int Warps, int WarpRows, int Keys, int Blocks, int Stages, int KeptQ = 0,
          bool Pairs = false>
struct TensorCoreShape {
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kWarps = Warps;
  static constexpr int kThreads = 32 * Warps;
  static constexpr int kWarpRows = WarpRows;  // 16 or 32
  // Whether two warps share rows. Of S each warp computes half of a tile's keys, of O half of the
  // columns. Both need all of P, so they exchange it. Without pairs, two warps with half the rows
  // each would both load a fragment of K or V to serve as many rows. O takes no more registers.
  static constexpr bool kPairs = Pairs;
  static_assert(!Pairs || (Warps % 2 == 0 && Warps <= 30), "a named barrier for each pair");
  static constexpr int kSharing = Pairs ? 2 : 1;  // warps that share rows
  static constexpr int kRows = Warps * WarpRows / kSharing;
  static constexpr int kKeys = Keys;
  static constexpr int kBlocks = Blocks;  // per multiprocessor, which limits the registers
  // Tiles of K, and of V, in shared memory. With 2 stages, the next tile is copied while one is
  // worked on. With 1, V is copied while K is multiplied and the other way round, at two barriers
  // per tile.
  static constexpr int kStages = Stages;
  // Fragments of Q, of 16 columns each, that stay in registers. The others are read again for each
  // tile of keys.
  static constexpr int kKeptQ = KeptQ;

  // Shared memory: Q and later O; K; V; what each row sees; Kept; P of pairs. Offsets are in bytes.
  static constexpr int kRowBytes = 2 * HeadDim;
  static constexpr int kKvBytes = Keys * kRowBytes;
  static constexpr int kK = kRows * kRowBytes;
  static constexpr int kV = kK + kStages * kKvBytes;
  static constexpr int kVisible = kV + kStages * kKvBytes;
  static constexpr int kKept = kVisible + kRows * 8;
  static constexpr int kKeptBytes = 128;
  static constexpr int kExchange = kKept + kKeptBytes;
  static constexpr int kWarpExchange = Pairs ? WarpRows * (Keys / 2) * 2 : 0;
  static constexpr int kSharedBytes = kExchange + Warps * kWarpExchange;
};

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TENSOR_CORE_SHAPE_H_
