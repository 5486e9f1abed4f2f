#include "tools/command/presets.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/command/sweep.h"

namespace attnlab {
namespace {

using ::testing::HasSubstr;

// The canonical problems of a preset, in lines.
std::string Problems(absl::string_view preset) {
  const auto line = PresetLine(preset);
  if (!line.ok()) return line.status().ToString();
  const auto problems = ExpandSweep(*line);
  if (!problems.ok()) return problems.status().ToString();
  std::string all;
  for (const AttentionProblem& p : *problems) absl::StrAppend(&all, p.ToString(), "\n");
  return all;
}

TEST(PresetsTest, Gpt2) {
  // c = 768 is 12 heads of 64.
  EXPECT_EQ(Problems("gpt2"), "b=8,hq=12,hkv=12,sq=1024,skv=1024,d=64,dtype=fp32,mask=causal\n");
}

TEST(PresetsTest, ModelsPhasesAndLengths) {
  EXPECT_EQ(Problems("llama3-8b-prefill-4k"),
            "b=1,hq=32,hkv=8,sq=4096,skv=4096,d=128,dtype=bf16,mask=causal\n");
  EXPECT_EQ(Problems("llama3-70b-decode-128k"),
            "b=1,hq=64,hkv=8,sq=1,skv=131072,d=128,dtype=bf16,mask=causal\n");
  EXPECT_EQ(Problems("qwen3-8b-prefill-512"),
            "b=1,hq=32,hkv=8,sq=512,skv=512,d=128,dtype=bf16,mask=causal\n");
  EXPECT_EQ(Problems("mixtral-8x7b-decode-32k"),
            "b=1,hq=32,hkv=8,sq=1,skv=32768,d=128,dtype=bf16,mask=causal\n");
}

TEST(PresetsTest, EveryModelHasBothPhases) {
  for (const Model& model : Models()) {
    for (absl::string_view phase : {"prefill", "decode"}) {
      EXPECT_THAT(Problems(absl::StrCat(model.name, "-", phase, "-1k")),
                  HasSubstr(absl::StrCat("hq=", model.query_heads, ",hkv=", model.kv_heads)));
    }
  }
}

TEST(PresetsTest, KeysBehindTheNameChangeIt) {
  EXPECT_EQ(Problems("llama3-8b-decode-4k,b=16,dtype=fp16"),
            "b=16,hq=32,hkv=8,sq=1,skv=4096,d=128,dtype=fp16,mask=causal\n");
  EXPECT_EQ(Problems("llama3-8b-prefill-4k,sq=512..1024"),
            "b=1,hq=32,hkv=8,sq=512,skv=512,d=128,dtype=bf16,mask=causal\n"
            "b=1,hq=32,hkv=8,sq=1024,skv=1024,d=128,dtype=bf16,mask=causal\n");
  EXPECT_THAT(Problems("gpt2,softcap=30"), HasSubstr("softcap=30"));
}

TEST(PresetsTest, ErrorsSayWhatThereIs) {
  for (const auto& [preset, message] : {
           std::pair<const char*, const char*>{"gpt3", "\"gpt3\" is not known; there are"},
           {"", "\"\" is not known"},
           {"llama3-8b", "is not known"},
           {"llama3-8b-train-4k", "has no such phase"},
           {"llama3-8b-prefill", "has no length"},
           {"llama3-8b-prefill-", "has the length \"\""},
           {"llama3-8b-prefill-4q", "has the length \"4q\""},
           {"llama3-8b-prefill-0", "has the length \"0\""},
           {"llama3-8b-prefill-4k-x", "has the length \"4k-x\""},
           {"llama3-8b-prefill-4k,", "problem: empty key"},
           {"llama3-8b-prefill-4k,b=1,b=2", "b: is given twice"},
           {"llama3-8b-prefill-4k,q=1", "problem: unknown key \"q\""},
           {"llama3-8b-prefill-4m", ""},
           {"llama3-8b-prefill-4096m", "sq: 4294967296 is not in 0..2147483647"},
       }) {
    EXPECT_THAT(Problems(preset), HasSubstr(message)) << preset;
  }
}

}  // namespace
}  // namespace attnlab
