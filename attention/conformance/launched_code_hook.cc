// Linked into a GoogleTest program. With $ATTNLAB_COMPUTE_CAPABILITY set, the program fails for
// each launch of other code, and for each that needs more than a GPU of that capability has.
#include "attention/conformance/launched_code.h"
#include "gtest/gtest.h"

namespace attnlab::conformance {
namespace {

class LaunchedCode : public ::testing::Environment {
 public:
  void SetUp() override {
    const absl::Status s = WatchLaunchesByEnvironment();
    EXPECT_TRUE(s.ok()) << s;
  }
  void TearDown() override {
    for (const std::string& fault : TakeLaunchReport().faults) ADD_FAILURE() << fault;
  }
};

const ::testing::Environment* const kHook = ::testing::AddGlobalTestEnvironment(new LaunchedCode);

}  // namespace
}  // namespace attnlab::conformance
