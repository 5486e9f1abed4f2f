// On a GPU: the oracle gives the same results as on the CPU.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/conformance/problems.h"
#include "attention/core/dtype.h"
#include "attention/oracle/gpu.h"
#include "attention/oracle/inputs.h"
#include "gtest/gtest.h"

namespace attnlab::oracle {
namespace {

using conformance::Case;
using conformance::EdgeCases;
using conformance::PagedCases;

bool Near(double a, double b, double bound) {
  return a == b || std::abs(a - b) <= bound;  // a == b: also the same infinity
}

// How the straightforward rows of the GPU compare with those of the CPU.
struct Comparison {
  int64_t elements = 0, same_bits = 0;
  double fair_there = 0, fair_here = 0;  // largest errors on GPU and CPU, in units of their rows
};

Comparison CompareResults(const Case& c, int64_t rows, const Oracle& there, const Result& exact,
                          const Result& here) {
  const double e = Epsilon(c.problem.dtype), e32 = Epsilon(DType::kFloat32);
  Comparison result;
  for (int64_t i = 0; i < rows; ++i) {
    double unit = exact.spread[i];
    for (int64_t j = 0; j < exact.dv; ++j) unit = std::max(unit, std::abs(exact.O(i, j)));
    const double score = 1 + exact.score[i];
    EXPECT_TRUE(Near(there.exact.lse[i], exact.lse[i], 1e-12 * score)) << i;
    EXPECT_TRUE(Near(there.exact.score[i], exact.score[i], 1e-12 * score)) << i;
    EXPECT_TRUE(Near(there.exact.spread[i], exact.spread[i], 1e-11 * score * unit)) << i;
    EXPECT_TRUE(Near(there.straightforward.lse[i], here.lse[i], 8 * e32 * score)) << i;
    for (int64_t j = 0; j < exact.dv; ++j) {
      const double t = there.straightforward.O(i, j), h = here.O(i, j), o = exact.O(i, j);
      EXPECT_TRUE(Near(there.exact.O(i, j), o, 1e-11 * score * unit)) << i << " " << j;
      EXPECT_TRUE(Near(t, h, (e + 8 * e32 * score) * unit)) << i << " " << j;
      ++result.elements;
      result.same_bits += t == h;
      if (unit == 0) continue;
      result.fair_there = std::max(result.fair_there, std::abs(t - o) / unit);
      result.fair_here = std::max(result.fair_here, std::abs(h - o) / unit);
    }
    if (::testing::Test::HasFailure()) break;
  }
  return result;
}

void ExpectSame(const Case& c, Factors factors, Comparison* all) {
  SCOPED_TRACE(c.ToString());
  const absl::StatusOr<Inputs> inputs = Inputs::Make(c.problem, Device::Cuda(0), c.inputs);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  const AttentionTensors& host = inputs->host_tensors();
  const std::vector<Row> rows = AllRows(c.problem, host);
  const absl::StatusOr<Oracle> there =
      OracleOnGpu(c.problem, host, inputs->tensors(), rows, factors);
  const absl::StatusOr<Result> exact = Exact(c.problem, host, rows);
  const absl::StatusOr<Result> here = Straightforward(c.problem, host, rows, factors);
  ASSERT_TRUE(there.ok() && exact.ok() && here.ok()) << there.status();
  ASSERT_EQ(there->exact.o.size(), exact->o.size());
  ASSERT_EQ(there->straightforward.o.size(), here->o.size());
  const Comparison result =
      CompareResults(c, static_cast<int64_t>(rows.size()), *there, *exact, *here);
  // The fair error must not depend on the device. glibc's tanhf is off by more than half a unit.
  const double least = Epsilon(DType::kFloat32) / 2;
  EXPECT_LE(result.fair_there, 1.3 * result.fair_here + least);
  EXPECT_LE(result.fair_here, 1.3 * result.fair_there + least);
  if (c.problem.softcap != 0) return;
  all->elements += result.elements;
  all->same_bits += result.same_bits;
}

TEST(OracleOnGpuTest, HasTheResultsOfTheCpu) {
  for (const Factors factors : {Factors::kAsTheyAre, Factors::kTf32}) {
    Comparison all;
    const int cases = factors == Factors::kAsTheyAre ? 60 : 15;
    for (const Case& c : EdgeCases(3, cases)) ExpectSame(c, factors, &all);
    EXPECT_GT(all.elements, 50000);
    EXPECT_GT(all.same_bits, 0.99 * all.elements);
  }
}

// Many more keys than a block has threads, and more rows than there are blocks.
TEST(OracleOnGpuTest, LongRowsAndManyRows) {
  Comparison all;
  for (const char* line : {"b=1,hq=1,sq=2,skv=100003,d=8,dtype=fp32,mask=causal",
                           "b=3,hq=8,hkv=2,sq=300,skv=20,d=300,dtype=bf16,mask=window:9:3",
                           "b=3,hq=4,hkv=2,sq=9,skv=200,d=72,dv=40,dtype=fp16,kvdtype=fp8_e4m3"}) {
    Case c;
    c.problem = *AttentionProblem::Parse(line);
    ExpectSame(c, Factors::kAsTheyAre, &all);
  }
}

TEST(OracleOnGpuTest, Pages) {
  Comparison all;
  for (const Case& c : PagedCases()) ExpectSame(c, Factors::kAsTheyAre, &all);
  EXPECT_GT(all.elements, 50000);
}

TEST(OracleOnGpuTest, WhatItDeclines) {
  const AttentionProblem p = *AttentionProblem::Parse("hq=2,sq=3,d=4,dtype=fp32");
  const absl::StatusOr<Inputs> inputs = Inputs::Make(p, Device::Cuda(0), {});
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  const AttentionTensors &host = inputs->host_tensors(), &there = inputs->tensors();
  EXPECT_EQ(OracleOnGpu(p, host, there, {{0, 2, 0}}).status().message(),
            Exact(p, host, {{0, 2, 0}}).status().message());
  EXPECT_EQ(OracleOnGpu(p, host, host, {{0, 1, 0}}).status().message(),
            "there: its tensors are not on a GPU");
  const absl::StatusOr<Oracle> none = OracleOnGpu(p, host, there, {});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->exact.o.empty());
}

}  // namespace
}  // namespace attnlab::oracle
