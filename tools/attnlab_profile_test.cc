// attnlab profile, as far as it goes without a GPU: flags, metrics of chips, and what it says where
// it cannot count.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/attnlab_fixture.h"

namespace attnlab {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AttnlabProfileTest : public AttnlabTest {
 protected:
  void SetUp() override {
    const ProcessResult r = Attnlab({"profile", "--list_metrics", "--chip=GH100"});
    if (r.exit_code != 0 && r.err.find("without a CUDA toolkit") != std::string::npos) {
      EXPECT_EQ(r.exit_code, 3);
      GTEST_SKIP() << r.err;
    }
    ASSERT_EQ(r.exit_code, 0) << r.err;
  }
};

TEST_F(AttnlabProfileTest, ListsMetricsWithoutAGpu) {
  const ProcessResult r = Attnlab({"profile", "--list_metrics", "--chip=GH100"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.err, IsEmpty());
  EXPECT_THAT(r.out,
              AllOf(HasSubstr("| hbm_bytes_read "), HasSubstr("| dram__bytes_read.sum "),
                    HasSubstr("traffic: 1 pass\n"), HasSubstr("compute: "), HasSubstr("all: ")));
}

TEST_F(AttnlabProfileTest, ListsMetricsAsJson) {
  for (const char* chip : {"GH100", "GA100", "AD102", "GB100"}) {
    const ProcessResult r =
        Attnlab({"profile", "--list_metrics", std::string("--chip=") + chip, "--json"});
    ASSERT_EQ(r.exit_code, 0) << r.err;
    const json list = ParseJson(r.out);
    EXPECT_EQ(list["chip"], chip);
    ASSERT_EQ(list["sets"].size(), 5u);
    EXPECT_EQ(list["sets"][0]["set"], "traffic");
    EXPECT_EQ(list["sets"][0]["passes"], 1);
    EXPECT_EQ(list["sets"][0]["quantities"][0]["name"], "hbm_bytes_read");
    EXPECT_EQ(list["sets"][0]["quantities"][0]["metrics"][0], "dram__bytes_read.sum");
    for (const json& set : list["sets"]) EXPECT_GE(set["passes"], 1) << set["set"];
  }
}

TEST_F(AttnlabProfileTest, ListsAllMetricsOfAName) {
  const ProcessResult r = Attnlab(
      {"profile", "--list_metrics", "--chip=GH100", "--match=dram__bytes_read.sum", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  std::vector<std::string> names;
  const json list = ParseJson(r.out);
  for (const json& metric : list["metrics"]) {
    names.push_back(metric["metric"]);
    EXPECT_EQ(metric["passes"], 1);
  }
  EXPECT_THAT(names,
              AllOf(Contains("dram__bytes_read.sum"), Contains("dram__bytes_read.sum.per_second")));
}

TEST_F(AttnlabProfileTest, SaysWhatThereIsInPlaceOfWhatThereIsNot) {
  const ProcessResult chip = Attnlab({"profile", "--list_metrics", "--chip=GH10"});
  EXPECT_EQ(chip.exit_code, 2);
  EXPECT_THAT(chip.err, AllOf(HasSubstr("chip: GH10 is not one of "), HasSubstr("GH100")));
  const ProcessResult match =
      Attnlab({"profile", "--list_metrics", "--chip=GH100", "--match=no_such"});
  EXPECT_EQ(match.exit_code, 2);
  EXPECT_THAT(match.err, HasSubstr("no metric of GH100 has \"no_such\" in its name"));
}

TEST_F(AttnlabProfileTest, WithoutALibraryItSaysWhereOneWouldBe) {
  ProcessOptions options;
  options.environment["ATTNLAB_CUPTI"] = "/nowhere/libcupti.so";
  const ProcessResult r = Attnlab({"profile", "--list_metrics", "--chip=GH100"}, options);
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_THAT(r.err, AllOf(HasSubstr("/nowhere/libcupti.so"), HasSubstr("CUDA_HOME"),
                           HasSubstr("ATTNLAB_CUPTI")));
}

TEST_F(AttnlabProfileTest, FlagsThatMakeNoSense) {
  const struct {
    Words words;
    const char* says;
  } kCases[] = {
      {{"profile", "--problem=gpt2", "--device=cpu"}, "--device: cpu has no counters"},
      {{"profile", "--problem=gpt2", "--device=gpu0"}, "gpu0"},
      {{"profile", "--problem=gpt2", "--ceilings=some"}, "--ceilings: some is not one of"},
      {{"profile", "--problem=gpt2", "--chip=GH100"}, "go with --list_metrics"},
      {{"profile", "--problem=gpt2", "--repetitions=0"}, "--repetitions"},
      {{"profile", "--problem=gpt2", "--set=trafic"}, "--set: trafic is not one of traffic, l2"},
      {{"profile", "--problem=gpt3"}, "gpt3"},
      {{"profile", "--problem=gpt2", "--kernel=fa9"}, "fa9"},
      {{"profile"}, "--problem: none is given"},
  };
  for (const auto& c : kCases) {
    const ProcessResult r = Attnlab(c.words);
    EXPECT_EQ(r.exit_code, 2) << c.says;
    EXPECT_THAT(r.err, HasSubstr(c.says));
    EXPECT_THAT(r.out, IsEmpty());
  }
}

TEST_F(AttnlabProfileTest, WithoutAGpuItSaysSo) {
  if (!HasNoGpu()) GTEST_SKIP() << "there is a GPU";
  const ProcessResult r = Attnlab({"profile", "--problem=gpt2", "--kernel=all"});
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_THAT(r.err, HasSubstr("GPU"));
  EXPECT_THAT(r.out, IsEmpty());
  // Metrics are then those of a usual chip.
  const ProcessResult list = Attnlab({"profile", "--list_metrics"});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_THAT(list.err, HasSubstr("of GH100; --chip=NAME has"));
}

}  // namespace
}  // namespace attnlab
