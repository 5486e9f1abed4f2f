// attnlab replay: flags, files, what is reported.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/attnlab_fixture.h"
#include "tools/lib/files.h"
#include "tools/lib/process.h"

namespace attnlab {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ReplayTest : public AttnlabTest {
 protected:
  void Write(const std::string& name, const std::string& rows) const {
    EXPECT_TRUE(
        WriteFile(Path(name), "arrival,context,generated,prefix,prefix_tokens\n" + rows).ok());
  }
  // Exit code 77: there is no Python.
  int ParsesAsXml(const std::string& path) const {
    return RunProcess("/bin/sh",
                      {"-c",
                       "command -v python3 > /dev/null || exit 77; exec python3 -c "
                       "'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' \"$0\"",
                       path})
        .exit_code;
  }
};

// The trace of ASharedPrefix in paged/replay_test.cc.
TEST_F(ReplayTest, ReportsATraceAsJsonCsvTableAndPlot) {
  Write("trace <&\xFF.csv", "1,9,2,a,8\n0,9,2,a,8\n2,4000,1\n");
  const Words words = {"replay",
                       "--trace=" + Path("trace <&\xFF.csv"),
                       "--pages=100",
                       "--page=4",
                       "--step=1",
                       "--layers=2",
                       "--hkv=1",
                       "--d=64",
                       "--dtype=fp16",
                       "--csv=" + Path("r.csv"),
                       "--plot=" + Path("r.svg")};
  Words as_json = words;
  as_json.push_back("--json");
  const ProcessResult r = TestAttnlab(as_json);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.err, HasSubstr("attnlab replay: 1 request can never fit; the first is request 2: "
                               "4001 tokens need 1001 pages, the pool has 100\n"));
  const json report = ParseJson(r.out), row = report["rows"][0];
  EXPECT_EQ(report["command"], "replay");
  EXPECT_EQ(row["done"], 2);
  EXPECT_EQ(row["rejected"], 1);
  EXPECT_EQ(row["steps"], 3);
  EXPECT_EQ(row["prompt_tokens"], 18);
  EXPECT_EQ(row["cached_tokens"], 8);
  EXPECT_EQ(row["longest"], 11);
  EXPECT_EQ(row["token_bytes"], 2 * 2 * 64 * 2);
  EXPECT_EQ(row["most_pages"]["pages_in_use"], 4);
  EXPECT_EQ(row["most_pages"]["bytes"], 4 * 4 * 512);
  EXPECT_EQ(row["most_pages"]["tokens_in_pages"], 13);
  EXPECT_EQ(row["most_pages"]["waste"], 3. / 16);
  EXPECT_EQ(row["most_sequences"]["contiguous_bytes"], 22 * 512);
  for (const char* key : {"swapped", "recomputed", "seconds", "hit_rate", "generated_tokens",
                          "evictions", "copies", "average", "times_more_sequences"}) {
    EXPECT_TRUE(row.contains(key)) << key;
  }
  EXPECT_THAT(*ReadFile(Path("r.csv"), 1 << 20), HasSubstr(",most_pages.bytes,"));

  const std::string svg = *ReadFile(Path("r.svg"), 1 << 20);
  EXPECT_THAT(svg, AllOf(HasSubstr("trace &lt;&amp;\xEF\xBF\xBD.csv: 3 requests</text>"),
                         HasSubstr("prefers-color-scheme"), HasSubstr("time (s)")));
  EXPECT_THAT(ParsesAsXml(Path("r.svg")), AnyOf(0, 77));

  const std::string table = TestAttnlab(words).out;
  EXPECT_THAT(table, AllOf(HasSubstr("| hit rate                 |  44.4 % |\n"),
                           HasSubstr("1.10x as many sequences fit")));
}

TEST_F(ReplayTest, GeneratesRequests) {
  const Words words = {"replay",       "--requests=200",      "--context=1k", "--generated=16..32",
                       "--prefixes=1", "--prefix_tokens=520", "--json"};
  const json row = ParseJson(TestAttnlab(words).out)["rows"][0];
  EXPECT_EQ(row["trace"],
            "200 requests, 10 per s, context 1k, generated 16..32, 1 shared prefix of 520");
  EXPECT_EQ(row["hit_rate"], 199. * 512 / (200 * 1024));
  Words without = words;
  without.push_back("--no-prefix_caching");
  EXPECT_EQ(ParseJson(TestAttnlab(without).out)["rows"][0]["hit_rate"], 0);
}

TEST_F(ReplayTest, BadInputIsExitCode2) {
  const std::string trace = "--trace=" + Path("t.csv");
  const struct {
    Words flags;
    std::string message, row = "0,5,1\n";
  } kCases[] = {
      {{"--trace=" + Path("none")}, "--trace: " + Path("none") + ": cannot open"},
      {{trace}, "t.csv: line 2, context: \"0\" is not an integer in 1..2147483647", "0,0,1\n"},
      {{trace, "--rate=5"}, "--rate goes with requests that are generated"},
      {{trace, "--longest=5"}, "--longest: 5 is less than the 6 tokens"},
      {{trace, "--pages=1"}, "--pages: no request fits", "0,50,1\n"},
      {{trace, "--plot=" + Path("./t.csv")}, "the file of another flag"},
      {{"--context=9..5"}, "--context: \"9..5\" is neither a number of tokens nor a range"},
      {{"--generated=x"}, "--generated: \"x\" is neither"},
      {{"--context=0"}, "--context: 0 is not in [1, 2147483647]"},
      {{"--prefixes=2"}, "--prefixes: 2 and prefix_tokens: 0 go together"},
      {{"--prefixes=2", "--prefix_tokens=600"}, "--prefix_tokens: 600 is not in [0, 512]"},
      {{"--page=0"}, "--page: \"0\" is not an integer in 1..256"},
      {{"--dtype=fp13"}, "--dtype: \"fp13\" is not one of"},
      {{"--plot=-"}, "--plot: - is no name of a file"},
      {{"--plot=" + Path("no/x.svg")}, "--plot: " + Path("no/x.svg")},
      {{"--plot=" + Path("x"), "--json=" + Path("x")}, "--plot: " + Path("x") + " is the file of"},
  };
  for (const auto& c : kCases) {
    Words words = {"replay"};
    words.insert(words.end(), c.flags.begin(), c.flags.end());
    Write("t.csv", c.row);
    const ProcessResult r = TestAttnlab(words);
    EXPECT_EQ(r.exit_code, 2) << c.message << "\n" << r.err;
    EXPECT_THAT(r.err, HasSubstr(c.message));
    EXPECT_THAT(r.out, IsEmpty());
  }
  EXPECT_THAT(Names(), testing::SizeIs(1));
}

TEST_F(ReplayTest, CtrlCPrintsWhatWasReplayed) {
  // --foreground: otherwise the signal comes twice, and a second one ends it at once.
  const ProcessResult r = RunProcess(
      "/bin/sh",
      {"-c",
       "exec timeout --preserve-status --foreground -s INT 6 \"$0\" replay --requests=1000000 "
       "--rate=1000 --pages=1000",
       Runfile("tools/attnlab_with_test_kernels")});
  EXPECT_EQ(r.exit_code, 130) << r.err;
  EXPECT_THAT(r.err, HasSubstr("attnlab replay: interrupted, ending"));
  EXPECT_THAT(r.out + r.err, AnyOf(HasSubstr("| requests done"), HasSubstr("nothing was done")));
}

}  // namespace
}  // namespace attnlab
