// The layout of a tile's 16-byte chunks in shared memory. Rows of chunks and columns of chunks are
// both read and written without bank conflicts.
//
// Shared memory has 32 banks of 4 bytes: a line of 128 bytes is 8 chunks. Eight threads access 16
// bytes each in one pass if their chunks have eight different places in the line. Copies from
// global memory write a row of a tile, which satisfies that by itself. ldmatrix reads the same
// chunk of eight rows, which satisfies it only if rows are shifted against each other. So the
// chunk's number is XORed with the row's. That costs one instruction and no memory.
#ifndef ATTENTION_DEVICE_SWIZZLE_H_
#define ATTENTION_DEVICE_SWIZZLE_H_

#include "attention/device/host_device.h"

namespace attnlab::device {

constexpr int kChunkBytes = 16;

// A tile of rows of kRowChunks chunks.
template <int kRowChunks>
struct Swizzle {
  static_assert(kRowChunks > 0);
  // Chunks move within groups of this many: a power of two, at most 8, that divides kRowChunks.
  static constexpr int kGroup = (kRowChunks & -kRowChunks) < 8 ? (kRowChunks & -kRowChunks) : 8;
  // Consecutive rows that together fill a line. Their groups have different places in it, so they
  // shift together.
  static constexpr int kRowsTogether = 8 / kGroup;

  // What the chunk numbers of a row are XORed with.
  ATTNLAB_HOST_DEVICE static constexpr int Shift(int row) {
    return row / kRowsTogether & (kGroup - 1);
  }

  // The place of a chunk, in chunks from the tile's beginning, which is aligned to 128 bytes.
  ATTNLAB_HOST_DEVICE static constexpr int At(int row, int chunk) {
    return row * kRowChunks + (chunk ^ Shift(row));
  }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_SWIZZLE_H_
