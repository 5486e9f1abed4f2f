// The shapes of FlashAttention-2's tiles with 3xTF32, and their shared memory.
#ifndef ATTENTION_FA2_TF32_SHAPE_H_
#define ATTENTION_FA2_TF32_SHAPE_H_

namespace attnlab::fa2 {

// What a kernel is compiled for. `HeadDim` is that of Q, K and V, padded with zeros. Elements are
// fp32.
template <int HeadDim, int Warps, int WarpRows, int Keys, int Blocks, int Stages = 2>
struct Tf32Shape {
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kWarps = Warps;
  static constexpr int kThreads = 32 * Warps;
  static constexpr int kWarpRows = WarpRows;  // 16 or 32
  static constexpr int kRows = Warps * WarpRows;
  static constexpr int kKeys = Keys;
  static constexpr int kBlocks = Blocks;  // per multiprocessor, which limits the registers
  static constexpr int kStages = Stages;  // tiles of K, and of V, in shared memory

  // Shared memory: Q and later O; K; V; what each row sees; Kept. Offsets are in bytes.
  static constexpr int kRowBytes = 4 * HeadDim;
  static constexpr int kKvBytes = Keys * kRowBytes;
  static constexpr int kK = kRows * kRowBytes;
  static constexpr int kV = kK + kStages * kKvBytes;
  static constexpr int kVisible = kV + kStages * kKvBytes;
  static constexpr int kKept = kVisible + kRows * 8;
  static constexpr int kKeptBytes = 128;
  static constexpr int kSharedBytes = kKept + kKeptBytes;
};

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TF32_SHAPE_H_
