// attnlab tune: what is found, kept and reported.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/attnlab_fixture.h"
#include "tools/lib/files.h"

namespace attnlab {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TuneTest : public AttnlabTest {
 protected:
  std::string Cache() const { return Path("tuning.json"); }
  Words Tune(const Words& more) const {
    Words words = {"tune", "--device=cpu", "--cache=" + Cache(), "--seconds=2",
                   "--problem=hq=2,sq=17,d=16,dtype=fp32"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Tunes the kernel "tunable". On a busy machine timings are noisy, and its own choice rightly stays:
  // then again.
  ProcessResult FindFast() const {
    ProcessResult r;
    for (int i = 0; i < 10; ++i) {
      r = TestAttnlab(Tune({"--kernel=tunable", "--json", "--anew"}));
      if (r.exit_code != 0 || ParseJson(r.out)["rows"][0]["config"] != "") break;
    }
    return r;
  }
};

TEST_F(TuneTest, CandidatesThatAreWrongOrCrashAreOut) {
  ProcessResult r = FindFast();
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const json tuned = ParseJson(r.out), row = tuned["rows"][0];
  EXPECT_EQ(tuned["cache"], Cache());
  EXPECT_EQ(row["problem"], "b=1,hq=2,hkv=2,sq=16,skv=16,d=16,dtype=fp32,mask=none");
  EXPECT_EQ(row["config"], "x=fast");
  EXPECT_GT(row["speed_up"], 2);
  EXPECT_EQ(row["candidates"], 3);
  EXPECT_EQ(row["from_cache"], false);
  ASSERT_EQ(row["rejected"].size(), 2u);
  EXPECT_EQ(row["rejected"][0]["config"], "x=crash");
  EXPECT_EQ(row["rejected"][0]["reason"], "crashed: Aborted");
  EXPECT_EQ(row["rejected"][1]["config"], "x=wrong");
  EXPECT_THAT(r.err, AllOf(HasSubstr("tunable x=crash is out: crashed: Aborted"),
                           HasSubstr("tunable x=wrong is out: ")));

  // The next time it is there.
  r = TestAttnlab(Tune({"--kernel=tunable"}));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, AllOf(HasSubstr("| x=fast"), HasSubstr("kept before"), HasSubstr(Cache())));
  EXPECT_THAT(r.err, IsEmpty());
}

TEST_F(TuneTest, WhereOnlyTheKernelsOwnChoiceIsRightItStays) {
  const ProcessResult r = TestAttnlab(
      Tune({"--kernel=picky,reference", "--json", "--problem=hq=1,sq=8,d=64,dtype=fp16"}));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const json rows = ParseJson(r.out)["rows"];
  ASSERT_EQ(rows.size(), 3u);  // picky declines the first problem
  for (const json& row : rows) {
    EXPECT_EQ(row["config"], "");
    EXPECT_EQ(row["candidates"], 0);
  }
  EXPECT_THAT(r.err, HasSubstr("picky"));
}

TEST_F(TuneTest, AWrongKernelIsNotKept) {
  const ProcessResult r = TestAttnlab(Tune({"--kernel=wrong"}));
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.err, HasSubstr("wrong: the kernel's own choice is wrong or fails: "));
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(TuneTest, ADamagedFileIsReportedAndRebuilt) {
  ASSERT_TRUE(WriteFile(Cache(), "{\"format\"").ok());
  const ProcessResult r = TestAttnlab(Tune({"--kernel=tunable", "--json"}));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(ParseJson(FindFast().out)["rows"][0]["config"], "x=fast");
  EXPECT_THAT(r.err, AllOf(HasSubstr("is damaged"), HasSubstr("tuning.json.damaged")));
  EXPECT_EQ(*ReadFile(Cache() + ".damaged", 100), "{\"format\"");
  EXPECT_EQ(
      ParseJson(TestAttnlab(Tune({"--kernel=tunable", "--json"})).out)["rows"][0]["from_cache"],
      true);
}

TEST_F(TuneTest, TheCpuKernelIsTuned) {
  const ProcessResult r = Attnlab(Tune({"--json"}));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const json row = ParseJson(r.out)["rows"][0];
  EXPECT_EQ(row["kernel"], "cpu");
  EXPECT_GE(row["candidates"], 1);
  EXPECT_THAT(row["rejected"], IsEmpty());
  EXPECT_GE(row["speed_up"], 1);
}

TEST_F(TuneTest, BadFlagsAreErrors) {
  const auto expect = [&](const Words& words, const std::string& message) {
    const ProcessResult r = Attnlab(words);
    EXPECT_EQ(r.exit_code, 2) << r.out;
    EXPECT_THAT(r.err, HasSubstr(message));
  };
  expect({"tune", "--cache=" + Cache()}, "give --problem or --preset");
  expect({"tune", "--problem=hq=1,sq=1,d=8", "--seconds=0", "--cache=" + Cache()}, "--seconds");
  expect({"tune", "--problem=hq=1,sq=1,d=8", "--kernel=none", "--cache=" + Cache()}, "none");
  expect({"tune", "--problem=hq=1,sq=1,d=8"}, "give --cache=FILE, or set HOME");
}

}  // namespace
}  // namespace attnlab
