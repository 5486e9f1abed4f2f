// Runs everywhere: C++ code links a CUDA library and the static runtime. On a machine without a GPU
// or a driver, it gets an error from them and does not crash.
#include <cuda_runtime_api.h>

#include "gtest/gtest.h"
#include "third_party/cuda/tests/saxpy.h"

namespace attnlab::cuda_rules_test {
namespace {

TEST(NoGpuTest, ComputesOrReturnsAnError) {
  int devices = 0;
  const bool have_gpu = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
  const float x = 3.0f;
  float y = 1.0f;
  const int error = Saxpy(1, 2.0f, &x, &y);
  if (have_gpu) {
    EXPECT_EQ(error, cudaSuccess);
    EXPECT_EQ(y, 7.0f);
  } else {
    EXPECT_NE(error, cudaSuccess);
    EXPECT_EQ(y, 1.0f);
    EXPECT_LT(RunningArch(), 0);
  }
}

}  // namespace
}  // namespace attnlab::cuda_rules_test
