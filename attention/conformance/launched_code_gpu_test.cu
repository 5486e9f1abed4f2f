// On a GPU: launches are seen, and so are their faults.
#include <cstdlib>
#include <string>

#include "attention/conformance/launched_code.h"
#include "attention/cuda/launch.h"
#include "gtest/gtest.h"

namespace attnlab::conformance {
namespace {

constexpr int kStatic = 1024;

__global__ void Touch(int* out) {
  __shared__ int kept[kStatic / sizeof(int)];
  extern __shared__ int given[];
  kept[threadIdx.x] = *out;
  given[threadIdx.x] = kept[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) *out = given[0] + 1;
}

int Wanted() { return std::atoi(std::getenv("ATTNLAB_COMPUTE_CAPABILITY")); }

class LaunchedCodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaMallocManaged(&value_, sizeof(int)), cudaSuccess);
    *value_ = 41;
    TakeLaunchReport();
  }
  void TearDown() override { cudaFree(value_); }

  cudaError_t Launch(int threads, size_t shared_bytes) {
    if (cudaError_t error = cudaFuncSetAttribute(Touch, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(shared_bytes))) {
      return error;
    }
    if (cudaError_t error = device::Launch(Touch, 1, threads, shared_bytes, nullptr, value_)) {
      return error;
    }
    return cudaDeviceSynchronize();
  }

  int* value_ = nullptr;
};

TEST_F(LaunchedCodeTest, SeesTheCodeOfThisTarget) {
  ASSERT_TRUE(WatchLaunches(Wanted()).ok());
  ASSERT_EQ(Launch(32, 4096), cudaSuccess);
  EXPECT_EQ(*value_, 42);
  const LaunchReport report = TakeLaunchReport();
  EXPECT_EQ(report.launches, 1);
  EXPECT_TRUE(report.faults.empty()) << report.faults[0];
  EXPECT_EQ(TakeLaunchReport().launches, 0);
}

TEST_F(LaunchedCodeTest, SeesOtherCode) {
  const int other = Wanted() == 86 ? 89 : 86;
  ASSERT_TRUE(WatchLaunches(other).ok());
  ASSERT_EQ(Launch(32, 4096), cudaSuccess);
  ASSERT_EQ(Launch(32, 4096), cudaSuccess);
  const LaunchReport report = TakeLaunchReport();
  EXPECT_EQ(report.launches, 2);
  ASSERT_EQ(report.faults.size(), 1);  // reported once
  EXPECT_NE(report.faults[0].find("Touch"), std::string::npos) << report.faults[0];
  EXPECT_NE(report.faults[0].find(": code for " + CapabilityName(Wanted()) + ", not for " +
                                  CapabilityName(other)),
            std::string::npos)
      << report.faults[0];
}

TEST_F(LaunchedCodeTest, SeesStaticAndDynamicSharedMemory) {
  const absl::StatusOr<CapabilityLimits> limits = LimitsOf(Wanted());
  ASSERT_TRUE(limits.ok());
  const int64_t most = limits->shared_memory_per_block - kStatic;
  int of_gpu = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&of_gpu, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0),
            cudaSuccess);
  ASSERT_TRUE(WatchLaunches(Wanted()).ok());
  if (most + kStatic <= of_gpu) {
    EXPECT_EQ(Launch(32, most), cudaSuccess);
    const LaunchReport report = TakeLaunchReport();
    EXPECT_TRUE(report.faults.empty()) << report.faults[0];
  }
  // A launch above the GPU's own limit fails, but is still seen.
  device::Launch(Touch, 1, 32, most + 16, nullptr, value_);
  cudaDeviceSynchronize();
  cudaGetLastError();
  const LaunchReport report = TakeLaunchReport();
  ASSERT_EQ(report.faults.size(), 1);
  EXPECT_NE(report.faults[0].find(std::to_string(limits->shared_memory_per_block + 16) +
                                  " bytes of shared memory per block"),
            std::string::npos)
      << report.faults[0];
}

TEST_F(LaunchedCodeTest, WatchesWhileAGraphIsCaptured) {
  ASSERT_TRUE(WatchLaunches(Wanted()).ok());
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(device::Launch(Touch, 1, 32, 4096, stream, value_), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  const LaunchReport report = TakeLaunchReport();
  EXPECT_EQ(report.launches, 1);
  EXPECT_TRUE(report.faults.empty()) << report.faults[0];
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace attnlab::conformance
