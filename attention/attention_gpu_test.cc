// On a GPU: for which kernels MakePlan() plans. The conformance suite checks what kernels compute
// there.
#include <memory>
#include <string>

#include "attention/attention.h"
#include "attention/core/compute_capability.h"
#include "attention/core/kernel.h"
#include "attention/core/registry.h"
#include "attention/cuda/machine.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

// Supports every problem. It is planned, but never run.
class BuiltFor : public Kernel {
 public:
  BuiltFor(const std::string& name, int capability, int preference) {
    traits_.name = name;
    traits_.device = DeviceKind::kCuda;
    traits_.compute_capabilities = {capability};
    traits_.preference = preference;
  }
  const KernelTraits& traits() const override { return traits_; }
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(const AttentionProblem&,
                                                          const DeviceInfo&,
                                                          const LaunchConfig&) const override {
    return PreparedAs(/*workspace_bytes=*/0, [](const AttentionTensors&, const Launch&) {
      return absl::InternalError("is not for running");
    });
  }

 private:
  KernelTraits traits_;
};

class Turing : public BuiltFor {
 public:
  Turing() : BuiltFor("turing", 75, 1) {}
};
class OfTheFuture : public BuiltFor {
 public:
  OfTheFuture() : BuiltFor("future", 990, 100) {}
};
ATTNLAB_REGISTER_KERNEL(Turing);
ATTNLAB_REGISTER_KERNEL(OfTheFuture);

TEST(MakePlanTest, AKernelRunsOnLaterGpusAndNotOnEarlierOnes) {
  const absl::StatusOr<AttentionProblem> problem =
      AttentionProblem::Parse("b=1,hq=1,sq=16,d=64,dtype=fp16,mask=none");
  ASSERT_TRUE(problem.ok()) << problem.status();
  const absl::StatusOr<DeviceInfo> gpu = InfoOf(Device::Cuda(0));
  ASSERT_TRUE(gpu.ok()) << gpu.status();

  const absl::StatusOr<Plan> named = MakePlan(*problem, Device::Cuda(0), "turing");
  EXPECT_TRUE(named.ok()) << named.status();

  const std::string reason =
      "future: runs on GPUs of compute capability 99.0 or later, not on cuda:0 of " +
      CapabilityName(gpu->compute_capability);
  const absl::Status declined = MakePlan(*problem, Device::Cuda(0), "future").status();
  EXPECT_EQ(declined.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(declined.message(), reason);

  // Preferred, but not built for this GPU.
  const absl::StatusOr<Plan> chosen = MakePlan(*problem, Device::Cuda(0));
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->kernel->traits().name, "turing");
}

}  // namespace
}  // namespace attnlab
