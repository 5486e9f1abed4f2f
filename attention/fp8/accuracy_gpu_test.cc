// What fp8 costs on a GPU: errors as on the CPU, and long sequences whose sums stay right.
#include <map>
#include <string>

#include "absl/status/status.h"
#include "attention/core/device.h"
#include "attention/core/dtype.h"
#include "attention/core/problem.h"
#include "attention/fp8/accuracy.h"
#include "gtest/gtest.h"

namespace attnlab::fp8 {
namespace {

TEST(AccuracyOnGpuTest, BlocksAndHadamardMakeFp8BetterThanOneScale) {
  const AttentionProblem p = AttentionProblem::Parse("hq=16,sq=8192,d=128").value();
  const absl::StatusOr<std::vector<Accuracy>> found = MeasureAccuracy(p, Device::Cuda(0));
  if (absl::IsUnimplemented(found.status())) GTEST_SKIP() << found.status();
  ASSERT_TRUE(found.ok()) << found.status();
  std::map<std::string, double> rmse;
  for (const Accuracy& a : *found) rmse[a.name] = a.rmse;
  const double best = rmse.at("fp8, a scale per 128 rows, Hadamard");
  EXPECT_LT(best, 9.1e-3);
  EXPECT_GT(rmse.at("fp8, a scale per tensor") / best, 1.6);
}

TEST(AccuracyOnGpuTest, NeedlesAreFoundAmong128k) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat8E4M3}) {
    const absl::StatusOr<double> found = FindNeedles(dtype, 1000, 131072, Device::Cuda(0));
    if (absl::IsUnimplemented(found.status())) GTEST_SKIP() << found.status();
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_GE(*found, 0.99) << Name(dtype);
  }
}

}  // namespace
}  // namespace attnlab::fp8
