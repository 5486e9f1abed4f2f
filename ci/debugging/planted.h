// Attention for one head in fp32, with bugs on purpose: what docs/debugging.md is worked through
// on, and what the sanitizer tests first have to find before a clean report of theirs means
// something.
#ifndef CI_DEBUGGING_PLANTED_H_
#define CI_DEBUGGING_PLANTED_H_

#include <cstdint>

#include "cuda_runtime.h"

namespace attnlab::debugging {

enum class Bug {
  kNone,
  kOutOfBounds,       // the last tile of K is read as if it were whole
  kMisaligned,        // 16 bytes at a time, from rows that begin anywhere
  kUninitialized,     // adds to a sum that nobody set to zero
  kMissingBarrier,    // computes with a tile that other warps are still loading
  kDivergentBarrier,  // __syncthreads() where only some threads come by
  kWarpMask,          // __syncwarp() of lanes that the caller is not one of
  kIndexOverflow,     // a byte offset in 32 bits
  kStaleMaximum,      // exponentials relative to the maximum of the tiles before
};

constexpr int kDim = 64;       // of Q, K, V and O
constexpr int kTile = 32;      // keys a tile: a lane each
constexpr int kThreads = 128;  // a block, which does one row

struct Arguments {
  const float* q;    // [rows][kDim]
  const float* k;    // [keys], rows of kDim that lie k_stride floats apart
  const float* v;    // [keys][kDim]
  float* o;          // [rows][kDim]
  float* workspace;  // [rows]: sums of exponentials
  int64_t rows, keys, k_stride;
  int64_t print_row;  // -1: none; the row that says what it does, with device printf
};

// On the default stream. The error is that of the launch.
cudaError_t Attention(Bug bug, const Arguments& arguments);

}  // namespace attnlab::debugging

#endif  // CI_DEBUGGING_PLANTED_H_
