// fp32 attention for one head, with planted bugs. docs/debugging.md works through them. The
// sanitizer tests must find them first, because only then does a clean report mean something.
#ifndef CI_DEBUGGING_PLANTED_H_
#define CI_DEBUGGING_PLANTED_H_

#include <cstdint>

#include "cuda_runtime.h"

namespace attnlab::debugging {

enum class Bug {
  kNone,
  kOutOfBounds,       // reads the last tile of K as if it were full
  kMisaligned,        // loads 16 bytes at a time from rows of any alignment
  kUninitialized,     // adds to a sum that was never set to zero
  kMissingBarrier,    // uses a tile that other warps are still loading
  kDivergentBarrier,  // __syncthreads() that only some threads reach
  kWarpMask,          // __syncwarp() with a mask that lacks the caller
  kIndexOverflow,     // computes a byte offset in 32 bits
  kStaleMaximum,      // exponentials relative to the maximum of earlier tiles
};

constexpr int kDim = 64;       // of Q, K, V and O
constexpr int kTile = 32;      // keys per tile, one per lane
constexpr int kThreads = 128;  // per block; a block computes one row

struct Arguments {
  const float* q;    // [rows][kDim]
  const float* k;    // [keys], rows of kDim, k_stride floats apart
  const float* v;    // [keys][kDim]
  float* o;          // [rows][kDim]
  float* workspace;  // [rows]: sums of exponentials
  int64_t rows, keys, k_stride;
  int64_t print_row;  // device printf describes this row; -1: none
};

// Runs on the default stream. The error is that of the launch.
cudaError_t Attention(Bug bug, const Arguments& arguments);

}  // namespace attnlab::debugging

#endif  // CI_DEBUGGING_PLANTED_H_
