#include "attention/cpu/schedule.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace attnlab::cpu {
namespace {

DeviceInfo Threads(int threads) {
  DeviceInfo device;
  device.threads = threads;
  return device;
}

// The head dim does not matter here.
AttentionProblem Problem(const char* line) {
  const absl::StatusOr<AttentionProblem> problem =
      AttentionProblem::Parse(absl::StrCat(line, ",d=64"));
  EXPECT_TRUE(problem.ok()) << problem.status();
  return problem.value_or(AttentionProblem());
}

// Every (sequence, KV head, row, key) is in exactly one item, and slots are used once.
void ExpectCovers(const AttentionProblem& p, const AttentionTensors& t, const Options& options) {
  const Schedule schedule(p, options);
  std::vector<int64_t> offsets(schedule.OffsetCount());
  const int64_t count = schedule.Count(t, offsets.data());
  // [sequence][head][row][key]
  std::vector<int> seen(p.b * p.hkv * p.sq * p.GroupSize() * p.skv);
  std::vector<int> slots(schedule.slots());
  for (int64_t i = 0; i < count; ++i) {
    const Item item = schedule.ItemAt(t, offsets.data(), i);
    const Sequence s = SequenceOf(p, t, item.sequence);
    ASSERT_LT(item.row_begin, item.row_end);
    ASSERT_LE(item.row_end - item.row_begin, schedule.tile_q());
    ASSERT_LE(item.row_end, s.q_len * p.GroupSize());
    ASSERT_LE(item.kv_end, s.kv_len);
    if (item.slot >= 0) {
      ASSERT_LT(item.slot, schedule.slots());
      EXPECT_EQ(slots[item.slot]++, 0);
      EXPECT_EQ(item.kv_begin % schedule.chunk(), 0);
      EXPECT_EQ(schedule.chunk() % options.tile_kv, 0);
    } else {
      EXPECT_EQ(item.kv_begin, 0);
      EXPECT_EQ(item.kv_end, s.kv_len);
    }
    for (int64_t r = item.row_begin; r < item.row_end; ++r) {
      const int64_t row = (item.sequence * p.hkv + item.kv_head) * p.sq * p.GroupSize() + r;
      for (int64_t j = item.kv_begin; j < item.kv_end; ++j) ++seen[row * p.skv + j];
    }
  }
  for (int64_t i = 0; i < p.b; ++i) {
    const Sequence s = SequenceOf(p, t, i);
    for (int64_t h = 0; h < p.hkv; ++h) {
      for (int64_t r = 0; r < p.sq * p.GroupSize(); ++r) {
        for (int64_t j = 0; j < p.skv; ++j) {
          const bool used = r < s.q_len * p.GroupSize() && j < s.kv_len;
          const int64_t row = (i * p.hkv + h) * p.sq * p.GroupSize() + r;
          ASSERT_EQ(seen[row * p.skv + j], used ? 1 : 0) << i << " " << h << " " << r << " " << j;
        }
      }
    }
  }
}

TEST(ScheduleTest, CoversEachPairOnce) {
  for (const char* line : {"hq=1,sq=1,skv=1", "b=2,hq=6,hkv=2,sq=33,skv=20",
                           "b=2,hq=2,sq=1,skv=3000", "hq=8,hkv=1,sq=3,skv=4099,mask=causal"}) {
    for (int64_t tile_q : {1, 7, 64, 256}) {
      for (int64_t tile_kv : {1, 100, 128}) {
        ExpectCovers(Problem(line), {}, Options{2, tile_q, tile_kv});
      }
    }
  }
}

TEST(ScheduleTest, CoversSequencesOfAnyLength) {
  const AttentionProblem padded = Problem("b=4,hq=4,hkv=2,sq=9,skv=2500,lens=padded");
  const int32_t q_len[] = {0, 9, 1, 4}, kv_len[] = {2500, 0, 2049, 7};
  AttentionTensors t;
  t.q_len = {q_len, 4};
  t.kv_len = {kv_len, 4};
  ExpectCovers(padded, t, Options{2, 4, 128});
  ExpectCovers(padded, t, Options{2, 64, 128});

  const AttentionProblem packed = Problem("b=3,hq=2,sq=100,skv=70,lens=packed");
  const int32_t cu_q[] = {0, 0, 100, 101}, cu_kv[] = {0, 70, 75, 75};
  AttentionTensors u;
  u.cu_seqlens_q = {cu_q, 4};
  u.cu_seqlens_kv = {cu_kv, 4};
  ExpectCovers(packed, u, Options{2, 64, 128});
}

// The bits of a result may depend on how keys are cut, so the cut must not depend on threads.
TEST(ScheduleTest, CutsOfKeysDoNotDependOnThreads) {
  for (const char* line : {"hq=1,sq=1,skv=100000", "b=64,hq=64,sq=1,skv=100000", "hq=1,sq=2000"}) {
    const AttentionProblem p = Problem(line);
    const absl::StatusOr<Options> one = OptionsFor(p, Threads(1), {});
    const absl::StatusOr<Options> many = OptionsFor(p, Threads(100), {});
    ASSERT_TRUE(one.ok() && many.ok());
    EXPECT_EQ(one->tile_kv, many->tile_kv);
    EXPECT_EQ(Schedule(p, *one).chunk(), Schedule(p, *many).chunk());
    EXPECT_EQ(Schedule(p, *one).max_chunks(), Schedule(p, *many).max_chunks());
  }
}

TEST(ScheduleTest, OneLongHeadFeedsManyThreads) {
  const AttentionProblem p = Problem("hq=1,sq=1,skv=131072");
  const absl::StatusOr<Options> options = OptionsFor(p, Threads(64), {});
  ASSERT_TRUE(options.ok());
  EXPECT_GE(Schedule(p, *options).max_chunks(), 64);
}

TEST(ScheduleTest, LittleWorkTakesFewThreads) {
  const auto threads = [](const char* line, const char* config = "") {
    const absl::StatusOr<Options> options =
        OptionsFor(Problem(line), Threads(16), *LaunchConfig::Parse(config));
    EXPECT_TRUE(options.ok()) << options.status();
    return options.value_or(Options()).threads;
  };
  // Each visible pair takes 128 multiply-adds, so 2048 pairs are work for one thread.
  EXPECT_EQ(128 * 2048, kMultiplyAddsPerThread);
  EXPECT_EQ(threads("b=4,hq=8,sq=8"), 1);
  EXPECT_EQ(threads("b=4,hq=8,sq=1,skv=127"), 1);
  EXPECT_EQ(threads("b=4,hq=8,sq=1,skv=128"), 2);
  EXPECT_EQ(threads("b=4,hq=8,sq=32"), 16);
  EXPECT_EQ(threads("b=4,hq=8,sq=31,mask=causal"), 7);
  EXPECT_EQ(threads("b=4,hq=8,sq=0"), 1);
  EXPECT_EQ(threads("hq=8,sq=100000"), 16);
  // A configured number of threads is used as it is.
  EXPECT_EQ(threads("b=4,hq=8,sq=8", "threads=5"), 5);
}

TEST(ScheduleTest, LongestTilesComeFirst) {
  const AttentionProblem p = Problem("hq=1,sq=512,mask=causal");
  const Schedule schedule(p, Options{2, 64, 128});
  std::vector<int64_t> offsets(schedule.OffsetCount());
  ASSERT_EQ(schedule.Count({}, offsets.data()), 8);
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(schedule.ItemAt({}, offsets.data(), i).row_begin, (7 - i) * 64);
  }
}

TEST(ScheduleTest, OptionsAreChecked) {
  const AttentionProblem p = Problem("hq=8,sq=512");
  const auto error = [&](const char* line) {
    const absl::StatusOr<LaunchConfig> config = LaunchConfig::Parse(line);
    EXPECT_TRUE(config.ok());
    const absl::Status status = OptionsFor(p, Threads(2), *config).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(error("tile_q=0"), "config: tile_q: \"0\" is not an integer in 1..4096");
  EXPECT_EQ(error("tile_kv=4097"), "config: tile_kv: \"4097\" is not an integer in 1..4096");
  EXPECT_EQ(error("threads=x"), "config: threads: \"x\" is not an integer in 1..4096");
  EXPECT_EQ(error("tile=1"), "config: unknown key \"tile\"; known are threads, tile_q, tile_kv");

  const absl::StatusOr<LaunchConfig> config = LaunchConfig::Parse("threads=3,tile_q=5,tile_kv=6");
  ASSERT_TRUE(config.ok());
  const absl::StatusOr<Options> options = OptionsFor(p, Threads(2), *config);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->threads, 3);
  EXPECT_EQ(options->tile_q, 5);
  EXPECT_EQ(options->tile_kv, 6);
}

}  // namespace
}  // namespace attnlab::cpu
