#include "attention/split_k/traffic.h"

#include <cstdint>
#include <string>
#include <utility>

#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "gtest/gtest.h"

namespace attnlab::split_k {
namespace {

Traffic Of(const std::string& line, const std::string& config, int64_t l2) {
  DeviceInfo gpu;
  gpu.device = Device::Cuda(0);
  gpu.compute_capability = 90;
  gpu.multiprocessors = 132;
  gpu.shared_memory_per_block = 227 * 1024;
  gpu.last_level_cache_bytes = l2;
  const AttentionProblem problem = *AttentionProblem::Parse(line);
  return ExpectedTraffic(problem, gpu, *OptionsFor(problem, gpu, 90, *LaunchConfig::Parse(config)));
}

Traffic Least(const std::string& line) { return CompulsoryTraffic(*AttentionProblem::Parse(line)); }

TEST(TrafficTest, OneTileWithOnePartMovesWhatItMust) {
  for (const std::string page : {"", ",page=16"}) {
    const std::string line = "b=4,hq=8,hkv=2,sq=4,skv=4096,d=128" + page;
    const Traffic traffic = Of(line, "k_splits=1", 0);
    EXPECT_EQ(traffic.bytes_read, Least(line).bytes_read);
    EXPECT_EQ(traffic.bytes_written, Least(line).bytes_written);
    EXPECT_EQ(traffic.flops, Least(line).flops);
    EXPECT_FALSE(traffic.l2_decides);
  }
}

TEST(TrafficTest, PartsAreWrittenAndReadAgain) {
  const std::string line = "b=4,hq=8,hkv=2,sq=4,skv=4096,d=128,dv=62,page=16";
  const int64_t parts = 4 * 8 * 4 * 3 * (8 + 4 * 64);  // 3 of each row
  const Traffic traffic = Of(line, "k_splits=3", 0);
  EXPECT_EQ(traffic.bytes_read, Least(line).bytes_read + parts);
  EXPECT_EQ(traffic.bytes_written, Least(line).bytes_written + parts);
  // From L2.
  const Traffic cached = Of(line, "k_splits=3", 1 << 30);
  EXPECT_EQ(cached.bytes_read, Least(line).bytes_read);
  EXPECT_EQ(cached.bytes_written, Least(line).bytes_written + parts);
  // No more than there are keys for.
  const std::string few = "b=100,hq=1,sq=1,skv=500,d=200";
  EXPECT_EQ(Of(few, "batch_invariant=true", 0).bytes_written,
            Least(few).bytes_written + 100 * 4 * (8 + 4 * 200));
  // Early queries of a causal mask see few keys: 16 tiles of 4 queries have one part, then 16 have two.
  const std::string causal = "b=2,hq=8,hkv=2,sq=128,d=64,mask=causal";
  EXPECT_EQ(Of(causal, "k_splits=2", 0).bytes_written,
            Least(causal).bytes_written + 4 * 16 * 16 * 2 * (8 + 4 * 64));
  // Those of a cluster are not.
  EXPECT_EQ(Of(line, "k_splits=4", 0).bytes_written, Least(line).bytes_written);
}

TEST(TrafficTest, BeyondL2EveryQueryTileReadsKAndV) {
  const int64_t kv = 4 * 2 * 4096 * 256 * 2;
  // Three tiles of 4 queries of 4 heads; and one query of 32 heads, which are two tiles.
  for (const auto& [line, again] :
       {std::pair<std::string, int64_t>{"b=4,hq=8,hkv=2,sq=12,skv=4096,d=128", 2 * kv},
        {"b=4,hq=64,hkv=2,sq=1,skv=4096,d=128", kv}}) {
    EXPECT_EQ(Of(line, "k_splits=1", 0).bytes_read, Least(line).bytes_read + again);
    EXPECT_EQ(Of(line, "k_splits=1", 1 << 30).bytes_read, Least(line).bytes_read);
  }
}

TEST(TrafficTest, WithoutQueriesThereIsNone) {
  EXPECT_EQ(Of("hq=1,sq=0,skv=9,d=64", "", 0).Bytes(), 0);
}

}  // namespace
}  // namespace attnlab::split_k
