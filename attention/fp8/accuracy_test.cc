#include "attention/fp8/accuracy.h"

#include <map>
#include <string>

#include "attention/core/dtype.h"
#include "attention/core/problem.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::fp8 {
namespace {

TEST(AccuracyTest, BlocksAndHadamardMakeFp8BetterThanOneScale) {
  const AttentionProblem p = AttentionProblem::Parse("hq=4,sq=1024,d=128").value();
  const absl::StatusOr<std::vector<Accuracy>> found = MeasureAccuracy(p, Device::Cpu());
  ASSERT_TRUE(found.ok()) << found.status();
  std::map<std::string, double> rmse;
  for (const Accuracy& a : *found) {
    rmse[a.name] = a.rmse;
    EXPECT_GT(a.largest, a.rmse);
  }
  ASSERT_EQ(rmse.size(), 10u);
  EXPECT_LT(rmse.at("fp16"), 4e-4);
  EXPECT_LT(rmse.at("fp16"), rmse.at("bf16"));
  EXPECT_LT(rmse.at("bf16"), rmse.at("fp8, a scale per 64 rows, Hadamard"));
  for (const char* rows : {"64", "128"}) {
    const double best = rmse.at("fp8, a scale per " + std::string(rows) + " rows, Hadamard");
    EXPECT_LT(best, 9.1e-3) << rows;
    EXPECT_GT(rmse.at("fp8, a scale per tensor") / best, 1.6) << rows;
  }
}

TEST(AccuracyTest, OtherShapes) {
  for (const char* line : {"b=2,hq=4,hkv=2,sq=70,skv=200,d=96,mask=causal", "hq=2,sq=0,skv=9,d=64",
                           "hq=2,sq=65,d=192,dv=128,softcap=20"}) {
    int steps = 0;
    const auto found = MeasureAccuracy(AttentionProblem::Parse(line).value(), Device::Cpu(), 0,
                                       [&](absl::string_view) { ++steps; });
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(steps, kAccuracySteps);
    EXPECT_EQ(found->size(), 10u);
  }
}

TEST(AccuracyTest, Errors) {
  for (const auto& [line, message] : {
           std::pair("hq=2,sq=9,d=64,dtype=fp8_e4m3,vdtype=fp8_e5m2",
                     "vdtype: fp8_e5m2 is not for"),
           {"hq=2,sq=9,d=64,dtype=fp8_e4m3,scaleblock=64", "scaleblock: 64 is not for accuracy"},
           {"hq=2,sq=9,d=64,dtype=fp8_e4m3,odtype=fp16", "odtype: fp16 is not for accuracy"},
           {"hq=2,sq=9,d=64,lens=packed", "lens: packed is not for accuracy"},
           {"hq=2,sq=2147483647,d=64", "memory: accuracy of b=1,hq=2,"},
       }) {
    const auto found = MeasureAccuracy(AttentionProblem::Parse(line).value(), Device::Cpu());
    EXPECT_THAT(std::string(found.status().message()), ::testing::HasSubstr(message)) << line;
  }
  AttentionProblem p = AttentionProblem::Parse("hq=2,sq=9,d=64").value();
  p.dtype = DType::kFloat8E5M2;
  EXPECT_THAT(std::string(MeasureAccuracy(p, Device::Cpu()).status().message()),
              ::testing::HasSubstr("dtype: fp8_e5m2 is not one of"));
}

TEST(AccuracyTest, NeedlesAreFound) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat8E4M3}) {
    const absl::StatusOr<double> found = FindNeedles(dtype, 40, 4096, Device::Cpu());
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, 1);
  }
}

}  // namespace
}  // namespace attnlab::fp8
