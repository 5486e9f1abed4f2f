#include "attention/cuda/machine.h"

#include <cstring>
#include <string>

#include "attention/cuda/cpu_cache.h"
#include "attention/cuda/memory.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

TEST(DeviceTest, ParsesWhatItPrints) {
  for (const Device& device : {Device::Cpu(), Device::Cuda(0), Device::Cuda(7)}) {
    ASSERT_TRUE(ParseDevice(ToString(device)).ok());
    EXPECT_EQ(*ParseDevice(ToString(device)), device);
  }
  EXPECT_EQ(*ParseDevice("cuda"), Device::Cuda(0));
  for (const std::string bad : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda: 1",
                                "cuda:01", "cuda:99999999999", "CPU"}) {
    EXPECT_EQ(ParseDevice(bad).status().message(),
              "device: \"" + bad + "\" is not one of cpu, cuda, cuda:N");
  }
}

TEST(CpuInfoTest, DescribesThisProcessor) {
  const DeviceInfo info = CpuInfo();
  EXPECT_GE(info.threads, 1);
  EXPECT_GT(info.memory_bytes, 0);
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.compute_capability, 0);
  // Linux's description of the caches takes precedence over the C library's.
  const int64_t cache = LastLevelCacheBytes(kCpuCacheDirectory);
  if (cache > 0) {
    EXPECT_EQ(info.last_level_cache_bytes, cache);
  }
}

TEST(CudaInfoTest, SaysWhyThereIsNoSuchDevice) {
  const absl::StatusOr<DeviceInfo> info = InfoOf(Device::Cuda(1000));
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.status().code(),
            CudaInfo().ok() ? absl::StatusCode::kNotFound : CudaInfo().status().code());
  EXPECT_EQ(std::string(info.status().message()).find("device: "), 0);
}

TEST(BufferTest, CopiesInAndOut) {
  absl::StatusOr<Buffer> buffer = Buffer::Allocate(Device::Cpu(), 10);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kMemoryAlignment, 0);
  EXPECT_TRUE(buffer->Fill(0xAB).ok());
  EXPECT_TRUE(buffer->CopyFromHost("xyz", 3, 7).ok());
  char back[11] = {};
  EXPECT_TRUE(buffer->CopyToHost(back, 10).ok());
  EXPECT_EQ(std::string(back), "\xAB\xAB\xAB\xAB\xAB\xAB\xABxyz");
  EXPECT_EQ(buffer->CopyFromHost("xyz", 3, 8).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(buffer->CopyToHost(back, INT64_MAX, 1).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(buffer->CopyToHost(back, 1, -1).code(), absl::StatusCode::kOutOfRange);
  Buffer moved = *std::move(buffer);
  EXPECT_EQ(moved.bytes(), 10);
}

TEST(FreeMemoryTest, IsSomeOfWhatTheMachineHas) {
  const absl::StatusOr<int64_t> bytes = FreeMemory(Device::Cpu());
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_GT(*bytes, 1 << 20);
  EXPECT_LE(*bytes, CpuInfo().memory_bytes);
  EXPECT_FALSE(FreeMemory(Device::Cuda(1000)).ok());
}

TEST(BufferTest, RejectsSizesThatCannotBe) {
  EXPECT_EQ(Buffer::Allocate(Device::Cpu(), -1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Buffer::Allocate(Device::Cpu(), INT64_MAX).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Buffer::Allocate(Device::Cpu(), INT64_MAX / 2).status().code(),
            absl::StatusCode::kResourceExhausted);
  absl::StatusOr<Buffer> empty = Buffer::Allocate(Device::Cpu(), 0);
  ASSERT_TRUE(empty.ok());
  EXPECT_NE(empty->data(), nullptr);
}

}  // namespace
}  // namespace attnlab
