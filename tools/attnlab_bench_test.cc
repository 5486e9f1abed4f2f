// attnlab bench: kernels verified, timed and compared.
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

const Words kQuickBench = {"bench",       "--seconds=0.01", "--repetitions=3",
                           "--timeout=1", "--input_mib=1",  "--device=cpu"};

Words QuickBench(const Words& more) {
  Words words = kQuickBench;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(AttnlabTest, BenchOnRanks) {
  const Words words = {"bench", "--gpus=3", "--device=cpu", "--seconds=0.01",
                       "--problem=hq=2,sq=40,d=16,dtype=fp32,mask=causal"};
  Words as_json = words;
  as_json.push_back("--json");
  const ProcessResult r = TestAttnlab(as_json);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const json bench = ParseJson(r.out);
  std::vector<std::string> ways;
  for (const json& row : bench["rows"]) {
    ways.push_back(row["way"]);
    EXPECT_EQ(row["verdict"], "ok") << row;
    EXPECT_GT(row["median_seconds"], 0);
  }
  EXPECT_THAT(ways, ElementsAre("one", "zigzag", "ring", "alltoall", "splitkv", "heads"));
  EXPECT_EQ(bench["rows"][1]["steps"].size(), 3u);
  EXPECT_GT(bench["rows"][1]["steps"][0]["computing"], 0);
  EXPECT_FALSE(bench["rows"][5].contains("predicted_seconds"));  // the model is of GPUs

  Words wrong = words;
  wrong.push_back("--parallel=across");
  EXPECT_THAT(TestAttnlab(wrong).err,
              HasSubstr("\"across\" is not one of zigzag, ring, alltoall, splitkv, heads"));
  EXPECT_THAT(
      TestAttnlab({"bench", "--gpus=2", "--device=cpu", "--problem=sq=9,lens=packed,d=8,hq=1"}).err,
      HasSubstr("lengths must be fixed"));
  wrong = words;
  wrong.push_back("--config=tile_kv=32");
  EXPECT_THAT(TestAttnlab(wrong).err, HasSubstr("--config does not go with --gpus"));
  EXPECT_THAT(TestAttnlab({"bench", "--parallel=ring"}).err,
              HasSubstr("--parallel goes with --gpus alone"));
}

TEST_F(AttnlabTest, BenchAsJson) {
  ProcessOptions options;
  options.environment["ATTNLAB_COMMIT"] = "abc123";
  const ProcessResult r = TestAttnlab(
      QuickBench({"--kernel=picky,reference", "--problem=hq=2,sq=16/32,d=64,dtype=fp16", "--json"}),
      options);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const json bench = ParseJson(r.out), &rows = bench["rows"];
  EXPECT_EQ(bench["attnlab"]["commit"], "abc123");
  ASSERT_EQ(rows.size(), 4u);
  for (const json& row : rows) {
    EXPECT_EQ(row["attnlab"], bench["attnlab"]);
    EXPECT_EQ(row["verdict"], "ok");
    EXPECT_GT(row["median_seconds"], 0);
    EXPECT_LE(row["p10_seconds"], row["median_seconds"]);
    EXPECT_LE(row["median_seconds"], row["p90_seconds"]);
    EXPECT_GE(row["repetitions"], 3);
    EXPECT_GT(row["tflop_per_second"], 0);
    EXPECT_GT(row["gb_per_second"], 0);
    EXPECT_GT(row["moved_gb_per_second"], 0);
    EXPECT_GT(row["speed_up"], 0);
    EXPECT_EQ(row["baseline"], "picky");
    EXPECT_LE(row["error"], row["bound"]);
    EXPECT_GE(row["input_sets"], 1);
    EXPECT_EQ(row["commit"], "abc123");
    EXPECT_EQ(row["date"].get<std::string>().size(), 20u);
    EXPECT_GE(row["machine"]["threads"], 1);
  }
  EXPECT_EQ(rows[0]["problem"], "b=1,hq=2,hkv=2,sq=16,skv=16,d=64,dtype=fp16,mask=none");
  EXPECT_EQ(rows[0]["speed_up"], 1);
  EXPECT_EQ(rows[3]["kernel"], "reference");
}

TEST_F(AttnlabTest, BenchAsCsvSaysWhichAttnlab) {
  const ProcessResult r = TestAttnlab(
      QuickBench({"--kernel=reference", "--problem=hq=2,sq=16,d=64,dtype=fp16", "--csv"}));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, AllOf(HasSubstr(",attnlab.version,"), HasSubstr(",0.1.0,")));
}

TEST_F(AttnlabTest, BenchWithoutAProblemTakesOne) {
  const ProcessResult r = Attnlab(QuickBench({}));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, AllOf(StartsWith("b=1,hq=8,hkv=8,sq="), HasSubstr("| reference"),
                           HasSubstr("| ok"), HasSubstr("repetitions, kernels in random order")));
}

TEST_F(AttnlabTest, BenchWithoutAProblemTakesDtypes) {
  const ProcessResult r =
      Attnlab(QuickBench({"--dtype=bf16/fp32", "--kernel=reference", "--json"}));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const json rows = ParseJson(r.out)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_THAT(rows[0]["problem"].get<std::string>(), HasSubstr("dtype=bf16"));
  EXPECT_THAT(rows[1]["problem"].get<std::string>(), HasSubstr("dtype=fp32"));
}

TEST_F(AttnlabTest, BenchSaysWhatIsWrong) {
  const Words problem = {"--problem=hq=2,sq=16,d=64,dtype=fp16"};
  const ProcessResult wrong = TestAttnlab(QuickBench({"--kernel=reference,wrong", problem[0]}));
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.out, HasSubstr("| WRONG"));
  EXPECT_THAT(wrong.out, HasSubstr("vs reference"));
  const ProcessResult unchecked =
      TestAttnlab(QuickBench({"--kernel=wrong", "--verify=false", problem[0]}));
  EXPECT_EQ(unchecked.exit_code, 0);
  EXPECT_THAT(unchecked.out, AllOf(HasSubstr("| not checked"), Not(HasSubstr("| ok"))));
  const ProcessResult failing = TestAttnlab(QuickBench({"--kernel=failing", problem[0]}));
  EXPECT_EQ(failing.exit_code, 1);
  EXPECT_THAT(failing.out, AllOf(HasSubstr("| FAILED"), HasSubstr("out of luck")));
  const ProcessResult both =
      TestAttnlab(QuickBench({"--kernel=failing,reference", problem[0], "--json"}));
  EXPECT_EQ(both.exit_code, 1);
  const json rows = ParseJson(both.out)["rows"];
  EXPECT_EQ(rows[0]["verdict"], "failed");
  EXPECT_TRUE(rows[0]["median_seconds"].is_null());
  EXPECT_EQ(rows[1]["verdict"], "ok");
  EXPECT_EQ(rows[1]["baseline"], "reference");
}

TEST_F(AttnlabTest, BenchComparesConfigurationsWithTheBaseline) {
  const ProcessResult r =
      TestAttnlab(QuickBench({"--kernel=reference,picky", "--baseline=picky", "--config=tile_q=1",
                              "--config=tile_q=2", "--problem=hq=2,sq=16,d=64,dtype=fp16"}));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out,
              AllOf(HasSubstr("| tile_q=1 |"), HasSubstr("| tile_q=2 |"), HasSubstr("vs picky")));
  EXPECT_THAT(r.err, HasSubstr("reference: config: unknown key \"tile_q\""));
}

// A key of the GPU's kernel is no mistake on a machine without one.
TEST_F(AttnlabTest, AConfigurationForAGpuThatIsNotThereIsExitCode3) {
  if (!HasNoGpu()) GTEST_SKIP() << "there is a GPU";
  const ProcessResult r = TestAttnlab({"bench", "--kernel=reference,via_host",
                                       "--config=block=32..512", "--problem=hq=1,sq=4,d=8"});
  EXPECT_EQ(r.exit_code, 3) << r.err;
  EXPECT_THAT(r.err, AllOf(HasSubstr("reference: config: unknown key \"block\""),
                           HasSubstr("via_host: runs on GPUs; "),
                           HasSubstr("this machine has no device for the kernels that might")));
}

TEST_F(AttnlabTest, BenchSaysWhyThereAreNoSpeedUps) {
  const ProcessResult r = TestAttnlab(QuickBench(
      {"--kernel=reference,picky", "--baseline=picky", "--problem=hq=1,sq=4,d=8,dtype=fp32"}));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.err,
              AllOf(HasSubstr("attnlab bench: picky: dtype: is not fp16"),
                    HasSubstr("--baseline: picky was not timed, so there are no speed-ups")));
}

TEST_F(AttnlabTest, CtrlCPrintsWhatIsDone) {
  const ProcessResult some =
      TestAttnlab(QuickBench({"--kernel=reference,ctrl_c",
                              "--problem=hq=1,sq=16/130/8,d=8,dtype=fp32,lens=padded", "--json"}));
  EXPECT_EQ(some.exit_code, 130) << some.err;
  EXPECT_THAT(some.err, HasSubstr("attnlab bench: interrupted; what was done by then is printed"));
  const json rows = ParseJson(some.out)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  for (const json& row : rows) {
    EXPECT_EQ(row["problem"], "b=1,hq=1,hkv=1,sq=16,skv=16,d=8,dtype=fp32,mask=none,lens=padded");
    EXPECT_EQ(row["verdict"], "ok");
  }
  const ProcessResult none = TestAttnlab(
      QuickBench({"--kernel=ctrl_c,reference", "--problem=hq=1,sq=130,d=8,lens=padded"}));
  EXPECT_EQ(none.exit_code, 130);
  EXPECT_THAT(none.out, IsEmpty());
  EXPECT_THAT(none.err, HasSubstr("interrupted; nothing was done by then"));
}

TEST_F(AttnlabTest, BenchPutsDevicesSideBySideOnAGpu) {
  const Words words = {"bench",
                       "--kernel=reference,via_host",
                       "--problem=b=2,hq=2,sq=64,d=64,dtype=fp16,lens=padded",
                       "--seconds=0.01",
                       "--repetitions=3",
                       "--input_mib=1"};
  const ProcessResult r = TestAttnlab(words);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  if (HasNoGpu()) {
    EXPECT_THAT(r.out, Not(HasSubstr("via_host")));
    EXPECT_THAT(r.err, HasSubstr("attnlab bench: via_host: runs on GPUs; "));
    GTEST_SKIP() << "no GPU here";
  }
  EXPECT_THAT(r.out, AllOf(HasSubstr("| reference | cpu "), HasSubstr("| via_host  | cuda:0 "),
                           HasSubstr("vs reference"), HasSubstr("\ncuda:0: ")));
  Words sweep = words;
  sweep.insert(sweep.end(), {"--config=block=32..128", "--json"});
  const json rows = ParseJson(TestAttnlab(sweep).out)["rows"];
  ASSERT_EQ(rows.size(), 3u);
  for (const json& row : rows) {
    EXPECT_EQ(row["kernel"], "via_host");
    EXPECT_EQ(row["machine"]["device"], "cuda:0");
    EXPECT_TRUE(row["machine"]["cuda_runtime"].is_string());
    EXPECT_TRUE(row["machine"]["cuda_driver"].is_string());
    EXPECT_GT(row["machine"]["last_level_cache_bytes"], 0);
  }
  EXPECT_EQ(rows[2]["config"], "block=128");
  Words restricted = words;
  restricted.insert(restricted.end(), {"--device=cuda:0", "--kernel=all", "--json"});
  restricted.erase(restricted.begin() + 1);
  for (const json& row : ParseJson(TestAttnlab(restricted).out)["rows"]) {
    EXPECT_EQ(row["machine"]["device"], "cuda:0");
  }
}

TEST_F(AttnlabTest, BenchAndVerifyOnAGpu) {
  const Words problem = {"--problem=b=2,hq=2,sq=64,d=64,dtype=fp16,lens=padded"};
  const ProcessResult verify =
      TestAttnlab({"verify", "--kernel=via_host", "--device=cuda:0", "--json", problem[0]});
  if (verify.exit_code == 3) GTEST_SKIP() << "no GPU here";
  EXPECT_EQ(verify.exit_code, 0) << verify.out;
  EXPECT_EQ(ParseJson(verify.out)["rows"][0]["machine"]["device"], "cuda:0");
  const ProcessResult bench = TestAttnlab({"bench", "--kernel=via_host", "--json", problem[0],
                                           "--seconds=0.01", "--repetitions=3", "--input_mib=1"});
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  const json rows = ParseJson(bench.out)["rows"];
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["machine"]["device"], "cuda:0");
  EXPECT_EQ(rows[0]["verdict"], "ok");
  EXPECT_GT(rows[0]["median_seconds"], 0);
  // With a GPU kernel for it, the GPU is the default.
  const ProcessResult run = TestAttnlab({"run", problem[0]});
  EXPECT_THAT(run.out, HasSubstr("via_host on cuda:0"));
}

}  // namespace
}  // namespace attnlab
