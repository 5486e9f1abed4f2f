// Timelines from given records; needs no GPU.
#include "profiling/timeline.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace attnlab::profiling {
namespace {

std::pair<uint64_t, Activity> At(uint64_t nanosecond, const std::string& name, double seconds) {
  return {nanosecond, {Activity::Kind::kKernel, name, 0, seconds}};
}

TEST(TimelineTest, InOrderFromTheFirstThatIsWanted) {
  // A late GPU timestamp, at which a double no longer resolves nanoseconds.
  const uint64_t now = 1700000000000000000;
  const absl::StatusOr<std::vector<Activity>> timeline = TimelineFrom(
      {At(now + 3000, "second", 2e-6), At(now, "flush", 1e-6), At(now + 1000, "first", 1e-6)}, 1);
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  ASSERT_EQ(timeline->size(), 2u);
  EXPECT_EQ((*timeline)[0].name, "first");
  EXPECT_EQ((*timeline)[0].begin, 0);
  EXPECT_EQ((*timeline)[1].name, "second");
  EXPECT_DOUBLE_EQ((*timeline)[1].begin, 2e-6);
  EXPECT_DOUBLE_EQ(SpanOf(*timeline), 4e-6);
}

TEST(TimelineTest, NoneAndTooFew) {
  const absl::StatusOr<std::vector<Activity>> none = TimelineFrom({At(5, "flush", 1e-6)}, 1);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->empty());
  EXPECT_EQ(SpanOf(*none), 0);
  EXPECT_EQ(TimelineFrom({At(5, "flush", 1e-6)}, 2).status().code(), absl::StatusCode::kInternal);
}

TEST(TimelineTest, TheLastToEndNeedNotBeTheLastToBegin) {
  const absl::StatusOr<std::vector<Activity>> timeline = TimelineFrom(
      {At(1000, "beside it", 2e-6), At(0, "long", 10e-6), At(4000, "beside it, too", 1e-6)}, 0);
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  EXPECT_DOUBLE_EQ(SpanOf(*timeline), 10e-6);
}

}  // namespace
}  // namespace attnlab::profiling
