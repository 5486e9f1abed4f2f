#include "tools/command/sweep.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Lines(absl::string_view sweep) {
  const auto problems = ExpandSweep(sweep);
  if (!problems.ok()) return {std::string(problems.status().message())};
  std::vector<std::string> lines;
  for (const AttentionProblem& p : *problems) lines.push_back(p.ToString());
  return lines;
}

TEST(SweepTest, OneProblemIsItself) {
  EXPECT_THAT(Lines("hq=8,sq=512,d=64"),
              ElementsAre("b=1,hq=8,hkv=8,sq=512,skv=512,d=64,dtype=bf16,mask=none"));
}

TEST(SweepTest, RangesDoubleAndSkvFollowsSq) {
  const auto problems = ExpandSweep("hq=8,sq=512..16384,d=64");
  ASSERT_TRUE(problems.ok());
  std::vector<int64_t> lengths;
  for (const AttentionProblem& p : *problems) {
    EXPECT_EQ(p.skv, p.sq);
    lengths.push_back(p.sq);
  }
  EXPECT_THAT(lengths, ElementsAre(512, 1024, 2048, 4096, 8192, 16384));
}

TEST(SweepTest, RangesStayWithinTheirEnd) {
  EXPECT_EQ(ExpandSweep("hq=1,sq=3..13,d=1")->size(), 3u);  // 3, 6, 12
  EXPECT_EQ(ExpandSweep("hq=1,sq=7..7,d=1")->size(), 1u);
  EXPECT_EQ(ExpandSweep("hq=1,sq=1k..4k,d=1")->back().sq, 4096);
}

TEST(SweepTest, ListsCombineTheLastKeyFastest) {
  EXPECT_THAT(Lines("hq=2,sq=1,d=64/128,mask=none/causal"),
              ElementsAre("b=1,hq=2,hkv=2,sq=1,skv=1,d=64,dtype=bf16,mask=none",
                          "b=1,hq=2,hkv=2,sq=1,skv=1,d=64,dtype=bf16,mask=causal",
                          "b=1,hq=2,hkv=2,sq=1,skv=1,d=128,dtype=bf16,mask=none",
                          "b=1,hq=2,hkv=2,sq=1,skv=1,d=128,dtype=bf16,mask=causal"));
  EXPECT_EQ(ExpandSweep("hq=1,sq=1/16..64/4k,d=1")->size(), 5u);
}

TEST(SweepTest, ErrorsNameKeyAndValue) {
  for (const auto& [line, message] : {
           std::pair<const char*, const char*>{"hq=1,sq=512..,d=1", "sq: \"512..\" is not a range"},
           {"hq=1,sq=..512,d=1", "sq: \"..512\" is not a range"},
           {"hq=1,sq=1..2..4,d=1", "is not a range LOW..HIGH"},
           {"hq=1,sq=0..8,d=1", "sq: \"0..8\" begins below 1"},
           {"hq=1,sq=8..4,d=1", "sq: \"8..4\" ends before it begins"},
           {"hq=1,sq=8//4,d=1", "sq: \"\" in a list is empty"},
           {"hq=1,sq=8/,d=1", "sq: \"\" in a list is empty"},
           {"hq=1,sq=8,d=1,scale=1..2", "scale: \"1..2\" is a range, which only integers have"},
           {"hq=1,sq=1,d=1,mask=window:1..2:0", "which only integers have"},
           {"hq=8,hkv=2/3,sq=1,d=1", "hkv: 3 does not divide hq = 8 (in hq=8,hkv=3,sq=1,d=1)"},
           {"hq=8,hkv=3,sq=1,d=1", "hkv: 3 does not divide hq = 8"},
           {"", "problem: empty key"},
           {"hq", "hq: has no value"},
           {"hq=", "hq: has no value"},
           {"hq=1,sq=4K,d=1", "sq: \"4K\" is not a 64-bit integer"},
           {"hq=1,sq=99999999999999999999,d=1", "sq: "},
           {"b=1..1m,hq=1..1m,sq=1..1m,d=1..512", "stands for more than 1000 problems"},
       }) {
    const auto problems = ExpandSweep(line);
    EXPECT_EQ(problems.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(problems.status().message()), HasSubstr(message)) << line;
  }
}

std::vector<std::string> ConfigLines(absl::string_view sweep) {
  const auto configs = ExpandConfigs(sweep);
  if (!configs.ok()) return {std::string(configs.status().message())};
  std::vector<std::string> lines;
  for (const LaunchConfig& config : *configs) lines.push_back(config.ToString());
  return lines;
}

TEST(SweepTest, ConfigurationsSweepEveryKey) {
  EXPECT_THAT(ConfigLines("block=32..512"),
              ElementsAre("block=32", "block=64", "block=128", "block=256", "block=512"));
  EXPECT_THAT(ConfigLines("block=64/256,permute=always/never"),
              ElementsAre("block=64,permute=always", "block=64,permute=never",
                          "block=256,permute=always", "block=256,permute=never"));
  EXPECT_THAT(ConfigLines("permute=always"), ElementsAre("permute=always"));
  EXPECT_THAT(ConfigLines("a=1k"), ElementsAre("a=1024"));
}

TEST(SweepTest, BadConfigurationsNameKeyAndValue) {
  for (const auto& [line, message] : {
           std::pair<const char*, const char*>{"block=32..x", "block: \"32..x\" is not a range"},
           {"block=64..32", "block: \"64..32\" ends before it begins"},
           {"block=64//32", "block: \"\" in a list is empty"},
           {"block", "config: \"block\" is not of the form key=value"},
           {"block=", "config: \"block=\" is not of the form key=value"},
           {"a=1/2,a=3", "config: a is given twice (in a=1,a=3)"},
           {"a=1..1m,b=1..1m", "config: \"a=1..1m,b=1..1m\" stands for more than 100 "},
       }) {
    EXPECT_EQ(ExpandConfigs(line).status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(ConfigLines(line), ElementsAre(HasSubstr(message)));
  }
}

TEST(SweepTest, CommonKeysAndTheRest) {
  const CommonKeys several = SplitCommon({"hq=8,sq=1,d=64", "hq=8,sq=2,d=64", "hq=8,sq=2,d=64"});
  EXPECT_EQ(several.common, "hq=8,d=64");
  EXPECT_THAT(several.rests, ElementsAre("sq=1", "sq=2", "sq=2"));
  EXPECT_EQ(SplitCommon({"hq=8,sq=1"}).common, "hq=8,sq=1");
  EXPECT_THAT(SplitCommon({"a=1", "a=1"}).rests, ElementsAre("", ""));
  EXPECT_THAT(SplitCommon({"a=1", "a=1,b=2"}).rests, ElementsAre("", "b=2"));
  EXPECT_EQ(SplitCommon({"a=1", "a=2"}).common, "");
  EXPECT_TRUE(SplitCommon({}).rests.empty());
}

TEST(SweepTest, Counts) {
  EXPECT_EQ(*ParseCount("0"), 0);
  EXPECT_EQ(*ParseCount("512"), 512);
  EXPECT_EQ(*ParseCount("128k"), 131072);
  EXPECT_EQ(*ParseCount("2m"), 2097152);
  for (const char* bad : {"", "k", "-1", "+1", " 1", "1km", "1mk", "4k ", "1e3",
                          "9223372036854775807k", "99999999999999999999"}) {
    EXPECT_FALSE(ParseCount(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace attnlab
