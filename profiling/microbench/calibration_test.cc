// Each teaching kernel computes what it should, and its counters are in the expected range. Skipped
// where the driver keeps its counters to administrators.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "profiling/counters.h"
#include "profiling/microbench/measure.h"

namespace attnlab::profiling {
namespace {

class CalibrationTest : public ::testing::TestWithParam<LessonEntry> {
 protected:
  void SetUp() override {
    const absl::Status s = Counters::Open(0, "traffic").status();
    if (absl::IsPermissionDenied(s)) GTEST_SKIP() << s.message();
    ASSERT_TRUE(s.ok()) << s;
  }
};

TEST_P(CalibrationTest, CountsAreAsExpected) {
  const absl::StatusOr<std::vector<MeasuredVariant>> variants = MeasureLesson(GetParam());
  ASSERT_TRUE(variants.ok()) << variants.status();
  EXPECT_GE(variants->size(), 2u);
  for (const MeasuredVariant& variant : *variants) {
    EXPECT_FALSE(variant.measured.empty()) << variant.name;
    EXPECT_GT(variant.seconds, 0) << variant.name;
    for (const Measured& m : variant.measured) {
      EXPECT_TRUE(m.AsExpected()) << variant.name << ": " << m.expectation.counted << " is "
                                  << m.value << ", not " << m.expectation.least << " to "
                                  << m.expectation.most;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lessons, CalibrationTest,
                         ::testing::ValuesIn(Lessons().begin(), Lessons().end()),
                         [](const ::testing::TestParamInfo<LessonEntry>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace attnlab::profiling
