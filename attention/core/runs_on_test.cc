#include "attention/core/runs_on.h"

#include <string>
#include <vector>

#include "attention/cuda/machine.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

KernelTraits CudaKernel(std::vector<int> built) {
  KernelTraits traits;
  traits.name = "fa2";
  traits.device = DeviceKind::kCuda;
  traits.compute_capabilities = std::move(built);
  return traits;
}

DeviceInfo Gpu(int compute_capability) {
  DeviceInfo gpu;
  gpu.device = Device::Cuda(1);
  gpu.compute_capability = compute_capability;
  return gpu;
}

TEST(RunsOnTest, FromTheLeastCapabilityOn) {
  for (const std::vector<int>& built : {std::vector<int>{80, 90}, std::vector<int>{90, 80}}) {
    for (const int capability : {80, 86, 89, 90, 100, 103, 120}) {
      EXPECT_TRUE(RunsOn(CudaKernel(built), Gpu(capability)).ok()) << capability;
    }
    const absl::Status s = RunsOn(CudaKernel(built), Gpu(75));
    EXPECT_EQ(s.code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(s.message(), "runs on GPUs of compute capability 8.0 or later, not on cuda:1 of 7.5");
  }
}

TEST(RunsOnTest, NoListIsAnyGpu) { EXPECT_TRUE(RunsOn(CudaKernel({}), Gpu(75)).ok()); }

TEST(RunsOnTest, NotOnTheOtherKindOfDevice) {
  const absl::Status on_cpu = RunsOn(CudaKernel({75}), CpuInfo());
  EXPECT_EQ(on_cpu.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(on_cpu.message(), "runs on CUDA devices, not on cpu");
  KernelTraits cpu;
  EXPECT_TRUE(RunsOn(cpu, CpuInfo()).ok());
  EXPECT_EQ(RunsOn(cpu, Gpu(90)).message(), "runs on the CPU, not on cuda:1");
}

}  // namespace
}  // namespace attnlab
