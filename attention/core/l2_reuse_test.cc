#include "attention/core/l2_reuse.h"

#include <cstdint>
#include <string>

#include "attention/core/problem.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

TEST(L2BytesForAllTest, WhereL2HasTwoPartsBothHoldWhatAllRead) {
  DeviceInfo gpu;
  gpu.last_level_cache_bytes = 60;
  for (const int capability : {80, 90, 100, 103}) {
    gpu.compute_capability = capability;
    EXPECT_EQ(L2BytesForAll(gpu), 30) << capability;
  }
  for (const int capability : {75, 89, 120}) {
    gpu.compute_capability = capability;
    EXPECT_EQ(L2BytesForAll(gpu), 60) << capability;
  }
}

// The traffic of a kernel that reads 1000 bytes, and some of them again.
Traffic After(const ReadAgain& again) {
  Traffic traffic;
  traffic.bytes_read = 1000;
  again.AddTo(&traffic);
  return traffic;
}

TEST(ReadAgainTest, HalfAndTwiceTheRoomAreClear) {
  const struct {
    double since;
    int64_t read;
    bool l2_decides;
  } kCases[] = {{0, 1000, false},  {50, 1000, false}, {51, 1000, true},  {100, 1000, true},
                {101, 1500, true}, {199, 1500, true}, {200, 1500, false}};
  for (const auto& c : kCases) {
    ReadAgain again(100);
    again.Add(500, c.since);
    EXPECT_EQ(After(again).bytes_read, c.read) << c.since;
    EXPECT_EQ(After(again).l2_decides, c.l2_decides) << c.since;
  }
}

TEST(ReadAgainTest, ATenthMayBeUnclear) {
  ReadAgain again(100);
  again.Add(1000, 1000);
  again.Add(200, 100);
  EXPECT_FALSE(After(again).l2_decides);
  again.Add(1, 100);
  EXPECT_TRUE(After(again).l2_decides);
}

// Bytes read again of 1024 keys of 4 bytes in two heads, if L2 holds nothing.
int64_t KvAgain(const std::string& line, int64_t rows, int64_t first_row = 0) {
  KvWalk walk;
  walk.heads = 2;
  walk.first_row = first_row;
  walk.rows = rows;
  ReadAgain again(0);
  again.AddKv(*AttentionProblem::Parse(line), walk);
  EXPECT_FALSE(After(again).l2_decides);
  return After(again).bytes_read - 1000;
}

TEST(ReadAgainTest, EachStepReadsTheKeysThatItShares) {
  EXPECT_EQ(KvAgain("hq=2,sq=1024,d=1,dtype=bf16", 256), 2 * 4 * 3 * 1024);
  EXPECT_EQ(KvAgain("hq=2,sq=1024,d=1,dtype=bf16", 1024), 0);
  EXPECT_EQ(KvAgain("hq=2,sq=1024,d=1,dtype=bf16", 256, 512), 2 * 4 * 1024);
  EXPECT_EQ(KvAgain("hq=2,sq=1024,d=1,dtype=bf16,mask=causal", 256), 2 * 4 * (256 + 512 + 768));
  EXPECT_EQ(KvAgain("hq=2,sq=1024,d=1,dtype=bf16,mask=window:256:0", 256), 2 * 4 * 3 * 256);
}

TEST(ReadAgainTest, VeryManySteps) {
  const double all = 2.0 * 4 * ((1 << 20) - 1) * 1024;
  EXPECT_NEAR(KvAgain("hq=2,sq=1048576,skv=1024,d=1,dtype=bf16", 1), all, 1e-6 * all);
}

TEST(ReadAgainTest, KeysInUseAreThoseOfAllHeadsAtATime) {
  const AttentionProblem problem = *AttentionProblem::Parse("hq=8,sq=1024,d=1,dtype=bf16");
  KvWalk walk;
  walk.heads = 8;
  walk.rows = 512;
  for (const int heads : {1, 2, 4}) {
    walk.heads_at_a_time = heads;
    ReadAgain again(2 * 4096);
    again.AddKv(problem, walk);
    EXPECT_EQ(After(again).bytes_read, heads <= 2 ? 1000 : 1000 + 8 * 4096) << heads;
    EXPECT_EQ(After(again).l2_decides, heads == 2) << heads;
  }
  // Nothing keeps blocks that share a head in step.
  walk.shared = true;
  ReadAgain again(2 * 4096);
  again.AddKv(problem, walk);
  EXPECT_TRUE(After(again).l2_decides);
}

}  // namespace
}  // namespace attnlab
