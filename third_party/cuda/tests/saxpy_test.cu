// Needs a GPU: runs a library built by the rules.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "gtest/gtest.h"
#include "third_party/cuda/tests/saxpy.h"

namespace attnlab::cuda_rules_test {
namespace {

TEST(SaxpyTest, Computes) {
  for (const int64_t n : {1, 255, 256, 257, 100003}) {
    std::vector<float> x(n);
    std::vector<float> y(n);
    for (int64_t i = 0; i < n; ++i) {
      x[i] = static_cast<float>(i % 1000);
      y[i] = static_cast<float>(i % 7);
    }
    ASSERT_EQ(Saxpy(n, 2.0f, x.data(), y.data()), cudaSuccess);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(y[i], 2.0f * static_cast<float>(i % 1000) + static_cast<float>(i % 7)) << i;
    }
  }
}

// A target for one compute capability runs its own code on later GPUs as well.
TEST(SaxpyTest, RunsTheCodeOfItsTarget) {
  const char* const wanted = std::getenv("ATTNLAB_COMPUTE_CAPABILITY");
  if (wanted == nullptr) GTEST_SKIP() << "saxpy_test_sm_75 and the like run this";
  EXPECT_EQ(RunningArch(), 10 * std::atoi(wanted));
}

TEST(SaxpyTest, RunsCodeForThisGpuOrPtxBelowIt) {
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  const int arch = RunningArch();
  EXPECT_GE(arch, 750);
  EXPECT_LE(arch, 100 * properties.major + 10 * properties.minor);
}

}  // namespace
}  // namespace attnlab::cuda_rules_test
