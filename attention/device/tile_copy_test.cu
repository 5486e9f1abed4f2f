// On a GPU: where TileCopy puts chunks, byte by byte, and that it touches nothing else.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "attention/cuda/launch.h"
#include "attention/cuda/managed_array.h"
#include "attention/device/cp_async.cuh"
#include "attention/device/swizzle.h"
#include "attention/device/thread_index.cuh"
#include "attention/device/tile_copy.cuh"
#include "cuda_fp16.h"
#include "cuda_runtime.h"
#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

constexpr int kFence = 256;  // bytes of shared memory on both sides of the tile
constexpr uint8_t kUntouched = 0xA5;

// A tile as kernels copy it.
template <typename Element, int Dim, int Rows = 64, int Threads = 128>
struct Tile {
  using T = Element;
  static constexpr int kDim = Dim, kRows = Rows, kThreads = Threads;
  using Copy = TileCopy<T, Rows, Dim, Threads>;
};

// Copies one tile to fenced shared memory, all of which goes to `out`.
template <class Tile>
__global__ void CopyTile(const typename Tile::T* from, int64_t stride, int rows, int dim,
                         bool whole_chunks, bool whole_tile, uint8_t* out) {
  using TheCopy = typename Tile::Copy;
  constexpr int kThreads = Tile::kThreads;
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr int kBytes = TheCopy::kBytes + 2 * kFence;
  for (int i = static_cast<int>(threadIdx.x); i < kBytes; i += kThreads) shared[i] = kUntouched;
  __syncthreads();
  char* const tile = reinterpret_cast<char*>(shared) + kFence;
  if (whole_tile) {
    TheCopy::CopyWhole(tile, from + TheCopy::Offset(stride), stride, ThreadIndex());
  } else {
    TheCopy::Copy(tile, rows, dim, whole_chunks, [&](int row) { return from + row * stride; });
  }
  CopyAsyncCommit();
  CopyAsyncWait<0>();
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kBytes; i += kThreads) out[i] = shared[i];
}

template <class Tile>
class TileCopyTest : public ::testing::Test {
 protected:
  using T = typename Tile::T;
  static constexpr int kDim = Tile::kDim, kRows = Tile::kRows;
  static constexpr int kElement = static_cast<int>(sizeof(T));
  using Word = std::conditional_t<kElement == 2, uint16_t, uint32_t>;

  // Rows of `dim` elements, `stride` apart, the first `offset` elements after a multiple of 256
  // bytes. The memory ends with the last element.
  void Check(int rows, int dim, int64_t stride, int offset, bool whole_chunks, bool whole_tile) {
    SCOPED_TRACE(::testing::Message()
                 << rows << " rows of " << dim << ", stride " << stride << ", offset " << offset
                 << (whole_chunks ? ", in chunks" : "") << (whole_tile ? ", whole" : ""));
    // Even a tile without rows needs a valid address.
    ManagedArray<Word> source(offset + std::max(0, rows - 1) * stride + dim);
    // No zeros, not even in the gaps between rows: elements that should become zero show.
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<Word>(i % 65521 + 1);
    constexpr int kBytes = Tile::Copy::kBytes + 2 * kFence;
    ManagedArray<uint8_t> out(kBytes);
    ASSERT_EQ(Launch(CopyTile<Tile>, 1, Tile::kThreads, kBytes, nullptr,
                     reinterpret_cast<const T*>(source.data() + offset), stride, rows, dim,
                     whole_chunks, whole_tile, out.data()),
              cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

    std::vector<uint8_t> expected(kBytes, kUntouched);
    constexpr int kChunkElements = kChunkBytes / kElement;
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < kDim; ++column) {
        const Word word = row < rows && column < dim ? source[offset + row * stride + column] : 0;
        const int chunk = Swizzle<kDim / kChunkElements>::At(row, column / kChunkElements);
        std::memcpy(&expected[kFence + chunk * kChunkBytes + column % kChunkElements * kElement],
                    &word, sizeof(word));
      }
    }
    const auto wrong = std::mismatch(expected.begin(), expected.end(), out.begin());
    EXPECT_TRUE(wrong.first == expected.end())
        << "byte " << wrong.first - expected.begin() - kFence << " of the tile";
  }
};

using Tiles = ::testing::Types<
    Tile<__half, 32>, Tile<__half, 64>, Tile<__half, 96>, Tile<__half, 128>, Tile<__half, 192>,
    Tile<__half, 256>, Tile<float, 32>, Tile<float, 64>, Tile<float, 96>,
    // 32 rows, and blocks of two warps.
    Tile<__half, 32, 32, 64>, Tile<__half, 64, 32, 128>, Tile<__half, 96, 32, 64>,
    Tile<__half, 192, 32, 128>, Tile<__half, 256, 32, 64>, Tile<__half, 256, 32, 128>,
    Tile<float, 32, 32, 64>, Tile<float, 96, 32, 128>, Tile<float, 128, 32, 128>,
    Tile<float, 192, 32, 64>, Tile<float, 256, 32, 64>,
    // A single warp.
    Tile<__half, 64, 64, 32>, Tile<__half, 96, 32, 32>, Tile<__half, 128, 32, 32>,
    Tile<__half, 256, 16, 32>,
    // The fewest and the most rows.
    Tile<float, 192, 16>, Tile<float, 256, 16>, Tile<__half, 32, 128>, Tile<__half, 128, 128>>;
TYPED_TEST_SUITE(TileCopyTest, Tiles);

TYPED_TEST(TileCopyTest, WholeTilesLieAsTheSwizzleSays) {
  constexpr int kDim = TestFixture::kDim, kRows = TestFixture::kRows;
  this->Check(kRows, kDim, kDim, 0, true, true);
  this->Check(kRows, kDim, kDim + 8, 8, true, true);
  this->Check(kRows, kDim, 0, 0, true, true);  // all rows are the same
}

TYPED_TEST(TileCopyTest, WhatIsNotThereIsZero) {
  constexpr int kDim = TestFixture::kDim, kRows = TestFixture::kRows;
  for (const int rows : {0, 1, kRows / 2 - 1, kRows - 1, kRows}) {
    for (const int dim : {8, kDim - 8, kDim}) {
      this->Check(rows, dim, dim, 0, true, false);
      this->Check(rows, dim, dim + 24, 8, true, false);
    }
  }
}

TYPED_TEST(TileCopyTest, RowsMayBeginAnywhere) {
  constexpr int kDim = TestFixture::kDim, kRows = TestFixture::kRows;
  for (const int rows : {0, 1, kRows / 2 - 1, kRows}) {
    for (const int dim : {1, 7, 8, kDim - 3, kDim}) {
      for (const int offset : {0, 1, 5}) {
        this->Check(rows, dim, dim, offset, false, false);
        this->Check(rows, dim, dim + 3, offset, false, false);
      }
    }
  }
}

}  // namespace
}  // namespace attnlab::device
