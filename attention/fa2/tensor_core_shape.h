// The shapes of the tiles of FlashAttention-2 on tensor cores, and the shared memory that each
// takes.
#ifndef ATTENTION_FA2_TENSOR_CORE_SHAPE_H_
#define ATTENTION_FA2_TENSOR_CORE_SHAPE_H_

namespace attnlab::fa2 {

// What a kernel is compiled for. `HeadDim` is that of Q, K and V, padded with zeros; elements have
// 16 bits.
template <int HeadDim, int Warps, int WarpRows, int Keys, int Blocks, int Stages = 2,
          bool KeepQ = false>
struct TensorCoreShape {
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kWarps = Warps;
  static constexpr int kThreads = 32 * Warps;
  static constexpr int kWarpRows = WarpRows;  // 16 or 32
  static constexpr int kRows = Warps * WarpRows;
  static constexpr int kKeys = Keys;
  static constexpr int kBlocks = Blocks;  // a multiprocessor, which bounds the registers
  // Tiles of K, and of V, in shared memory. With 2, the next are copied while one is worked on.
  // With 1, V is copied while K is multiplied and the other way round, at two barriers a tile.
  static constexpr int kStages = Stages;
  // Whether Q's fragments stay in registers, or are read anew for each tile of keys.
  static constexpr bool kKeepQ = KeepQ;

  // Shared memory: Q and later O; K; V; what each row sees. Bytes from its beginning.
  static constexpr int kRowBytes = 2 * HeadDim;
  static constexpr int kKvBytes = Keys * kRowBytes;
  static constexpr int kK = kRows * kRowBytes;
  static constexpr int kV = kK + kStages * kKvBytes;
  static constexpr int kVisible = kV + kStages * kKvBytes;
  static constexpr int kSharedBytes = kVisible + kRows * 8;
};

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TENSOR_CORE_SHAPE_H_
