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

// A tile of rows of kRowChunks chunks, a power of two.
template <int kRowChunks>
struct Swizzle {
  static_assert(kRowChunks > 0 && (kRowChunks & (kRowChunks - 1)) == 0,
                "rows of a power of two of chunks; wider tiles are several of these side by side");

  // The place of the chunk, in chunks from the tile's beginning, which is aligned to 128 bytes.
  ATTNLAB_HOST_DEVICE static constexpr int At(int row, int chunk) {
    // Where a line has several rows these are apart already, and shift together.
    return row * kRowChunks + (chunk ^ (row / kRowsOfALine & kMask));
  }

 private:
  static constexpr int kLineChunks = 8;
  static constexpr int kRowsOfALine = kRowChunks < kLineChunks ? kLineChunks / kRowChunks : 1;
  static constexpr int kMask = (kRowChunks < kLineChunks ? kRowChunks : kLineChunks) - 1;
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_SWIZZLE_H_
