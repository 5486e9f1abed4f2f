// attnlab verify: kernels against the oracle.
#include <algorithm>
#include <chrono>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/attnlab_fixture.h"

namespace attnlab {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(AttnlabTest, VerifyPassesOnEveryLinkedKernel) {
  const ProcessResult r = Attnlab({"verify", "--json"});
  EXPECT_EQ(r.exit_code, 0) << r.out;
  const json rows = ParseJson(r.out)["rows"];
  EXPECT_GE(rows.size(), 9u);
  for (const json& row : rows) {
    if (row["verdict"] == "skipped") continue;
    EXPECT_EQ(row["verdict"], "ok");
    EXPECT_LE(row["error"], row["bound"]);
    EXPECT_LE(row["lse_error"], row["lse_bound"]);
    EXPECT_GT(row["rows_checked"], 0);
    EXPECT_FALSE(row["machine"]["name"].get<std::string>().empty());
  }
}

TEST_F(AttnlabTest, VerifiesPages) {
  const ProcessResult r =
      Attnlab({"verify", "--kernel=cpu,reference", "--layout=bhsd", "--json",
               "--problem=b=2,hq=4,hkv=2,sq=1/9,skv=70,d=32,lens=packed,page=1/16/128",
               "--problem=hq=4,sq=9,skv=70,d=32,dtype=fp16,kvdtype=fp8_e4m3,mask=causal,page=16"});
  EXPECT_EQ(r.exit_code, 0) << r.out;
  const json rows = ParseJson(r.out)["rows"];
  EXPECT_EQ(rows.size(), 14u);
  for (const json& row : rows) EXPECT_EQ(row["verdict"], "ok") << row;
  // A layout without room for pages.
  const ProcessResult qkv = Attnlab({"verify", "--problem=hq=2,sq=9,d=8,page=2", "--layout=qkv"});
  EXPECT_EQ(qkv.exit_code, 2);
}

TEST_F(AttnlabTest, AWrongKernelIsExitCode1AndAWayToSeeItAgain) {
  const Words problem = {"--problem=hq=2,sq=16,d=8,dtype=fp32", "--seed=3"};
  for (const char* kernel : {"wrong", "failing"}) {
    const ProcessResult r = TestAttnlab(
        {"verify", absl::StrCat("--kernel=", kernel), problem[0], problem[1], "--device=cpu"});
    EXPECT_EQ(r.exit_code, 1) << kernel;
    EXPECT_THAT(r.out, HasSubstr("1 wrong"));
  }
  const ProcessResult r = TestAttnlab({"verify", "--kernel=wrong", problem[0], problem[1]});
  EXPECT_THAT(r.out,
              AllOf(StartsWith("b=1,hq=2,hkv=2,sq=16"), HasSubstr("| WRONG"),
                    HasSubstr("verify --kernel=wrong --problem=b=1,"), HasSubstr("--seed=3")));
}

TEST_F(AttnlabTest, WhatAKernelDoesNotDoIsSkippedNotPassed) {
  const ProcessResult r = TestAttnlab(
      {"verify", "--kernel=picky", "--problem=hq=1,sq=4,d=64/32,dtype=fp16/fp32", "--json"});
  EXPECT_EQ(r.exit_code, 0);
  const json rows = ParseJson(r.out)["rows"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["verdict"], "ok");
  for (int i = 1; i < 4; ++i) EXPECT_EQ(rows[i]["verdict"], "skipped");
  EXPECT_EQ(rows[1]["message"], "picky: dtype: is not fp16");
  const ProcessResult none =
      TestAttnlab({"verify", "--kernel=picky", "--problem=hq=1,sq=4,d=32,dtype=fp16"});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.out, HasSubstr("0 ok, 0 wrong, 1 skipped\n"
                                  "skipped 1: picky: d: is neither 64 nor 128"));
}

TEST_F(AttnlabTest, VerifyAsCsv) {
  const ProcessResult r =
      Attnlab({"verify", "--kernel=reference", "--problem=hq=1,sq=1..4,d=8", "--csv"});
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_THAT(r.out, StartsWith("problem,kernel,config,machine.device,"));
  EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 4);
}

TEST_F(AttnlabTest, ConfigurationsAreRowsOfTheirOwn) {
  const json rows =
      ParseJson(TestAttnlab({"verify", "--kernel=picky,reference", "--config=tile_q=16",
                             "--config=tile_q=8", "--json", "--problem=hq=1,sq=4,d=64,dtype=fp16"})
                    .out)["rows"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["config"], "tile_q=16");
  EXPECT_EQ(rows[0]["verdict"], "ok");
  EXPECT_EQ(rows[1]["config"], "tile_q=8");
  EXPECT_EQ(rows[2]["verdict"], "skipped");
  EXPECT_THAT(rows[2]["message"].get<std::string>(), HasSubstr("unknown key \"tile_q\""));
}

// Beside one that is verified, too.
TEST_F(AttnlabTest, AConfigurationThatNoKernelTakesIsExitCode2) {
  const ProcessResult r = Attnlab({"verify", "--kernel=cpu,reference", "--config=tile_q=999999",
                                   "--config=tile_q=16", "--problem=hq=1,sq=4,d=64,dtype=fp16"});
  EXPECT_EQ(r.exit_code, 2) << r.out;
  EXPECT_THAT(r.out, HasSubstr("1 ok, 0 wrong, 3 skipped"));
  EXPECT_THAT(r.err, HasSubstr("cpu: config: tile_q: \"999999\" is not an integer in 1..4096"));
}

TEST_F(AttnlabTest, CtrlCPrintsWhatIsVerified) {
  const Words words = {"verify", "--kernel=reference,ctrl_c", "--json"};
  const ProcessResult some = TestAttnlab(
      {words[0], words[1], words[2], "--problem=hq=1,sq=16/130/8,d=8,dtype=fp32,lens=padded"});
  EXPECT_EQ(some.exit_code, 130) << some.err;
  EXPECT_THAT(some.err, HasSubstr("attnlab verify: interrupted; what was done by then is printed"));
  // Not the two of sq=8, nor the row in which it was pressed.
  EXPECT_EQ(ParseJson(some.out)["rows"].size(), 3u);
}

// The call would take minutes.
TEST_F(AttnlabTest, CtrlCEndsALongCall) {
  const std::string problem =
      "--problem=hq=512,hkv=1,sq=130,skv=65536,d=128,dtype=fp32,lens=padded";
  for (const char* subcommand : {"verify", "run"}) {
    const auto start = std::chrono::steady_clock::now();
    const ProcessResult r = TestAttnlab({subcommand, "--kernel=ctrl_c", "--device=cpu", problem});
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(r.exit_code, 130) << r.err;
    EXPECT_EQ(r.out, "");
    EXPECT_THAT(r.err, AllOf(HasSubstr(": interrupted, ending; Ctrl-C again ends it at once"),
                             HasSubstr("interrupted; nothing was done by then")));
    EXPECT_LT(seconds.count(), 20);
  }
}

TEST_F(AttnlabTest, VerifyAccuracyComparesDtypes) {
  const ProcessResult r =
      Attnlab({"verify", "--accuracy", "--problem=hq=1,sq=65,d=16/32", "--json"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const json rows = ParseJson(r.out)["rows"];
  ASSERT_EQ(rows.size(), 20u);
  EXPECT_EQ(rows[0]["numbers"], "fp16");
  EXPECT_LT(rows[0]["rmse"], rows[9]["rmse"]);
  const ProcessResult table = Attnlab({"verify", "--accuracy", "--problem=hq=1,sq=9,d=16"});
  EXPECT_THAT(table.out, HasSubstr("| fp8, a scale per 64 rows, Hadamard  | cpu "));
  EXPECT_EQ(Attnlab({"verify", "--accuracy", "--device=x", "--problem=hq=1,sq=9,d=16"}).exit_code,
            2);
  const ProcessResult other = Attnlab({"verify", "--accuracy", "--values=normal"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("attnlab verify: --values is not for --accuracy"));
  // Each table has all dtypes.
  const ProcessResult once =
      Attnlab({"verify", "--accuracy", "--problem=hq=1,sq=9,d=16,dtype=fp16/bf16", "--json"});
  EXPECT_EQ(ParseJson(once.out)["rows"].size(), 10u);
  EXPECT_EQ(ParseJson(once.out)["rows"][0]["problem"], "b=1,hq=1,hkv=1,sq=9,skv=9,d=16,mask=none");
  const ProcessResult unused = Attnlab(
      {"verify", "--accuracy", "--dtype=fp8_e4m3", "--problem=hq=1,sq=9,d=16,scaleblock=64"});
  EXPECT_EQ(unused.exit_code, 2);
  EXPECT_THAT(unused.err, HasSubstr("scaleblock"));
}

TEST_F(AttnlabTest, ADTypeThatDoesNotFitIsBlamed) {
  const ProcessResult r = Attnlab({"verify", "--dtype=fp8_e5m2", "--problem=hq=1,sq=9,d=16"});
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_THAT(r.err, HasSubstr("attnlab verify: --dtype: fp8_e5m2 is not one of fp32, fp16, bf16"));
}

TEST_F(AttnlabTest, VerifyTakesLengths) {
  const ProcessResult r =
      Attnlab({"verify", "--kernel=reference", "--problem=b=3,hq=2,sq=9,d=8,lens=packed/padded",
               "--q_lens=0,9,1", "--kv_lens=2,0,9", "--json"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const json rows = ParseJson(r.out)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  for (const json& row : rows) {
    EXPECT_EQ(row["verdict"], "ok");
    EXPECT_EQ(row["rows"], 20);  // of 10 queries in 2 heads
  }
}

TEST_F(AttnlabTest, LengthsThatDoNotFitAreExitCode2) {
  for (const auto& [lens, lengths, message] :
       {std::tuple<const char*, const char*, const char*>{
            "padded", "1,10,1", "--q_lens: entry 1 is 10, which is not in 0..9 (of b=3,"},
        {"packed", "0,10,1", "--q_lens: entry 1 is 10, which is not in 0..9 (of b=3,"},
        {"packed", "7", "--q_lens: has 1 entry, must have 3 (of b=3,"},
        {"fixed", "1,2,3", "--q_lens: is given, but lens=fixed"}}) {
    const ProcessResult r =
        Attnlab({"verify", absl::StrCat("--problem=b=3,hq=2,sq=9,d=8,lens=", lens),
                 absl::StrCat("--q_lens=", lengths)});
    EXPECT_EQ(r.exit_code, 2) << lens << "\n" << r.err;
    EXPECT_THAT(r.err, HasSubstr(message));
    EXPECT_EQ(r.out, "");
  }
}

// The command that a failure prints shows the same again, chosen lengths and all.
TEST_F(AttnlabTest, AFailureWithChosenLengthsCanBeSeenAgain) {
  const ProcessResult r =
      TestAttnlab({"verify", "--kernel=wrong", "--problem=b=2,hq=1,sq=4,d=8,lens=padded",
                   "--q_lens=4,3", "--kv_lens=1,2"});
  EXPECT_EQ(r.exit_code, 1);
  const size_t begin = r.out.find("attnlab verify ");
  ASSERT_NE(begin, std::string::npos) << r.out;
  const std::string line = r.out.substr(begin, r.out.find('\n', begin) - begin);
  EXPECT_THAT(line, HasSubstr(" --q_lens=4,3 --kv_lens=1,2"));
  Words words = absl::StrSplit(line, ' ');
  words.erase(words.begin());
  EXPECT_EQ(TestAttnlab(words).out, r.out);
}

}  // namespace
}  // namespace attnlab
