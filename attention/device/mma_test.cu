// On a GPU: checks that a warp's fragments and products are what mma.cuh says, element by element.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "attention/cuda/code_capability.h"
#include "attention/cuda/launch.h"
#include "attention/cuda/managed_array.h"
#include "attention/device/mma.cuh"
#include "cuda_runtime.h"
#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

constexpr int kRows = 16, kColumns = 8, kK = 16;

// What a lane holds of a matrix, as mma.cuh says.
struct Lane {
  int group, pair;
  __device__ Lane() : group(threadIdx.x / 4), pair(threadIdx.x % 4) {}
  __device__ int Row(int i) const { return group + (i & 1) * 8; }      // of A's register i
  __device__ int Column(int i) const { return 2 * pair + i / 2 * 8; }  // the first of its two
};

// a: [16][16].
template <typename T>
__device__ AFragment LoadA(const float* a) {
  const Lane lane;
  AFragment f;
  for (int i = 0; i < 4; ++i) {
    const float* const pair = a + lane.Row(i) * kK + lane.Column(i);
    f.x[i] = PackPair<T>(pair[0], pair[1]);
  }
  return f;
}

// b: [16][8].
template <typename T>
__device__ BFragment LoadB(const float* b) {
  const Lane lane;
  BFragment f;
  for (int i = 0; i < 2; ++i) {
    const float* const pair = b + (2 * lane.pair + 8 * i) * kColumns + lane.group;
    f.x[i] = PackPair<T>(pair[0], pair[kColumns]);
  }
  return f;
}

// Where element i of the lane's accumulator lies in a [16][8] matrix.
__device__ int AccumulatorPlace(int i) {
  const Lane lane;
  return (lane.group + i / 2 * 8) * kColumns + 2 * lane.pair + i % 2;
}

// d += a b.
template <typename T>
__global__ void Multiply(const float* a, const float* b, float* d) {
  AccumulatorFragment sum;
  for (int i = 0; i < 4; ++i) sum.x[i] = d[AccumulatorPlace(i)];
  Mma<T>(sum, LoadA<T>(a), LoadB<T>(b));
  for (int i = 0; i < 4; ++i) d[AccumulatorPlace(i)] = sum.x[i];
}

// d = (a [b0 b1]) c without memory between the products, as P goes from one product to the next.
template <typename T>
__global__ void MultiplyTwice(const float* a, const float* b0, const float* b1, const float* c,
                              float* d) {
  AccumulatorFragment left = {}, right = {}, result = {};
  Mma<T>(left, LoadA<T>(a), LoadB<T>(b0));
  Mma<T>(right, LoadA<T>(a), LoadB<T>(b1));
  const AFragment p = {PackPair<T>(left.x[0], left.x[1]), PackPair<T>(left.x[2], left.x[3]),
                       PackPair<T>(right.x[0], right.x[1]), PackPair<T>(right.x[2], right.x[3])};
  Mma<T>(result, p, LoadB<T>(c));
  for (int i = 0; i < 4; ++i) d[AccumulatorPlace(i)] = result.x[i];
}

// Row r of the four matrices lies at chunk places[r]. A lane's registers go to out[lane][4].
__global__ void LoadFour(const uint16_t* elements, const int* places, bool transposed,
                         uint32_t* out) {
  __shared__ __align__(16) uint16_t shared[64 * 8];
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 64 * 8; i += 32) shared[i] = elements[i];
  __syncwarp();
  const uint32_t address =
      static_cast<uint32_t>(__cvta_generic_to_shared(shared + places[lane] * 8));
  uint32_t x[4];
  if (transposed) {
    LoadMatricesTransposed(x, address);
  } else {
    LoadMatrices(x, address);
  }
  for (int i = 0; i < 4; ++i) out[4 * lane + i] = x[i];
}

// The inverse: lane l's four registers are in[4 l] to in[4 l + 3], and the chunks go to `out`.
__global__ void StoreFour(const uint32_t* in, const int* places, uint16_t* out) {
  __shared__ __align__(16) uint16_t shared[64 * 8];
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 64 * 8; i += 32) shared[i] = 0xFFFF;
  __syncwarp();
  const uint32_t x[4] = {in[4 * lane], in[4 * lane + 1], in[4 * lane + 2], in[4 * lane + 3]};
  StoreMatrices(static_cast<uint32_t>(__cvta_generic_to_shared(shared + places[lane] * 8)), x);
  __syncwarp();
  for (int i = lane; i < 64 * 8; i += 32) out[i] = shared[i];
}

template <typename T>
__global__ void Pack(const float* low, const float* high, uint32_t* out) {
  out[threadIdx.x] = PackPair<T>(low[threadIdx.x], high[threadIdx.x]);
}

// Small integers, whose products and sums are exact in either type.
void FillWithIntegers(ManagedArray<float>& x, int most, std::mt19937& random) {
  for (float& value : x) {
    value = static_cast<float>(static_cast<int>(random() % (2 * most + 1)) - most);
  }
}

float Product(const float* a, int a_columns, const float* b, int row, int column) {
  float sum = 0;
  for (int k = 0; k < a_columns; ++k) sum += a[row * a_columns + k] * b[k * kColumns + column];
  return sum;
}

template <typename T>
class MmaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int capability = 0;
    ASSERT_EQ(CodeCapability(&capability), cudaSuccess);
    if (std::is_same_v<T, __nv_bfloat16> && capability < 80) {
      GTEST_SKIP() << "tensor cores multiply bf16 from 8.0 on";
    }
  }
};
using Types = ::testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(MmaTest, Types);

TYPED_TEST(MmaTest, AddsAPlainProduct) {
  std::mt19937 random(1);
  ManagedArray<float> a(kRows * kK), b(kK * kColumns), d(kRows * kColumns), before(d.size());
  for (int trial = 0; trial < 10; ++trial) {
    FillWithIntegers(a, 100, random);
    FillWithIntegers(b, 100, random);
    FillWithIntegers(d, 1000, random);
    std::memcpy(before.data(), d.data(), d.size() * sizeof(float));
    ASSERT_EQ(Launch(Multiply<TypeParam>, 1, 32, 0, nullptr, a.data(), b.data(), d.data()),
              cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < kColumns; ++column) {
        const int i = row * kColumns + column;
        EXPECT_EQ(d[i], before[i] + Product(a.data(), kK, b.data(), row, column))
            << "row " << row << ", column " << column;
      }
    }
  }
}

TYPED_TEST(MmaTest, ARowHasNothingOfOtherRows) {
  ManagedArray<float> a(kRows * kK), b(kK * kColumns), d(kRows * kColumns);
  std::mt19937 random(2);
  FillWithIntegers(a, 100, random);
  FillWithIntegers(b, 100, random);
  a[5 * kK + 3] = std::numeric_limits<float>::quiet_NaN();
  for (float& x : d) x = 0;
  ASSERT_EQ(Launch(Multiply<TypeParam>, 1, 32, 0, nullptr, a.data(), b.data(), d.data()),
            cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int i = 0; i < kRows * kColumns; ++i) {
    EXPECT_EQ(std::isnan(d[i]), i / kColumns == 5) << "element " << i;
  }
}

TYPED_TEST(MmaTest, ARoundedAccumulatorIsHalfOfAnA) {
  std::mt19937 random(3);
  ManagedArray<float> a(kRows * kK), b0(kK * kColumns), b1(b0.size()), c(b0.size());
  ManagedArray<float> d(kRows * kColumns);
  FillWithIntegers(a, 3, random);  // sums up to 144, exact in bf16
  FillWithIntegers(b0, 3, random);
  FillWithIntegers(b1, 3, random);
  FillWithIntegers(c, 100, random);
  ASSERT_EQ(Launch(MultiplyTwice<TypeParam>, 1, 32, 0, nullptr, a.data(), b0.data(), b1.data(),
                   c.data(), d.data()),
            cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  float p[kRows * kK];
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      p[row * kK + column] = Product(a.data(), kK, b0.data(), row, column);
      p[row * kK + kColumns + column] = Product(a.data(), kK, b1.data(), row, column);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      EXPECT_EQ(d[row * kColumns + column], Product(p, kK, c.data(), row, column))
          << "row " << row << ", column " << column;
    }
  }
}

TEST(LoadMatricesTest, GiveEachLaneItsPairs) {
  ManagedArray<uint16_t> elements(64 * 8);
  ManagedArray<int> places(32);
  ManagedArray<uint32_t> out(32 * 4);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<uint16_t>(i);
  // Rows may lie anywhere; 37 is coprime to 64.
  for (int row = 0; row < 32; ++row) places[row] = (row * 37 + 11) % 64;
  for (const bool transposed : {false, true}) {
    ASSERT_EQ(
        Launch(LoadFour, 1, 32, 0, nullptr, elements.data(), places.data(), transposed, out.data()),
        cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int lane = 0; lane < 32; ++lane) {
      for (int matrix = 0; matrix < 4; ++matrix) {
        for (int half = 0; half < 2; ++half) {
          int row = lane / 4, column = lane % 4 * 2 + half;
          if (transposed) std::swap(row, column);
          const uint32_t word = out[4 * lane + matrix] >> (16 * half) & 0xFFFF;
          EXPECT_EQ(word, elements[places[8 * matrix + row] * 8 + column])
              << "lane " << lane << ", matrix " << matrix << ", half " << half
              << (transposed ? ", transposed" : "");
        }
      }
    }
  }
}

TEST(StoreMatricesTest, PutEachLanesPairsWhereLoadMatricesFindsThem) {
  ManagedArray<uint32_t> registers(32 * 4);
  ManagedArray<int> places(32);
  ManagedArray<uint16_t> out(64 * 8);
  for (uint32_t i = 0; i < registers.size(); ++i) registers[i] = 2 * i | (2 * i + 1) << 16;
  for (int row = 0; row < 32; ++row) places[row] = (row * 37 + 11) % 64;
  ASSERT_EQ(Launch(StoreFour, 1, 32, 0, nullptr, registers.data(), places.data(), out.data()),
            cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  std::vector<uint16_t> want(64 * 8, 0xFFFF);
  for (int lane = 0; lane < 32; ++lane) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      for (int half = 0; half < 2; ++half) {
        want[places[8 * matrix + lane / 4] * 8 + lane % 4 * 2 + half] =
            static_cast<uint16_t>(2 * (4 * lane + matrix) + half);
      }
    }
  }
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(out[i], want[i]) << "element " << i;
}

struct Rounding {
  float value;
  uint16_t half, bfloat;
};

TEST(PackPairTest, RoundsToNearestAndPutsTheFirstBelow) {
  const float inf = std::numeric_limits<float>::infinity();
  const Rounding kValues[] = {
      {0.0f, 0x0000, 0x0000},
      {-0.0f, 0x8000, 0x8000},
      {1.0f, 0x3C00, 0x3F80},
      {-2.5f, 0xC100, 0xC020},
      {1 + 0x1p-11f, 0x3C00, 0x3F80},     // fp16: a tie, to even
      {1 + 0x3p-11f, 0x3C02, 0x3F80},     // fp16: a tie, to even above
      {1 + 0x1.01p-11f, 0x3C01, 0x3F80},  // just above the tie
      {1 + 0x1p-8f, 0x3C04, 0x3F80},      // bf16: a tie, to even
      {1 + 0x3p-8f, 0x3C0C, 0x3F82},      // bf16: a tie, to even above
      {0x1p-24f, 0x0001, 0x3380},         // fp16's least denormal
      {0x1p-25f, 0x0000, 0x3300},         // half of it, to even
      {65504.0f, 0x7BFF, 0x4780},         // fp16's largest
      {65520.0f, 0x7C00, 0x4780},         // from here on infinity
      {inf, 0x7C00, 0x7F80},
      {-inf, 0xFC00, 0xFF80},
  };
  constexpr int kCount = sizeof(kValues) / sizeof(kValues[0]);
  ManagedArray<float> low(kCount), high(kCount);
  for (int i = 0; i < kCount; ++i) {
    low[i] = kValues[i].value;
    high[i] = kValues[kCount - 1 - i].value;
  }
  ManagedArray<uint32_t> half(kCount), bfloat(kCount);
  ASSERT_EQ(Launch(Pack<__half>, 1, kCount, 0, nullptr, low.data(), high.data(), half.data()),
            cudaSuccess);
  ASSERT_EQ(
      Launch(Pack<__nv_bfloat16>, 1, kCount, 0, nullptr, low.data(), high.data(), bfloat.data()),
      cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int i = 0; i < kCount; ++i) {
    const Rounding &first = kValues[i], &second = kValues[kCount - 1 - i];
    EXPECT_EQ(half[i], first.half | static_cast<uint32_t>(second.half) << 16) << first.value;
    EXPECT_EQ(bfloat[i], first.bfloat | static_cast<uint32_t>(second.bfloat) << 16) << first.value;
  }
}

}  // namespace
}  // namespace attnlab::device
