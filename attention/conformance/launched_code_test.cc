#include "attention/conformance/launched_code.h"

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

namespace attnlab::conformance {
namespace {

// PTX for 7.5 on an H200.
LaunchFacts Good() {
  LaunchFacts facts;
  facts.function = "Softmax";
  facts.code_capability = 75;
  facts.binary_capability = 90;
  facts.gpu_capability = 90;
  facts.shared_bytes = 64 << 10;
  facts.threads = 1024;
  return facts;
}

std::string Fault(const LaunchFacts& facts, int capability = 75) {
  return LaunchFault(facts, *LimitsOf(capability));
}

TEST(LaunchFaultTest, CodeOfTheCapabilityWithinItsLimits) {
  EXPECT_EQ(Fault(Good()), "");
  LaunchFacts native = Good();
  native.code_capability = 90;
  EXPECT_EQ(Fault(native, 90), "");
}

TEST(LaunchFaultTest, OtherCode) {
  LaunchFacts facts = Good();
  facts.code_capability = 90;
  EXPECT_EQ(Fault(facts), "Softmax: code for 9.0, not for 7.5");
  facts.code_capability = 75;
  EXPECT_EQ(Fault(facts, 80), "Softmax: code for 7.5, not for 8.0");
}

TEST(LaunchFaultTest, OtherMachineCode) {
  LaunchFacts facts = Good();
  facts.binary_capability = 75;
  EXPECT_EQ(Fault(facts), "Softmax: machine code for 7.5 from code for 7.5 on a GPU of 9.0");
  facts.gpu_capability = 75;
  EXPECT_EQ(Fault(facts), "");
  facts.binary_capability = 70;
  EXPECT_EQ(Fault(facts), "Softmax: machine code for 7.0 from code for 7.5 on a GPU of 7.5");
}

TEST(LaunchFaultTest, MoreThanABlockHas) {
  LaunchFacts facts = Good();
  facts.shared_bytes = (64 << 10) + 1;
  EXPECT_EQ(Fault(facts), "Softmax: 65537 bytes of shared memory per block, but 7.5 has 65536");
  facts = Good();
  facts.threads = 1025;
  EXPECT_EQ(Fault(facts), "Softmax: 1025 threads per block, but 7.5 has 1024");
}

TEST(WatchLaunchesTest, SaysWhatTheEnvironmentCannotBe) {
  EXPECT_EQ(WatchLaunches(70).code(), absl::StatusCode::kInvalidArgument);
  setenv("ATTNLAB_COMPUTE_CAPABILITY", "hopper", 1);
  EXPECT_EQ(WatchLaunchesByEnvironment().message(),
            "ATTNLAB_COMPUTE_CAPABILITY: \"hopper\" is not a number");
  setenv("ATTNLAB_COMPUTE_CAPABILITY", "70", 1);
  EXPECT_EQ(WatchLaunchesByEnvironment().code(), absl::StatusCode::kInvalidArgument);
  setenv("ATTNLAB_COMPUTE_CAPABILITY", "", 1);
  EXPECT_TRUE(WatchLaunchesByEnvironment().ok());
  unsetenv("ATTNLAB_COMPUTE_CAPABILITY");
  EXPECT_TRUE(WatchLaunchesByEnvironment().ok());
  EXPECT_EQ(TakeLaunchReport().launches, 0);
}

}  // namespace
}  // namespace attnlab::conformance
