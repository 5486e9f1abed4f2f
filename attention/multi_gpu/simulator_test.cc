#include "attention/multi_gpu/simulator.h"

#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/core/problem.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace attnlab::multi_gpu {
namespace {

using ::testing::HasSubstr;

AttentionProblem Of(const std::string& line) { return AttentionProblem::Parse(line).value(); }

// Links and memory that take no time, so that only products count: 1 s for 10^12 FLOPs.
Machine Ideal() {
  Machine m;
  m.launch = m.host = 0;
  m.flops_per_second = 1e12;
  m.memory_per_second = 1e30;
  m.within = m.between = {1e30, 0};
  return m;
}

TEST(SimulatorTest, OneGpuTakesItsFlops) {
  // 4 · 16 heads · 1024² pairs · 64.
  EXPECT_NEAR(PredictOne(Of("hq=16,sq=1024,d=64"), Ideal()).value(), 4.294967296e-3, 1e-9);
}

TEST(SimulatorTest, HeadsThatDoNotDivideWaitForTheRankWithOneMore) {
  const AttentionProblem p = Of("hq=12,hkv=6,sq=1024,d=64");
  const double one = PredictOne(p, Ideal()).value();
  EXPECT_NEAR(Predict(Way::kHeads, p, 6, Ideal())->seconds, one / 6, 1e-12);
  EXPECT_NEAR(Predict(Way::kHeads, p, 4, Ideal())->seconds, one / 3, 1e-12);
  EXPECT_NEAR(Predict(Way::kHeads, p, 100, Ideal())->seconds, one / 6, 1e-12);
}

TEST(SimulatorTest, ZigzagBalancesACausalMask) {
  const AttentionProblem p = Of("hq=1,sq=8192,d=64,mask=causal");
  const double one = PredictOne(p, Ideal()).value();
  EXPECT_NEAR(Predict(Way::kZigzagRing, p, 8, Ideal())->seconds, one / 8, 1e-3 * one);
  // The last rank has a half of one pair of chunks and all of 7, of 32 in all.
  EXPECT_NEAR(Predict(Way::kRing, p, 8, Ideal())->seconds, one * 7.5 / 32, 1e-3 * one);
}

TEST(SimulatorTest, ALinkThatIsSlowerThanTheKernelIsWaitedFor) {
  const AttentionProblem p = Of("hq=2,sq=4096,d=64,dtype=bf16");
  const double step = PredictOne(p, Ideal()).value() / 4;
  Machine m = Ideal();
  m.within.latency = 0.5e-3;                                    // twice: K and V
  m.within.bytes_per_second = 2048 * 2 * 128 * 2 / (3 * step);  // K and V in 3 steps
  const auto ring = Predict(Way::kRing, p, 2, m);
  EXPECT_NEAR(ring->seconds, 1e-3 + 3 * step + step, 1e-9);
  EXPECT_NEAR(ring->waiting, 1e-3 + 2 * step, 1e-9);
  // A slow link between nodes holds up all ranks, since each waits for the one before.
  m = Ideal();
  m.ranks_per_node = 2;
  m.between.latency = 100 * step;
  EXPECT_GT(Predict(Way::kRing, p, 4, m)->seconds, 300 * step);
  EXPECT_LT(Predict(Way::kRing, p, 2, m)->seconds, 3 * step);
}

TEST(SimulatorTest, KeysThatNobodySeesStay) {
  Machine m = Ideal();
  m.within.bytes_per_second = 1e9;
  // In order, each rank sends the last 100 of its 1024 keys to the next one.
  const AttentionProblem p = Of("hq=1,sq=4096,d=64,dtype=bf16,mask=window:100:0");
  const double all = 1024 * 2 * 64 * 2 / 1e9, some = all * 100 / 1024;
  EXPECT_NEAR(Predict(Way::kRing, p, 4, m)->seconds, some, 0.1 * some);
  EXPECT_GT(Predict(Way::kRing, Of("hq=1,sq=4096,d=64,dtype=bf16"), 4, m)->seconds, 3 * all);
}

TEST(SimulatorTest, FewQueriesTravelAndComeBack) {
  Machine m = Ideal();
  m.within = {1e9, 1e-6};
  // 16 of 64 queries on each rank. Q travels beside the products; the last part of O and LSE comes after them.
  const AttentionProblem p = Of("hq=1,sq=64,skv=65536,d=64,dtype=bf16");
  const double products = PredictOne(p, m).value() / 4, back = 2e-6 + 16 * (64 * 2 + 4) / 1e9;
  const auto ring = Predict(Way::kRing, p, 4, m);
  EXPECT_NEAR(ring->seconds, products + back, 1e-9);
  EXPECT_NEAR(ring->waiting, back, 1e-9);
  EXPECT_NEAR(Predict(Way::kRing, p, 1, m)->seconds, 4 * products, 1e-9);
}

TEST(SimulatorTest, AllToAllSendsEachByteOnce) {
  const AttentionProblem p = Of("hq=8,sq=4096,d=64,dtype=bf16");
  Machine m = Ideal();
  m.within.bytes_per_second = 1e9;
  // Q, K, V and O of 1024 rows, of which 3/4 leave; LSE goes with O.
  const double bytes = 0.75 * 1024 * 8 * (4 * 64 * 2 + 4);
  const auto prediction = Predict(Way::kAllToAll, p, 4, m);
  EXPECT_NEAR(prediction->waiting, bytes / 1e9, 1e-9);
  EXPECT_NEAR(prediction->seconds, PredictOne(p, m).value() / 4 + bytes / 1e9, 1e-9);
}

TEST(SimulatorTest, RanksWithoutHeadsOnlySend) {
  const AttentionProblem p = Of("hq=4,hkv=2,sq=4096,d=64,dtype=bf16");
  Machine m = Ideal();
  m.ranks_per_node = 4;
  m.within.bytes_per_second = 1e9, m.between.bytes_per_second = 1e8;
  // Two ranks of 8 have a head each: half of Q, K, V, O and LSE, of which 4/8 come from the other node.
  const double bytes = 0.5 * 4096 * (4 * (2 * 64 * 2 + 4) + 2 * 2 * 64 * 2);
  const auto prediction = Predict(Way::kAllToAll, p, 8, m);
  EXPECT_NEAR(prediction->waiting, bytes / 2 / 1e8, 1e-9);
  EXPECT_NEAR(prediction->seconds, PredictOne(p, m).value() / 2 + bytes / 2 / 1e8, 1e-9);
}

TEST(SimulatorTest, Chooses) {
  Machine m = Ideal();
  m.flops_per_second = 7e14;
  m.launch = 4e-6;
  m.within = {3e11, 1e-5};
  EXPECT_EQ(Choose(Of("hq=16,sq=512,d=128,dtype=bf16"), 8, m)->ranks, 1);
  const std::string large = "sq=131072,d=128,dtype=bf16,mask=causal,";
  EXPECT_EQ(Choose(Of(large + "hq=32,hkv=8"), 8, m)->ranks, 8);
  EXPECT_EQ(Choose(Of(large + "hq=32,hkv=1"), 8, m)->way, Way::kZigzagRing);
}

TEST(SimulatorTest, ManyRanksAndLongSequences) {
  Machine m = Ideal();
  m.flops_per_second = 7e14;
  m.within = {3e11, 1e-5}, m.between = {5e10, 2e-5};
  const AttentionProblem p = Of("hq=64,hkv=8,sq=10000000,d=128,dtype=bf16,mask=causal");
  const double speedup = PredictOne(p, m).value() / Predict(Way::kZigzagRing, p, 1024, m)->seconds;
  EXPECT_GT(speedup, 900);
  EXPECT_LE(speedup, 1024);
}

// Each way on two GPUs, as attnlab bench has measured it.
TEST(SimulatorTest, AgreesWithTwoGpusWithin10Percent) {
  const std::map<std::string, Way> kWays = {{"zigzag", Way::kZigzagRing},
                                            {"ring", Way::kRing},
                                            {"alltoall", Way::kAllToAll},
                                            {"heads", Way::kHeads}};
  Machine h100;
  h100.memory_per_second = 3e12;
  h100.l2_bytes = 50e6;
  h100.host = 15.5e-6;
  for (const auto& [directory, machine] : {std::pair("h200", Machine()), std::pair("h100", h100)}) {
    std::ifstream file(absl::StrCat("docs/results/", directory, "/multi_gpu.json"));
    const nlohmann::json results = nlohmann::json::parse(file);
    int compared = 0;
    for (const auto& row : results["rows"]) {
      const auto way = kWays.find(row["way"].get<std::string>());
      if (way == kWays.end()) continue;
      const AttentionProblem p = Of(row["problem"]);
      const double slowest =
          row.value("slowest_rank_seconds", row["one_rank_seconds"].get<double>());
      Machine of_host = machine;
      of_host.host = row.value("host_seconds", machine.host);
      const auto predicted = Predict(way->second, p, row["ranks"], WithRateOf(p, slowest, of_host));
      ASSERT_TRUE(predicted.ok()) << predicted.status();
      const double error = predicted->seconds / row["median_seconds"].get<double>() - 1;
      EXPECT_LT(std::abs(error), 0.1)
          << directory << " " << row["way"] << " " << p.ToString() << ": " << error;
      ++compared;
    }
    EXPECT_GE(compared, 20);
  }
}

TEST(SimulatorTest, WhatItDoesNotTake) {
  const auto message = [](const char* line, int ranks, const Machine& m) {
    return std::string(Predict(Way::kRing, Of(line), ranks, m).status().message());
  };
  EXPECT_THAT(message("hq=1,sq=8,d=8", 0, Ideal()), HasSubstr("ranks: 0 is not in 1..4096"));
  EXPECT_THAT(message("hq=1,sq=0,d=8", 2, Ideal()), HasSubstr("no query sees a key in b=1"));
  Machine late = Ideal();
  late.between.latency = -1;
  EXPECT_THAT(message("hq=1,sq=8,d=8", 2, late), HasSubstr("between.latency: -1 is not 0 or more"));
  EXPECT_THAT(message("hq=1,sq=8,d=8,lens=padded", 2, Ideal()), HasSubstr("lens"));
  Machine slow;
  slow.flops_per_second = 0;
  EXPECT_THAT(message("hq=1,sq=8,d=8", 2, slow), HasSubstr("flops_per_second: 0 is not positive"));
}

}  // namespace
}  // namespace attnlab::multi_gpu
