// On a GPU: checks that the parts of fp32 numbers, and their products, are what mma_tf32.cuh says.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>

#include "attention/cuda/code_capability.h"
#include "attention/cuda/launch.h"
#include "attention/cuda/managed_array.h"
#include "attention/device/mma.cuh"
#include "attention/device/mma_tf32.cuh"
#include "cuda_runtime.h"
#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

constexpr int kRows = 16, kColumns = 8, kK = 8;

__global__ void Split(const float* x, float* big, float* small) {
  const int i = static_cast<int>(threadIdx.x);
  uint32_t parts[2];
  SplitTf32(__float_as_uint(x[i]), parts[0], parts[1]);
  big[i] = __uint_as_float(parts[0]);
  small[i] = __uint_as_float(parts[1]);
}

// a: [16][8], b: [8][8].
__device__ SplitA LoadA(const float* a) {
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  SplitA f;
  for (int i = 0; i < 4; ++i) f.Set(i, __float_as_uint(a[(g + i % 2 * 8) * kK + t + i / 2 * 4]));
  return f;
}
// Row k of the product's B is row order(k) of b.
template <typename Order>
__device__ SplitB LoadB(const float* b, const Order& order) {
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  SplitB f;
  for (int i = 0; i < 2; ++i) f.Set(i, __float_as_uint(b[order(t + 4 * i) * kColumns + g]));
  return f;
}
__device__ int AccumulatorPlace(int i) {
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  return (g + i / 2 * 8) * kColumns + 2 * t + i % 2;
}

__device__ void Multiply(const SplitA& a, const SplitB& b, AccumulatorFragment& d) {
  const SplitA rows[1] = {a};
  const SplitB columns[1] = {b};
  const auto sum = [&](int, int) -> auto& { return d; };
  MmaSplit(rows, columns, sum, sum);
}

// d += a b.
__global__ void MultiplyOnce(const float* a, const float* b, float* d) {
  AccumulatorFragment sum;
  for (int i = 0; i < 4; ++i) sum.x[i] = d[AccumulatorPlace(i)];
  Multiply(LoadA(a), LoadB(b, [](int k) { return k; }), sum);
  for (int i = 0; i < 4; ++i) d[AccumulatorPlace(i)] = sum.x[i];
}

// d = (a b) c without memory between the products, as P goes from one product to the next.
__global__ void MultiplyTwice(const float* a, const float* b, const float* c, float* d) {
  AccumulatorFragment p = {}, sum = {};
  Multiply(LoadA(a), LoadB(b, [](int k) { return k; }), p);
  SplitA rows;
  for (int i = 0; i < 4; ++i) rows.Set(i % 2 * 2 + i / 2, __float_as_uint(p.x[i]));
  Multiply(rows, LoadB(c, [](int k) { return k % 4 * 2 + k / 4; }), sum);
  for (int i = 0; i < 4; ++i) d[AccumulatorPlace(i)] = sum.x[i];
}

TEST(SplitTf32Test, PartsAddUpAndBigIsTf32) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float values[32] = {0.0f,      -0.0f, 1.0f, -1.0f, 1 + 0x1p-10f, 1 + 0x1p-23f,
                      0x1p-100f, 1e30f, inf,  -inf,  nan,          3.1415927f};
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int i = 12; i < 32; ++i) values[i] = normal(random);
  ManagedArray<float> x(32), big(32), small(32);
  std::memcpy(x.data(), values, sizeof(values));
  ASSERT_EQ(Launch(Split, 1, 32, 0, nullptr, x.data(), big.data(), small.data()), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int i = 0; i < 32; ++i) {
    if (!std::isfinite(x[i])) {
      EXPECT_TRUE(std::isnan(small[i])) << x[i];
      continue;
    }
    uint32_t bits;
    std::memcpy(&bits, &big[i], sizeof(bits));
    EXPECT_EQ(bits & 0x1FFF, 0u) << x[i];
    EXPECT_EQ(big[i] + small[i], x[i]);
    EXPECT_LE(std::abs(small[i]), std::abs(x[i]) * 0x1p-11f);
  }
}

class MmaSplitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int capability = 0;
    ASSERT_EQ(CodeCapability(&capability), cudaSuccess);
    if (capability < 80) GTEST_SKIP() << "tensor cores multiply TF32 from 8.0 on";
  }
};

// Errors are those of fp32, not the 2^-11 of TF32.
TEST_F(MmaSplitTest, IsNearlyAsGoodAsFp32) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  ManagedArray<float> a(kRows * kK), b(kK * kColumns), d(kRows * kColumns);
  for (int trial = 0; trial < 10; ++trial) {
    for (float& x : a) x = normal(random);
    for (float& x : b) x = normal(random);
    for (float& x : d) x = 0;
    ASSERT_EQ(Launch(MultiplyOnce, 1, 32, 0, nullptr, a.data(), b.data(), d.data()), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int i = 0; i < kRows * kColumns; ++i) {
      double sum = 0, size = 0;
      for (int k = 0; k < kK; ++k) {
        const double product = double{a[i / kColumns * kK + k]} * b[k * kColumns + i % kColumns];
        sum += product;
        size += std::abs(product);
      }
      EXPECT_NEAR(d[i], sum, size * 0x1p-20) << "element " << i;
    }
  }
}

TEST_F(MmaSplitTest, AnAccumulatorIsAnAInAnotherOrder) {
  std::mt19937 random(3);
  const auto integer = [&] { return static_cast<float>(static_cast<int>(random() % 201) - 100); };
  ManagedArray<float> a(kRows * kK), b(kK * kColumns), c(kK * kColumns), d(kRows * kColumns);
  for (float& x : a) x = integer();
  for (float& x : b) x = integer() / 16;
  for (float& x : c) x = std::round(integer() / 16);
  ASSERT_EQ(Launch(MultiplyTwice, 1, 32, 0, nullptr, a.data(), b.data(), c.data(), d.data()),
            cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int i = 0; i < kRows * kColumns; ++i) {
    double sum = 0;
    for (int k = 0; k < kK; ++k) {
      double p = 0;
      for (int j = 0; j < kK; ++j) {
        p += double{a[i / kColumns * kK + j]} * b[j * kColumns + k];
      }
      sum += p * c[k * kColumns + i % kColumns];
    }
    // All factors have few bits, so every sum is exact.
    EXPECT_EQ(d[i], sum) << "element " << i;
  }
}

TEST_F(MmaSplitTest, ARowHasNothingOfOtherRows) {
  ManagedArray<float> a(kRows * kK), b(kK * kColumns), d(kRows * kColumns);
  for (float& x : a) x = 1;
  for (float& x : b) x = 2;
  for (float& x : d) x = 0;
  a[5 * kK + 3] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_EQ(Launch(MultiplyOnce, 1, 32, 0, nullptr, a.data(), b.data(), d.data()), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int i = 0; i < kRows * kColumns; ++i) {
    EXPECT_EQ(std::isnan(d[i]), i / kColumns == 5) << "element " << i;
  }
}

}  // namespace
}  // namespace attnlab::device
