#include "attention/tune/problem_class.h"

#include <string>

#include "gtest/gtest.h"

namespace attnlab::tune {
namespace {

std::string LineOfClass(const std::string& line) {
  return ClassOf(*AttentionProblem::Parse(line)).ToString();
}

TEST(ProblemClassTest, SizesAreRoundedInRatio) {
  EXPECT_EQ(LineOfClass("b=3,hq=12,sq=1000,skv=5000,d=64,mask=causal"),
            "b=4,hq=16,hkv=16,sq=1024,skv=4096,d=64,dtype=bf16,mask=causal");
  EXPECT_EQ(LineOfClass("b=1,hq=40,hkv=5,sq=1,skv=181,d=96,dtype=fp16"),
            "b=1,hq=32,hkv=4,sq=1,skv=128,d=96,dtype=fp16,mask=none");
  EXPECT_EQ(LineOfClass("hq=3,hkv=3,sq=0,d=8"),
            "b=1,hq=4,hkv=4,sq=0,skv=0,d=8,dtype=bf16,mask=none");
}

TEST(ProblemClassTest, WhatChangesTheCodeStays) {
  const std::string kept =
      "b=2,hq=4,hkv=2,sq=128,skv=256,d=80,dv=48,dtype=fp16,kvdtype=fp8_e4m3,mask=window:64:0,"
      "lens=packed,page=16";
  EXPECT_EQ(LineOfClass(kept), AttentionProblem::Parse(kept)->ToString());
  const std::string e5m2 =
      "b=2,hq=4,hkv=2,sq=128,skv=256,d=64,dtype=fp8_e4m3,vdtype=fp8_e5m2,mask=causal";
  EXPECT_EQ(LineOfClass(e5m2), e5m2);
  EXPECT_EQ(LineOfClass("hq=2,sq=64,d=32,mask=window:100:3,scale=0.3,softcap=50"),
            "b=1,hq=2,hkv=2,sq=64,skv=64,d=32,dtype=bf16,mask=window:128:4,softcap=1");
}

TEST(ProblemClassTest, LimitsHold) {
  for (const char* line :
       {"hq=2147483647,hkv=1,sq=1,d=1", "b=2147483647,hq=1,sq=1,d=1", "hq=1,sq=2147483647,d=512",
        "b=1400000000,hq=800,sq=1,skv=1,d=64", "hq=1,sq=9,d=1,mask=window:2147483647:2147483647"}) {
    const absl::StatusOr<AttentionProblem> p = AttentionProblem::Parse(line);
    ASSERT_TRUE(p.ok()) << p.status();
    const AttentionProblem once = ClassOf(*p);
    EXPECT_TRUE(once.Validate().ok()) << line;
    EXPECT_EQ(ClassOf(once), once) << line;
  }
}

}  // namespace
}  // namespace attnlab::tune
