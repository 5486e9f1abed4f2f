#include "attention/core/compute_capability.h"

#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace attnlab {
namespace {

// An H200 as it describes itself.
DeviceInfo Hopper(int ordinal = 0) {
  DeviceInfo gpu;
  gpu.device = Device::Cuda(ordinal);
  gpu.name = "NVIDIA H200";
  gpu.memory_bytes = int64_t{141} << 30;
  gpu.compute_capability = 90;
  gpu.multiprocessors = 132;
  gpu.shared_memory_per_block = 227 * 1024;
  gpu.registers_per_multiprocessor = 65536;
  return gpu;
}

std::string Error(absl::string_view value, std::vector<DeviceInfo> gpus = {Hopper()}) {
  const absl::Status s = LimitCapability(value, &gpus);
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << value;
  // An error leaves every GPU unchanged.
  for (const DeviceInfo& gpu : gpus) EXPECT_NE(gpu.shared_memory_per_block, 64 * 1024);
  return std::string(s.message());
}

TEST(ComputeCapabilityTest, LimitsAreThoseOfTheProgrammingGuide) {
  const std::map<int, int64_t> kib = {{75, 64},  {80, 163},  {86, 99}, {89, 99},
                                      {90, 227}, {100, 227}, {120, 99}};
  ASSERT_EQ(SupportedCapabilities().size(), kib.size());
  for (const auto& [capability, expected] : kib) {
    const absl::StatusOr<CapabilityLimits> limits = LimitsOf(capability);
    ASSERT_TRUE(limits.ok()) << capability;
    EXPECT_EQ(limits->compute_capability, capability);
    EXPECT_EQ(limits->shared_memory_per_block, expected * 1024) << capability;
    EXPECT_EQ(limits->threads_per_block, 1024);
  }
  EXPECT_EQ(LimitsOf(70).status().message(),
            "compute capability 70 is not one of 75, 80, 86, 89, 90, 100, 120");
}

TEST(ComputeCapabilityTest, HasANameWithAPoint) {
  EXPECT_EQ(CapabilityName(75), "7.5");
  EXPECT_EQ(CapabilityName(120), "12.0");
}

TEST(ComputeCapabilityTest, LimitsWhatAKernelMayUse) {
  for (const CapabilityLimits& limits : SupportedCapabilities()) {
    if (limits.compute_capability > 90) continue;
    std::vector<DeviceInfo> gpus = {Hopper(0), Hopper(1)};
    ASSERT_TRUE(LimitCapability(std::to_string(limits.compute_capability), &gpus).ok());
    for (const DeviceInfo& gpu : gpus) {
      EXPECT_EQ(gpu.compute_capability, limits.compute_capability);
      EXPECT_EQ(gpu.shared_memory_per_block, limits.shared_memory_per_block);
      EXPECT_EQ(gpu.multiprocessors, 132);
      EXPECT_EQ(gpu.memory_bytes, int64_t{141} << 30);
      EXPECT_EQ(gpu.name, "NVIDIA H200");
    }
  }
}

TEST(ComputeCapabilityTest, NeverGivesMoreThanTheGpuHas) {
  // 12.0 has less shared memory than 9.0.
  DeviceInfo blackwell = Hopper();
  blackwell.compute_capability = 120;
  blackwell.shared_memory_per_block = 99 * 1024;
  std::vector<DeviceInfo> gpus = {blackwell};
  ASSERT_TRUE(LimitCapability("90", &gpus).ok());
  EXPECT_EQ(gpus[0].compute_capability, 90);
  EXPECT_EQ(gpus[0].shared_memory_per_block, 99 * 1024);
}

TEST(ComputeCapabilityTest, NothingIsNoLimit) {
  std::vector<DeviceInfo> gpus = {Hopper()};
  ASSERT_TRUE(LimitCapability("", &gpus).ok());
  EXPECT_EQ(gpus[0].compute_capability, 90);
  EXPECT_EQ(gpus[0].shared_memory_per_block, 227 * 1024);
}

TEST(ComputeCapabilityTest, SaysWhatIsWrong) {
  const std::string one_of = " is not one of 75, 80, 86, 89, 90, 100, 120";
  for (const std::string bad : {"hopper", "9.0", "sm_90", "0", "-75", "+75", " 75", "075", "70",
                                "81", "900", "99999999999999999999"}) {
    EXPECT_EQ(Error(bad), "ATTNLAB_COMPUTE_CAPABILITY: \"" + bad + "\"" + one_of);
  }
  EXPECT_EQ(Error("100"), "ATTNLAB_COMPUTE_CAPABILITY: 100 is above the 90 of cuda:0, NVIDIA H200");
  DeviceInfo older = Hopper(1);
  older.compute_capability = 70;
  older.name = "Tesla V100";
  EXPECT_EQ(Error("75", {Hopper(), older}),
            "ATTNLAB_COMPUTE_CAPABILITY: 75 is above the 70 of cuda:1, Tesla V100");
}

}  // namespace
}  // namespace attnlab
