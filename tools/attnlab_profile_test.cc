// attnlab profile, as far as it goes without a GPU: flags, metrics of chips, and what it says where
// it cannot count.
#include <fstream>
#include <sstream>
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
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class AttnlabProfileTest : public AttnlabTest {
 protected:
  void SetUp() override {
    const ProcessResult r = Attnlab({"profile", "--list_metrics", "--chip=GH100"});
    if (r.exit_code != 0 && r.err.find("built without CUPTI") != std::string::npos) {
      EXPECT_EQ(r.exit_code, 3);
      const ProcessResult help = Attnlab({"profile", "--help"});
      EXPECT_EQ(help.exit_code, 0);
      EXPECT_THAT(help.out, HasSubstr("--list_metrics"));
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
  EXPECT_THAT(chip.err,
              AllOf(HasSubstr("--chip: GH10 is not one of "), HasSubstr("did you mean GH100?")));
  // A name without counters, which says nothing twice.
  const ProcessResult without = Attnlab({"profile", "--list_metrics", "--chip=GV11B"});
  EXPECT_EQ(without.exit_code, 3);
  EXPECT_THAT(without.err, HasSubstr("--chip: GV11B has no counters"));
  const ProcessResult match =
      Attnlab({"profile", "--list_metrics", "--chip=GH100", "--match=no_such"});
  EXPECT_EQ(match.exit_code, 2);
  EXPECT_THAT(match.err, HasSubstr("no metric of GH100 has \"no_such\" in its name"));
}

TEST_F(AttnlabProfileTest, ListsWhatARunWithTheseFlagsCounts) {
  const ProcessResult r = Attnlab({"profile", "--list_metrics", "--chip=gh100", "--set=traffic",
                                   "--metric=sm__warps_launched.sum", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json list = ParseJson(r.out);
  EXPECT_EQ(list["chip"], "GH100");
  ASSERT_EQ(list["sets"].size(), 1u);
  EXPECT_EQ(list["sets"][0]["set"], "traffic");
  EXPECT_GE(list["sets"][0]["passes"], 1);
  const json& quantities = list["sets"][0]["quantities"];
  EXPECT_EQ(quantities.front()["name"], "hbm_bytes_read");
  EXPECT_EQ(quantities.back()["name"], "sm__warps_launched.sum");
  EXPECT_NE(quantities.back()["meaning"], "");

  const ProcessResult metric = Attnlab({"profile", "--list_metrics", "--chip=GH100", "--set=none",
                                        "--metric=sm__warps_launched.sum"});
  ASSERT_EQ(metric.exit_code, 0) << metric.err;
  EXPECT_THAT(metric.out, AllOf(HasSubstr("| sm__warps_launched.sum |"),
                                HasSubstr("together: 1 pass\n"), Not(HasSubstr("hbm_bytes"))));
}

TEST_F(AttnlabProfileTest, MetricsThatCannotBeListedAreNamed) {
  const struct {
    const char *flag, *says;
    int exit_code;
  } kCases[] = {
      {"--metric=no_such.sum", "--metric: GH100 has no no_such.sum", 2},
      {"--metric=hbm_bytes_read", "--metric: hbm_bytes_read is a quantity of --set=traffic", 2},
      {"--metric=CTC.TriageCompute.ctc__throughput.avg.pct_of_peak_sustained_elapsed",
       "--metric: CUPTI has the name CTC.TriageCompute.ctc__throughput.avg.pct_of", 3},
      {"--set=l3", "--set: l3 is not one of traffic", 2},
      {"--set=none", "--set: none", 2},
      {"--problem=gpt2", "--problem does not go with --list_metrics", 2},
      {"--html=f.html", "--html does not go with --list_metrics", 2},
      {"--match=no_such", "--match: no metric of GH100", 2},
  };
  for (const auto& c : kCases) {
    const ProcessResult r = Attnlab({"profile", "--list_metrics", "--chip=GH100", c.flag});
    EXPECT_EQ(r.exit_code, c.exit_code) << c.flag;
    EXPECT_THAT(r.err, HasSubstr(c.says));
    EXPECT_THAT(r.out, IsEmpty());
  }
}

// As many passes as each metric alone takes: 1 and 2, of one base name.
TEST_F(AttnlabProfileTest, PassesOfABaseNameDifferByWhatIsMadeOfIt) {
  const ProcessResult r =
      Attnlab({"profile", "--list_metrics", "--chip=GH100",
               "--match=sm__sass_thread_inst_executed_op_fp16_pred_on.", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  int several = 0, compared = 0;
  const json list = ParseJson(r.out);
  for (size_t i = 0; i < list["metrics"].size(); i += 5) {
    const json& metric = list["metrics"][i];
    const ProcessResult alone =
        Attnlab({"profile", "--list_metrics", "--chip=GH100", "--set=none", "--json",
                 "--metric=" + metric["metric"].get<std::string>()});
    EXPECT_EQ(ParseJson(alone.out)["sets"][0]["passes"], metric["passes"]) << metric["metric"];
    several += metric["passes"] > 1 ? 1 : 0;
    ++compared;
  }
  EXPECT_GT(several, 0);
  EXPECT_LT(several, compared);
}

TEST_F(AttnlabProfileTest, ListsAsItGoesUntilInterrupted) {
  // In the foreground: otherwise the whole group is sent the signal as well, and a second one ends
  // the process if it comes after the first has been noted.
  const ProcessResult r =
      RunProcess("/usr/bin/timeout", {"--preserve-status", "--foreground", "--signal=INT", "1",
                                      Runfile("tools/attnlab"), "profile", "--list_metrics",
                                      "--chip=GH100", "--match=_"});
  EXPECT_EQ(r.exit_code, 130);
  EXPECT_THAT(r.out, AllOf(StartsWith("| metric "), EndsWith("|\n")));
  EXPECT_THAT(r.err, HasSubstr("interrupted; what was listed by then is printed"));
}

TEST_F(AttnlabProfileTest, MakesTheReportOfAProfile) {
  const std::string from = Path("profile.json"), html = Path("page.html");
  std::ofstream(from) << R"({"command": "profile", "rows": [{"problem": "b=1", "kernel": "fa2"}]})";
  ProcessResult r = Attnlab({"profile", "--from=" + from, "--html=" + html});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  std::stringstream page;
  page << std::ifstream(html).rdbuf();
  EXPECT_THAT(page.str(), AllOf(StartsWith("<!DOCTYPE html>"), HasSubstr("\"fa2\"")));

  r = Attnlab({"profile", "--from=" + from, "--html=" + from});
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_THAT(r.err, HasSubstr("is the file of --from"));
  r = Attnlab({"profile", "--from=" + html, "--html=" + html + "2"});
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_THAT(r.err, HasSubstr("--from: " + html + ": is not JSON"));
}

TEST_F(AttnlabProfileTest, HelpNamesTheSetsThatThereAre) {
  const std::string help = Attnlab({"profile", "--help"}).out;
  const std::string err = Attnlab({"profile", "--set=x"}).err;
  const std::string before = " is not one of ";
  std::string sets = err.substr(err.find(before) + before.size());
  sets = sets.substr(0, sets.find(", none"));
  EXPECT_THAT(help, AllOf(HasSubstr(sets + ", or none"), HasSubstr("Exit codes"),
                          HasSubstr("bench, profile, replay and verify print what they have"),
                          HasSubstr("ATTNLAB_CUPTI")));
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
      {{"profile", "--problem=gpt2", "--device=gpu0"},
       "--device: \"gpu0\" is not one of cuda, cuda:N"},
      {{"profile", "--problem=gpt2", "--ceilings=some"}, "--ceilings: some is not one of"},
      {{"profile", "--problem=gpt2", "--chip=GH100"}, "goes with --list_metrics"},
      {{"profile", "--problem=gpt2", "--kernel=fa2,cpu"}, "--kernel: cpu runs on the CPU"},
      {{"profile", "--problem=gpt2", "--config=threads=2"}, "--config: unknown key \"threads\""},
      {{"profile", "--problem=gpt2", "--html=/no/such/page.html"}, "--html: /no/such/page.html"},
      {{"profile", "--problem=gpt2", "--metric=l2_bytes"}, "is a quantity of --set=l2"},
      {{"profile", "--problem=foo=1"}, "--problem: unknown key \"foo\""},
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
  EXPECT_THAT(r.err, AllOf(HasSubstr("--device: cuda:0: "), HasSubstr("GPU"),
                           HasSubstr("--list_metrics --chip=GH100` needs none"),
                           Not(HasSubstr("--device=cpu"))));
  EXPECT_THAT(r.out, IsEmpty());
  // Metrics are then those of a usual chip.
  const ProcessResult list = Attnlab({"profile", "--list_metrics"});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_THAT(list.err, HasSubstr("of GH100; --chip=NAME has"));
  // Of a GPU that was asked for there are none.
  EXPECT_EQ(Attnlab({"profile", "--list_metrics", "--device=cuda:0"}).exit_code, 3);
  // What these are of is said once there is a list.
  ProcessOptions options;
  options.environment["ATTNLAB_CUPTI"] = "/nowhere/libcupti.so";
  EXPECT_THAT(Attnlab({"profile", "--list_metrics"}, options).err, Not(HasSubstr("these are of")));
}

}  // namespace
}  // namespace attnlab
