#include "attention/fa2/traffic.h"

#include <cstdint>
#include <string>

#include "attention/fa2/grid.h"
#include "attention/fa2/options.h"
#include "attention/launch_config.h"
#include "attention/machine.h"
#include "attention/problem.h"
#include "gtest/gtest.h"

namespace attnlab::fa2 {
namespace {

DeviceInfo Gpu(int64_t l2) {
  DeviceInfo gpu;
  gpu.device = Device::Cuda(0);
  gpu.compute_capability = 90;
  gpu.multiprocessors = 4;
  gpu.last_level_cache_bytes = l2;
  return gpu;
}

Traffic TrafficOf(const std::string& line, int64_t l2, const std::string& config = "") {
  const AttentionProblem problem = *AttentionProblem::Parse(line);
  const DeviceInfo gpu = Gpu(l2);
  return ExpectedTraffic(problem, gpu, *OptionsFor(problem, gpu, 90, *LaunchConfig::Parse(config)));
}

TEST(TrafficTest, InL2EverythingIsReadOnce) {
  const std::string line = "b=2,hq=4,sq=4096,d=64";
  const Traffic least = CompulsoryTraffic(*AttentionProblem::Parse(line));
  const Traffic traffic = TrafficOf(line, 1 << 30);
  EXPECT_EQ(traffic.bytes_read, least.bytes_read);
  EXPECT_EQ(traffic.bytes_written, least.bytes_written);
}

TEST(TrafficTest, BeyondL2EachRoundOfTilesReadsKAndV) {
  // 4 multiprocessors with 2 blocks of 128 rows: 1024 rows a round, four rounds.
  const int64_t q = 2 * 4 * 4096 * 128 * 2, kv = 2 * q;
  const Traffic traffic = TrafficOf("b=2,hq=4,sq=4096,d=128", 1 << 10);
  EXPECT_EQ(traffic.bytes_read, q + 4 * kv);
  EXPECT_EQ(traffic.bytes_written, q);
}

TEST(TrafficTest, AGroupOfMoreHeadsThanARoundHasRows) {
  const int64_t q = 65536 * 128 * 2, kv = 2 * 4096 * 128 * 2;
  // One query of 65536 heads that share K and V: 1024 rows a round.
  const Traffic traffic =
      TrafficOf("b=1,hq=65536,hkv=1,sq=1,skv=4096,d=128", 1 << 10, "pack=always");
  EXPECT_GE(traffic.bytes_read, q + kv);
  EXPECT_EQ(traffic.bytes_written, q);
}

TEST(TrafficTest, RoundsAreThoseOfTheEngine) {
  const std::string line = "b=1,hq=1,sq=4096,d=128,dtype=fp32";
  const int64_t q = 4096 * 128 * 4, kv = 2 * q;
  // 4 multiprocessors with 2 blocks of 64 rows, and with 1 of 128.
  EXPECT_EQ(TrafficOf(line, 1 << 10, "mma=tf32x3").bytes_read, q + 8 * kv);
  EXPECT_EQ(TrafficOf(line, 1 << 10, "mma=none,tile_q=128").bytes_read, q + 8 * kv);
}

TEST(TrafficTest, UnderACausalMaskRoundsReadWhatTheirRowsSee) {
  const int64_t q = 2 * 4 * 4096 * 128 * 2, kv = 2 * q;
  // Rounds that end at 4096, 3072, 2048 and 1024.
  EXPECT_EQ(TrafficOf("b=2,hq=4,sq=4096,d=128,mask=causal", 1 << 10).bytes_read,
            q + kv * (4 + 3 + 2 + 1) / 4);
}

constexpr int64_t kMiB = 1 << 20;

// With 8 units in so many groups, each with tiles of 128 rows of which 8 run at a time.
Traffic InGroups(uint32_t groups, const std::string& line, int64_t l2) {
  const AttentionProblem problem = *AttentionProblem::Parse(line);
  const DeviceInfo gpu = Gpu(l2);
  Options options = *OptionsFor(problem, gpu, 90, {});
  options.grid = MakeGrid(8, 8, static_cast<uint32_t>((problem.sq + 127) / 128), groups, 1);
  return ExpectedTraffic(problem, gpu, options);
}

// Eight heads of 2 MiB of K and V, and 1 MiB of Q; what fits has half of L2.
constexpr char kCausal[] = "hq=8,sq=4096,d=128,mask=causal";

TEST(TrafficTest, OfAGroupThatDoesNotFitEachRoundReadsWhatItSees) {
  // Rounds of 4 of the 32 tiles of two heads, which see all keys, 7/8 of them, …: 36/8 of a head.
  const Traffic rounds = InGroups(4, kCausal, kMiB);
  EXPECT_EQ(rounds.bytes_read, (8 + 8 * 9) * kMiB);
  EXPECT_FALSE(rounds.reads_between.has_value());
  const Traffic once = InGroups(4, kCausal, 16 * kMiB);
  EXPECT_EQ(once.bytes_read, (8 + 8 * 2) * kMiB);
  EXPECT_FALSE(once.reads_between.has_value());
  for (const int64_t l2 : {6, 10}) {  // either side of twice 4 MiB
    const Traffic near = InGroups(4, kCausal, l2 * kMiB);
    EXPECT_EQ(near.bytes_read, l2 == 6 ? rounds.bytes_read : once.bytes_read);
    ASSERT_TRUE(near.reads_between.has_value());
    EXPECT_EQ(near.reads_between->least, once.bytes_read);
    EXPECT_EQ(near.reads_between->most, rounds.bytes_read);
  }
}

TEST(TrafficTest, GroupsMayBeOfTwoSizes) {
  // Two groups of three heads and one of two; rounds of 341 and of 512 rows.
  int64_t keys = 0;
  for (int64_t end = 4096; end > 0; end -= 341) keys += 6 * end;
  for (int64_t end = 4096; end > 0; end -= 512) keys += 2 * end;
  EXPECT_EQ(InGroups(3, kCausal, kMiB).bytes_read, 8 * kMiB + keys * 512);
}

TEST(TrafficTest, WhereTwoHeadsMayNotFitBlocksMayGetOutOfStep) {
  EXPECT_FALSE(InGroups(8, kCausal, 16 * kMiB).reads_between.has_value());
  const Traffic traffic = InGroups(8, kCausal, 8 * kMiB);
  EXPECT_EQ(traffic.bytes_read, (8 + 8 * 2) * kMiB);
  ASSERT_TRUE(traffic.reads_between.has_value());
  EXPECT_EQ(traffic.reads_between->least, traffic.bytes_read);
  // 32 tiles of a head see 1/32 of 2 MiB, 2/32, …
  EXPECT_EQ(traffic.reads_between->most, (8 + 8 * 33) * kMiB);
  // Without a mask all of it.
  const Traffic full = InGroups(8, "hq=8,sq=4096,d=128", 8 * kMiB);
  ASSERT_TRUE(full.reads_between.has_value());
  EXPECT_EQ(full.reads_between->most, (8 + 8 * 64) * kMiB);
}

// With 2 of the 32 tiles of each head behind the groups.
Traffic WithEndTiles(int64_t l2) {
  const AttentionProblem problem = *AttentionProblem::Parse(kCausal);
  const DeviceInfo gpu = Gpu(l2);
  Options options = *OptionsFor(problem, gpu, 90, {});
  options.grid = MakeGrid(8, 8, 32, 4, 1, /*end_tiles=*/2);
  return ExpectedTraffic(problem, gpu, options);
}

TEST(TrafficTest, TilesAtTheEndReadWhatTheySeeOnceMore) {
  // 256 keys of 512 bytes, 1/8 of 1 MiB, of each head; those of the last two heads are in L2 still
  // beside the others'.
  EXPECT_EQ(WithEndTiles(16 * kMiB).bytes_read, (8 + 8 * 2) * kMiB + 6 * kMiB / 8);
  // All K and V are.
  EXPECT_EQ(WithEndTiles(64 * kMiB).bytes_read, (8 + 8 * 2) * kMiB);
  // Groups do not fit, nor do the 8 heads of a round of one tile each: the second tile of each head
  // sees 256 keys, the first 128. Rounds of groups end where the tiles at the end begin.
  int64_t keys = 0;
  for (int64_t end = 4096; end > 256; end -= 512) keys += 8 * end;
  EXPECT_EQ(WithEndTiles(kMiB).bytes_read, 8 * kMiB + (keys + 8 * (256 + 128)) * 512);
}

TEST(TrafficTest, AHeadAloneHasNoNextOne) {
  // Between one and two of what half a round sees.
  EXPECT_TRUE(InGroups(8, kCausal, 8 * kMiB).reads_between.has_value());
  const auto alone = [](const std::string& line) {
    const AttentionProblem problem = *AttentionProblem::Parse(line);
    return ExpectedTraffic(problem, Gpu(8 * kMiB), *OptionsFor(problem, Gpu(8 * kMiB), 90, {}));
  };
  EXPECT_FALSE(alone("hq=1,sq=4096,d=128,mask=causal").reads_between.has_value());
  // Nor have the heads of a single KV head.
  EXPECT_FALSE(alone("hq=8,hkv=1,sq=4096,d=128").reads_between.has_value());
  // Of four heads of a KV head two are beside another one's.
  const Traffic shared = InGroups(8, "hq=8,hkv=2,sq=4096,d=128", 8 * kMiB);
  ASSERT_TRUE(shared.reads_between.has_value());
  EXPECT_EQ(shared.reads_between->least, (8 + 2 * 2) * kMiB);
  EXPECT_EQ(shared.reads_between->most, (8 + 2 * 2 + (8 * 64 - 4) / 2) * kMiB);
}

TEST(TrafficTest, HugeAndEmptyProblems) {
  const auto of = [](const std::string& line, const std::string& config = "") {
    return TrafficOf(line, 1 << 20, config);
  };
  const Traffic huge = of("hq=1,sq=2147483647,d=256,mask=causal");
  EXPECT_GT(huge.bytes_read, int64_t{1} << 50);
  EXPECT_LE(huge.Reads().most, int64_t{3} << 60);
  // Tiles of one query, of 2^18 heads.
  EXPECT_GT(of("hq=262144,hkv=1,sq=1000000,skv=1000000,d=8,mask=causal", "pack=always").bytes_read,
            0);
  EXPECT_EQ(of("b=2,hq=4,sq=0,skv=0,d=64,mask=causal").bytes_read, 0);
  EXPECT_EQ(of("b=2,hq=4,sq=0,skv=0,d=64,dtype=fp32,mask=causal").bytes_read, 0);
  const AttentionProblem problem = *AttentionProblem::Parse("b=2,hq=4,sq=512,d=64,mask=causal");
  DeviceInfo nothing;
  EXPECT_GT(
      ExpectedTraffic(problem, nothing, *OptionsFor(problem, Gpu(1 << 20), 90, {})).bytes_read, 0);
}

TEST(TrafficTest, HeadsOfFewTilesAreInStep) {
  const Traffic traffic = InGroups(8, "hq=8,sq=256,skv=4096,d=128,mask=causal", kMiB);
  EXPECT_EQ(traffic.bytes_read, kMiB / 2 + 8 * 2 * kMiB);
  EXPECT_FALSE(traffic.reads_between.has_value());
}

TEST(TrafficTest, UnderAWindowWhatARoundSeesHasToFit) {
  // Of K and V of two heads, 4 MiB, 2 * (512 + 256) rows.
  const Traffic traffic = InGroups(4, "hq=8,sq=4096,d=128,mask=window:256:0", 3 * kMiB);
  EXPECT_EQ(traffic.bytes_read, (8 + 8 * 2) * kMiB);
  EXPECT_FALSE(traffic.reads_between.has_value());
  // Of single heads where one ends and the next begins 2 * (512 + 256) rows, too.
  EXPECT_FALSE(
      InGroups(8, "hq=8,sq=4096,d=128,mask=window:256:0", 3 * kMiB).reads_between.has_value());
  EXPECT_TRUE(
      InGroups(8, "hq=8,sq=4096,d=128,mask=window:256:0", 2 * kMiB).reads_between.has_value());
}

TEST(TrafficTest, UnitsThatShareAKvHeadOneAfterTheOtherWalkItEach) {
  const std::string line = "hq=8,hkv=2,sq=4096,d=128";
  EXPECT_EQ(InGroups(8, line, 1 << 10).bytes_read, (8 + 2 * 4 * 4 * 2) * kMiB);
  // Side by side they walk it together, in more rounds.
  EXPECT_EQ(InGroups(2, line, 1 << 10).bytes_read, (8 + 2 * 16 * 2) * kMiB);
  // As do those that are under way at a time.
  EXPECT_EQ(InGroups(8, "hq=8,hkv=2,sq=256,skv=4096,d=128", 1 << 10).bytes_read,
            kMiB / 2 + 2 * 2 * kMiB);
}

}  // namespace
}  // namespace attnlab::fa2
