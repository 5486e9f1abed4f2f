// Where the 16-byte chunks of a tile lie in shared memory, so that rows and columns of chunks are
// read and written without bank conflicts.
//
// Shared memory has 32 banks of 4 bytes: 8 chunks a line of 128 bytes. Eight threads that access 16
// bytes each do so at once if their chunks are in eight different places of the line. Writing a row
// of a tile, as copies from global memory do, has that by itself; reading the same chunk of eight
// rows, as ldmatrix does, has it only if rows are shifted against each other. So the chunk's number
// is exclusive-ored with the row's, which costs one instruction and no memory.
#ifndef ATTENTION_DEVICE_SWIZZLE_H_
#define ATTENTION_DEVICE_SWIZZLE_H_

#include "attention/device/host_device.h"

namespace attnlab::device {

constexpr int kChunkBytes = 16;

// A tile of rows of kRowChunks chunks.
template <int kRowChunks>
struct Swizzle {
  static_assert(kRowChunks > 0);
  // Chunks move within groups of this many, a power of two that divides a row's.
  static constexpr int kGroup = (kRowChunks & -kRowChunks) < 8 ? (kRowChunks & -kRowChunks) : 8;
  // Rows that follow each other and whose groups do not share places of a line: they shift
  // together.
  static constexpr int kRowsTogether = 8 / kGroup;

  // By what the numbers of a row's chunks are exclusive-ored.
  ATTNLAB_HOST_DEVICE static constexpr int Shift(int row) {
    return row / kRowsTogether & (kGroup - 1);
  }

  // The place of the chunk, in chunks from the tile's beginning, which is aligned to 128 bytes.
  ATTNLAB_HOST_DEVICE static constexpr int At(int row, int chunk) {
    return row * kRowChunks + (chunk ^ Shift(row));
  }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_SWIZZLE_H_
