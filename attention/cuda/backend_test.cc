// On a machine with a GPU: host access to devices, memory and time.
#include "attention/cuda/backend.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "attention/core/compute_capability.h"
#include "attention/cuda/machine.h"
#include "attention/cuda/memory.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

TEST(CudaBackendTest, DescribesTheGpu) {
  const absl::StatusOr<std::vector<DeviceInfo>> gpus = CudaInfo();
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_FALSE(gpus->empty());
  const DeviceInfo& gpu = gpus->front();
  EXPECT_EQ(gpu.device, Device::Cuda(0));
  EXPECT_FALSE(gpu.name.empty());
  EXPECT_GE(gpu.compute_capability, 75);
  EXPECT_GT(gpu.multiprocessors, 0);
  EXPECT_GE(gpu.shared_memory_per_block, 48 << 10);
  EXPECT_GE(gpu.registers_per_multiprocessor, 65536);
  EXPECT_GT(gpu.last_level_cache_bytes, 1 << 20);
  EXPECT_GT(gpu.memory_bytes, int64_t{1} << 30);
  ASSERT_TRUE(InfoOf(gpu.device).ok());
  EXPECT_EQ(InfoOf(gpu.device)->name, gpu.name);
}

// gpu_test() sets $ATTNLAB_COMPUTE_CAPABILITY for its targets.
TEST(CudaBackendTest, LooksLikeTheCapabilityOfTheTarget) {
  const char* const value = std::getenv("ATTNLAB_COMPUTE_CAPABILITY");
  if (value == nullptr) GTEST_SKIP() << "not a target of a compute capability";
  const absl::StatusOr<CapabilityLimits> limits = LimitsOf(std::atoi(value));
  ASSERT_TRUE(limits.ok()) << limits.status();
  const absl::StatusOr<DeviceInfo> gpu = InfoOf(Device::Cuda(0));
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  EXPECT_EQ(gpu->compute_capability, limits->compute_capability);
  EXPECT_LE(gpu->shared_memory_per_block, limits->shared_memory_per_block);
  // The GPU's own capability: if our table has it, table and driver must agree.
  const absl::StatusOr<std::vector<DeviceInfo>> physical = cuda_backend::Devices();
  ASSERT_TRUE(physical.ok()) << physical.status();
  const absl::StatusOr<CapabilityLimits> own = LimitsOf(physical->front().compute_capability);
  if (own.ok()) {
    EXPECT_EQ(physical->front().shared_memory_per_block, own->shared_memory_per_block);
  }
}

TEST(CudaBackendTest, AWrongCapabilityIsAnError) {
  const char* const value = std::getenv("ATTNLAB_COMPUTE_CAPABILITY");
  const std::string before = value == nullptr ? "" : value;
  setenv("ATTNLAB_COMPUTE_CAPABILITY", "hopper", 1);
  const absl::Status s = InfoOf(Device::Cuda(0)).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(s.message()).find("ATTNLAB_COMPUTE_CAPABILITY: \"hopper\""),
            std::string::npos)
      << s;
  setenv("ATTNLAB_COMPUTE_CAPABILITY", before.c_str(), 1);
  EXPECT_TRUE(InfoOf(Device::Cuda(0)).ok());
}

// Every plan asks for the GPUs, and the driver can take milliseconds: ask it once per process.
TEST(CudaBackendTest, DescribesTheGpusOnce) {
  ASSERT_TRUE(CudaInfo().ok());
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 10000; ++i) ASSERT_TRUE(InfoOf(Device::Cuda(0)).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(500));
}

TEST(CudaBackendTest, CopiesInAndOut) {
  constexpr int64_t kBytes = 1 << 20;
  absl::StatusOr<Buffer> buffer = Buffer::Allocate(Device::Cuda(0), kBytes);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 256, 0);
  ASSERT_TRUE(buffer->Fill(0xAB).ok());
  std::vector<uint8_t> in(1000), out(kBytes);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i);
  ASSERT_TRUE(buffer->CopyFromHost(in.data(), 1000, 5000).ok());
  ASSERT_TRUE(buffer->CopyToHost(out.data(), kBytes).ok());
  for (int64_t i = 0; i < kBytes; ++i) {
    ASSERT_EQ(out[i], i >= 5000 && i < 6000 ? in[i - 5000] : 0xAB) << i;
  }
  EXPECT_EQ(buffer->CopyFromHost(in.data(), 1000, kBytes - 999).code(),
            absl::StatusCode::kOutOfRange);
}

TEST(CudaBackendTest, TellsWhoseMemoryAnAddressIs) {
  absl::StatusOr<Buffer> buffer = Buffer::Allocate(Device::Cuda(0), 1000);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const auto* inside = static_cast<const char*>(buffer->data()) + 999;
  EXPECT_TRUE(cuda_backend::CheckAddress(0, buffer->data()).ok());
  EXPECT_TRUE(cuda_backend::CheckAddress(0, inside).ok());
  absl::Status s = cuda_backend::CheckAddress(1, inside);
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(s.message()).find("is not memory of cuda:1 but of cuda:0"),
            std::string::npos)
      << s;
  const int on_host = 0;
  EXPECT_TRUE(cuda_backend::CheckHostAddress(&on_host).ok());
  EXPECT_EQ(cuda_backend::CheckHostAddress(inside),
            absl::InvalidArgumentError("on cuda:0, must be in host memory"));
  s = cuda_backend::CheckAddress(0, &on_host);
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(s.message()).find("is not memory of cuda:0 but of the host"),
            std::string::npos)
      << s;
  EXPECT_TRUE(cuda_backend::Synchronize(0).ok());
}

TEST(CudaBackendTest, SaysWhenThereIsNotEnoughMemory) {
  const absl::StatusOr<DeviceInfo> gpu = InfoOf(Device::Cuda(0));
  ASSERT_TRUE(gpu.ok());
  const absl::Status s =
      Buffer::Allocate(Device::Cuda(0), gpu->memory_bytes + (int64_t{1} << 30)).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kResourceExhausted) << s;
  // The failure must not stick to later calls.
  EXPECT_TRUE(Buffer::Allocate(Device::Cuda(0), 1 << 20).ok());
  EXPECT_TRUE(cuda_backend::Synchronize(0).ok());
}

TEST(CudaBackendTest, SaysWhichGpusThereAre) {
  const absl::Status s = InfoOf(Device::Cuda(1000)).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(s.message()).find("device: there is no cuda:1000; this machine has "), 0);
}

TEST(CudaBackendTest, WhatIsAllocatedIsNotFree) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const absl::StatusOr<int64_t> before = FreeMemory(Device::Cuda(0));
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_LE(*before, InfoOf(Device::Cuda(0))->memory_bytes);
  const absl::StatusOr<Buffer> buffer = Buffer::Allocate(Device::Cuda(0), kBytes);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const absl::StatusOr<int64_t> after = FreeMemory(Device::Cuda(0));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_LE(*after, *before - kBytes / 2);  // other processes may have freed some
  EXPECT_FALSE(FreeMemory(Device::Cuda(1000)).ok());
}

TEST(CudaBackendTest, VersionsAreNumbers) {
  const absl::StatusOr<cuda_backend::Versions> versions = cuda_backend::GetVersions();
  ASSERT_TRUE(versions.ok()) << versions.status();
  for (const std::string& version : {versions->cuda_driver, versions->cuda_runtime}) {
    EXPECT_EQ(version.find_first_not_of("0123456789."), std::string::npos) << version;
    EXPECT_GE(std::stod(version), 11) << version;
  }
  EXPECT_EQ(versions->driver.find_first_not_of("0123456789."), std::string::npos)
      << versions->driver;
}

TEST(CudaBackendTest, TimesWorkOnTheGpu) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  absl::StatusOr<Buffer> buffer = Buffer::Allocate(Device::Cuda(0), kBytes);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  absl::StatusOr<cuda_backend::Timer> made = cuda_backend::Timer::Create(0);
  ASSERT_TRUE(made.ok()) << made.status();
  cuda_backend::Timer timer = *std::move(made);
  const auto seconds = [&](int fills) -> double {
    EXPECT_TRUE(timer.Start(nullptr).ok());
    for (int i = 0; i < fills; ++i) EXPECT_TRUE(buffer->Fill(1).ok());
    const absl::StatusOr<double> s = timer.StopSeconds(nullptr);
    EXPECT_TRUE(s.ok()) << s.status();
    return s.ok() ? *s : 0;
  };
  seconds(1);
  const double one = seconds(1), ten = seconds(10);
  EXPECT_GT(one, 1e-5);  // 1 GiB: no memory reaches 100 TB/s
  EXPECT_LT(one, 1);
  EXPECT_GT(ten, 3 * one);
}

}  // namespace
}  // namespace attnlab
