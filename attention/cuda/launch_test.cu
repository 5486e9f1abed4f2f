// On a GPU: what device::Launch() launches and what its observer sees.
#include <cstdint>
#include <vector>

#include "attention/cuda/launch.h"
#include "cuda_runtime.h"
#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

// Fills dynamic shared memory to its last float and sums it.
__global__ void SumShared(float* sum, int count, float value) {
  extern __shared__ float shared[];
  for (int i = threadIdx.x; i < count; i += blockDim.x) shared[i] = value;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0;
  for (int i = 0; i < count; ++i) total += shared[i];
  *sum = total;
}

// The same with static shared memory of its own.
__global__ void SumBoth(float* sum, int count, float value) {
  extern __shared__ float dynamic[];
  __shared__ float own[4096];
  for (int i = threadIdx.x; i < count; i += blockDim.x) dynamic[i] = value;
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) own[i] = 1;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0;
  for (int i = 0; i < count; ++i) total += dynamic[i] * own[i % 4096];
  *sum = total;
}

__global__ void Nothing() {}

class Recorder : public LaunchObserver {
 public:
  Recorder() : before_(SetLaunchObserver(this)) {}
  ~Recorder() override { SetLaunchObserver(before_); }
  void OnLaunch(const LaunchRecord& record) override { records.push_back(record); }
  std::vector<LaunchRecord> records;

 private:
  LaunchObserver* const before_;
};

TEST(LaunchTest, GivesAsMuchSharedMemoryAsTheDeviceHas) {
  int most = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), cudaSuccess);
  float* sum = nullptr;
  ASSERT_EQ(cudaMalloc(&sum, sizeof(float)), cudaSuccess);
  for (const int bytes : {4, 48 << 10, (48 << 10) + 4, most}) {
    const int count = bytes / 4;
    ASSERT_EQ(Launch(SumShared, 1, 128, bytes, nullptr, sum, count, 0.5f), cudaSuccess) << bytes;
    float got = 0;
    ASSERT_EQ(cudaMemcpy(&got, sum, sizeof(got), cudaMemcpyDeviceToHost), cudaSuccess) << bytes;
    EXPECT_EQ(got, 0.5f * count);
  }
  EXPECT_NE(Launch(SumShared, 1, 128, most + 4, nullptr, sum, 1, 0.5f), cudaSuccess);
  cudaGetLastError();
  // A new context does not have the limits that were set in the old one.
  ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&sum, sizeof(float)), cudaSuccess);
  EXPECT_EQ(Launch(SumShared, 1, 128, most, nullptr, sum, most / 4, 0.5f), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaFree(sum), cudaSuccess);
}

TEST(LaunchTest, WhatAKernelDeclaresIsPartOfItsSharedMemory) {
  float* sum = nullptr;
  ASSERT_EQ(cudaMalloc(&sum, sizeof(float)), cudaSuccess);
  // With its static 16 KiB: 48 KiB, slightly more, and 64 KiB.
  for (const int bytes : {32 << 10, (32 << 10) + 4, 48 << 10}) {
    const int count = bytes / 4;
    ASSERT_EQ(Launch(SumBoth, 1, 128, bytes, nullptr, sum, count, 0.5f), cudaSuccess) << bytes;
    float got = 0;
    ASSERT_EQ(cudaMemcpy(&got, sum, sizeof(got), cudaMemcpyDeviceToHost), cudaSuccess) << bytes;
    EXPECT_EQ(got, 0.5f * count);
  }
  EXPECT_EQ(cudaFree(sum), cudaSuccess);
}

TEST(LaunchTest, TheObserverSeesEachLaunch) {
  const Recorder recorder;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(Launch(Nothing, dim3(3, 2), 96, 16, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  ASSERT_EQ(recorder.records.size(), 1u);
  const LaunchRecord& record = recorder.records[0];
  EXPECT_EQ(record.function, reinterpret_cast<const void*>(Nothing));
  EXPECT_EQ(record.grid.x, 3u);
  EXPECT_EQ(record.grid.y, 2u);
  EXPECT_EQ(record.block.x, 96u);
  EXPECT_EQ(record.shared_bytes, 16u);
  EXPECT_EQ(record.stream, stream);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace attnlab::device
