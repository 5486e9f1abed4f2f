#include "tools/command/timeline_table.h"

#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::command {
namespace {

using profiling::Activity;
using ::testing::HasSubstr;

// GPU 0 computes from 0 to 10 and 11 to 12 ms, and receives from 2 to 5. GPU 1 receives from 1 to 9 and computes from
// 4 to 8.
std::vector<Activity> TwoGpus() {
  const auto kKernel = Activity::Kind::kKernel, kCopy = Activity::Kind::kCopy;
  return {{kKernel, "void a::Forward<64>(float*)", 0, 10e-3, 0, 7},
          {kCopy, "memcpy from GPU 0", 1e-3, 8e-3, 1, 14},
          {kCopy, "memcpy from GPU 1", 2e-3, 3e-3, 0, 13},
          {kKernel, "void a::Forward<64>(float*)", 4e-3, 4e-3, 1, 7},
          {kKernel, "Merge", 11e-3, 1e-3, 0, 7}};
}

TEST(TimelineTableTest, SaysWhatIsHidden) {
  const auto times = GpuTimes(TwoGpus());
  ASSERT_EQ(times.size(), 2);
  EXPECT_NEAR(times.at(0).kernels, 11e-3, 1e-12);
  EXPECT_NEAR(times.at(0).copies, 3e-3, 1e-12);
  EXPECT_NEAR(times.at(0).exposed, 0, 1e-12);
  EXPECT_NEAR(times.at(0).nothing, 1e-3, 1e-12);
  EXPECT_NEAR(times.at(1).exposed, 4e-3, 1e-12);
  EXPECT_NEAR(times.at(1).nothing, 4e-3, 1e-12);
  EXPECT_TRUE(GpuTimes({}).empty());
}

TEST(TimelineTableTest, PrintsAndTraces) {
  std::ostringstream out, err;
  PrintTimeline(TwoGpus(), {out, err});
  EXPECT_THAT(out.str(), HasSubstr("|   1 |     1000 |  8000 |     14 | memcpy from GPU 0 |"));
  EXPECT_THAT(out.str(), HasSubstr("| Forward"));
  EXPECT_THAT(out.str(),
              HasSubstr("|   1 |       4.00 |      8.00 |            4.00 |       4.00 |"));
  const Json trace = TraceOf(TwoGpus());
  ASSERT_EQ(trace["traceEvents"].size(), 7);
  EXPECT_EQ(trace["traceEvents"][0]["args"]["name"], "GPU 0");
  EXPECT_EQ(trace["traceEvents"][3]["pid"], 1);
  EXPECT_DOUBLE_EQ(trace["traceEvents"][3]["dur"].get<double>(), 8000);
}

}  // namespace
}  // namespace attnlab::command
