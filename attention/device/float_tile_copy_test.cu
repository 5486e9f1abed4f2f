// On a GPU: where FloatTileCopy puts elements, at once and in parts, and that it touches nothing
// else.
#include <cstdint>
#include <type_traits>
#include <vector>

#include "attention/cuda/code_capability.h"
#include "attention/cuda/launch.h"
#include "attention/cuda/managed_array.h"
#include "attention/device/arguments.h"
#include "attention/device/float_tile_copy.cuh"
#include "cuda_bf16.h"
#include "cuda_runtime.h"
#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

constexpr int kFence = 64;  // floats of shared memory on both sides of the tile
constexpr float kUntouched = -1;

// A tile as kernels copy it.
template <typename Element, int Rows, int Columns, bool Transposes, int Threads, int MostStaged>
struct Tile {
  using T = Element;
  static constexpr int kRows = Rows, kColumns = Columns, kThreads = Threads;
  static constexpr bool kTransposes = Transposes;
  // As in cuda_core_shape.h: rows of transposed tiles are padded.
  static constexpr int kStride = Transposes ? Rows + 4 : Columns;
  static constexpr int kFloats = Transposes ? Columns * kStride : Rows * kStride;
  using Layout = std::conditional_t<Transposes, Transposed<kStride>, RowMajor<kStride>>;
  using Copy = FloatTileCopy<T, Rows, Columns, Layout, Threads, MostStaged>;
};

// Copies to fenced shared memory, all of which goes to `out`. `parts`: -1 copies the whole tile at
// once; otherwise, how many parts of the rest begin before its Finish().
template <class Tile>
__global__ void CopyTile(const Rows rows, int count, int columns, int parts, float* out) {
  extern __shared__ float4 shared_fours[];
  float* const shared = reinterpret_cast<float*>(shared_fours);
  constexpr int kAll = Tile::kFloats + 2 * kFence;
  for (int i = static_cast<int>(threadIdx.x); i < kAll; i += Tile::kThreads) shared[i] = kUntouched;
  __syncthreads();
  float* const tile = shared + kFence;
  const auto* const from = static_cast<const typename Tile::T*>(rows.data);
  typename Tile::Copy copy;
  if (parts < 0) {
    copy.Begin(tile, rows, from, count, columns);
  } else {
    auto rest = copy.BeginPart(tile, rows, from, count, columns);
    for (int i = 0; i < parts; ++i) rest.Next();
    rest.Finish();
  }
  copy.Finish(tile, rows, from, count, columns);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kAll; i += Tile::kThreads) out[i] = shared[i];
}

template <class Tile>
class FloatTileCopyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int capability = 0;
    ASSERT_EQ(CodeCapability(&capability), cudaSuccess);
    if (capability == 75 && kSharedBytes > 64 << 10) {
      GTEST_SKIP() << kSharedBytes << " bytes of shared memory per block, but 7.5 has 65536";
    }
  }

  using T = typename Tile::T;
  static constexpr int kRows = Tile::kRows, kColumns = Tile::kColumns;
  static constexpr int kAll = Tile::kFloats + 2 * kFence;
  static constexpr int kSharedBytes = kAll * static_cast<int>(sizeof(float));

  // The memory ends with the last element.
  void Check(int count, int columns, int64_t stride, int offset, bool whole_chunks, int parts) {
    SCOPED_TRACE(::testing::Message()
                 << count << " rows of " << columns << ", stride " << stride << ", offset "
                 << offset << (whole_chunks ? ", in chunks" : "") << ", parts " << parts);
    const int there = count < kRows ? count : kRows;
    ManagedArray<T> source(offset + (there - 1) * stride + columns);
    // Integers that bf16 represents exactly: none is zero, and neighbours differ.
    const auto value = [](int64_t i) { return static_cast<float>(i % 251 + 1); };
    for (size_t i = 0; i < source.size(); ++i) source[i] = T(value(static_cast<int64_t>(i)));
    ManagedArray<float> out(kAll);
    Rows rows;
    rows.data = source.data() + offset;
    rows.token_stride = stride;
    rows.whole_chunks = whole_chunks;
    ASSERT_EQ(Launch(CopyTile<Tile>, 1, Tile::kThreads, kSharedBytes, nullptr, rows, count, columns,
                     parts, out.data()),
              cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

    std::vector<float> expected(kAll, kUntouched);
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < kColumns; ++column) {
        expected[kFence + row * Tile::Layout::kRow + column * Tile::Layout::kColumn] =
            row < count && column < columns ? value(offset + row * stride + column) : 0;
      }
    }
    for (int i = 0; i < kAll; ++i) {
      ASSERT_EQ(out[i], expected[i]) << "float " << i - kFence << " of the tile";
    }
  }
};

using Tiles = ::testing::Types<
    // K and V of large tiles, head dims 32, 64, 192 and 256.
    Tile<float, 64, 32, true, 128, 0>, Tile<float, 64, 64, false, 256, 0>,
    Tile<float, 48, 192, true, 256, 0>, Tile<float, 64, 256, true, 256, 0>,
    Tile<float, 64, 256, false, 256, 0>,
    // K or V of a small tile.
    Tile<float, 16, 256, true, 64, 8>, Tile<float, 16, 256, false, 64, 8>,
    // 16-bit elements, which are converted, staged in registers and not.
    Tile<__nv_bfloat16, 64, 64, true, 256, 5>, Tile<__nv_bfloat16, 64, 64, false, 256, 5>,
    Tile<__nv_bfloat16, 48, 192, true, 256, 0>, Tile<__nv_bfloat16, 48, 192, false, 256, 0>>;
TYPED_TEST_SUITE(FloatTileCopyTest, Tiles);

TYPED_TEST(FloatTileCopyTest, WholeTilesAtOnceAndInParts) {
  constexpr int kRows = TestFixture::kRows, kColumns = TestFixture::kColumns;
  for (const int parts : {-1, 0, 1, 3, 100}) {
    this->Check(kRows, kColumns, kColumns, 0, true, parts);
    this->Check(kRows + 9, kColumns, kColumns + 24, 8, true, parts);
  }
}

TYPED_TEST(FloatTileCopyTest, WhatIsNotThereIsZero) {
  constexpr int kRows = TestFixture::kRows, kColumns = TestFixture::kColumns;
  for (const int parts : {-1, 1}) {
    for (const int count : {1, kRows / 2 - 1, kRows - 1, kRows}) {
      for (const int columns : {8, kColumns - 8, kColumns}) {
        this->Check(count, columns, columns, 0, true, parts);
        this->Check(count, columns, columns + 24, 8, true, parts);
      }
    }
  }
}

TYPED_TEST(FloatTileCopyTest, ElementByElement) {
  constexpr int kRows = TestFixture::kRows, kColumns = TestFixture::kColumns;
  for (const int parts : {-1, 1}) {
    for (const int count : {1, kRows - 1, kRows}) {
      for (const int columns : {1, kColumns - 3, kColumns}) {
        this->Check(count, columns, columns + 1, 3, false, parts);
      }
    }
  }
}

}  // namespace
}  // namespace attnlab::device
