#include <memory>
#include <sstream>

#include "attention/core/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/command/command.h"

namespace attnlab::command {
namespace {

using ::testing::HasSubstr;

class Named : public Kernel {
 public:
  Named() { traits_.name = "named"; }
  const KernelTraits& traits() const override { return traits_; }
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(const AttentionProblem&,
                                                          const DeviceInfo&,
                                                          const LaunchConfig&) const override {
    return absl::UnimplementedError("does nothing");
  }

 private:
  KernelTraits traits_;
};

TEST(ListTest, TwoKernelsOfOneNameAreAnErrorInEveryFormat) {
  Registry::Global().Register(std::make_unique<Named>()).IgnoreError();
  Registry::Global().Register(std::make_unique<Named>()).IgnoreError();
  for (const Arguments& arguments : {Arguments{}, Arguments{"--json"}}) {
    std::ostringstream out, err;
    EXPECT_EQ(List(arguments, {out, err}), kUsage);
    EXPECT_THAT(err.str(), HasSubstr("two kernels of this program are named \"named\""));
  }
}

}  // namespace
}  // namespace attnlab::command
