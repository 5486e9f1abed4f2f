// attnlab profile on two GPUs: what each of them computed and got, and when.
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/attnlab_fixture.h"
#include "tools/lib/files.h"
#include "tools/lib/process.h"

namespace attnlab {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

using AttnlabProfileGpusTest = AttnlabTest;

TEST_F(AttnlabProfileGpusTest, ShowsTheTimelineOfEach) {
  const ProcessResult r = Attnlab({"profile", "--gpus=2", "--parallel=zigzag",
                                   "--problem=hq=4,sq=8192,d=128,dtype=bf16,mask=causal",
                                   "--trace=" + Path("trace.json")});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("| copies alone ms |"));
  const absl::StatusOr<std::string> trace = ReadFile(Path("trace.json"), 1 << 24);
  ASSERT_TRUE(trace.ok()) << trace.status();
  const json events = ParseJson(*trace)["traceEvents"];
  std::set<int> compute, copy;
  for (const json& event : events) {
    if (event["ph"] != "X") continue;
    EXPECT_GT(event["dur"], 0) << event;
    const bool is_attention =
        event["args"]["name"].get<std::string>().find("Hopper") != std::string::npos;
    (is_attention ? compute : copy).insert(event["pid"].get<int>());
  }
  EXPECT_THAT(compute, UnorderedElementsAre(0, 1));
  EXPECT_THAT(copy, UnorderedElementsAre(0, 1));
}

}  // namespace
}  // namespace attnlab
