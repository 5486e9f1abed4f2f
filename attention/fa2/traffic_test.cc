// The model of device/grid_traffic.h, for the grids that FA2 chooses.
#include <cstdint>
#include <string>

#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/device/grid_traffic.h"
#include "attention/fa2/options.h"
#include "gtest/gtest.h"

namespace attnlab::fa2 {
namespace {

// A GPU of 4 multiprocessors, which runs 8 tiles of 128 rows at a time for head dim 128 in 16 bits.
Traffic Of(const std::string& line, int64_t l2, const std::string& config = "") {
  const AttentionProblem problem = *AttentionProblem::Parse(line);
  DeviceInfo gpu;
  gpu.device = Device::Cuda(0);
  gpu.compute_capability = 90;
  gpu.multiprocessors = 4;
  gpu.last_level_cache_bytes = l2;
  const Options options = *OptionsFor(problem, gpu, 90, *LaunchConfig::Parse(config));
  return device::GridTraffic(problem, gpu, options.grid, options.Rows(), options.blocks);
}

TEST(TrafficTest, InL2EverythingIsReadOnce) {
  for (const std::string line :
       {"b=2,hq=4,sq=4096,d=64", "b=2,hq=4,sq=4096,d=128,dtype=fp32,mask=causal"}) {
    const Traffic least = CompulsoryTraffic(*AttentionProblem::Parse(line));
    const Traffic traffic = Of(line, 1 << 30);
    EXPECT_EQ(traffic.bytes_read, least.bytes_read);
    EXPECT_EQ(traffic.bytes_written, least.bytes_written);
    EXPECT_EQ(traffic.flops, least.flops);
    EXPECT_FALSE(traffic.l2_decides);
  }
}

TEST(TrafficTest, BeyondL2EachRoundMayReadKAndVAgain) {
  const int64_t q = 2 * 4 * 4096 * 128 * 2, kv = 2 * q;
  // Four rounds of 1024 rows. Their blocks walk K and V side by side as long as they stay in step.
  const Traffic traffic = Of("b=2,hq=4,sq=4096,d=128", 1 << 10);
  EXPECT_EQ(traffic.bytes_read, q + 4 * kv);
  EXPECT_EQ(traffic.bytes_written, q);
  EXPECT_TRUE(traffic.l2_decides);
  // A single round reads K and V once in any case.
  const Traffic once = Of("b=2,hq=4,sq=1024,d=128", 1 << 10);
  EXPECT_EQ(once.bytes_read, (q + kv) / 4);
  EXPECT_FALSE(once.l2_decides);
}

TEST(TrafficTest, RoundsAreThoseOfTheEngine) {
  const std::string line = "b=1,hq=1,sq=4096,d=128,dtype=fp32";
  const int64_t q = 4096 * 128 * 4, kv = 2 * q;
  // 4 multiprocessors with 2 blocks of 64 rows each, and with 1 block of 128.
  EXPECT_EQ(Of(line, 1 << 10, "mma=tf32x3").bytes_read, q + 8 * kv);
  EXPECT_EQ(Of(line, 1 << 10, "tile_q=128").bytes_read, q + 8 * kv);
}

TEST(TrafficTest, TilesAfterAllGroupsReadOnceMore) {
  // On CUDA cores, the first of each head's four tiles comes after all groups. Q is 16 MiB; K and V
  // are 32 MiB. L2 has room for the K and V of some heads. A quarter of K and V is read once more.
  const std::string line = "hq=64,sq=512,d=128,dtype=fp32,mask=causal";
  const Traffic traffic = Of(line, 16 << 20, "tile_q=128");
  EXPECT_EQ(traffic.bytes_read, (16 + 32 + 8) << 20);
  EXPECT_FALSE(traffic.l2_decides);
  EXPECT_EQ(Of(line, 128 << 20, "tile_q=128").bytes_read, (16 + 32) << 20);
}

TEST(TrafficTest, RowsOfTilesAfterAllGroupsReadWhatL2HasDropped) {
  // Two tiles of each head come after all groups. Q is 1152 KiB; K and V are 2304 KiB. A quarter of
  // K and V is read for the second tiles of all heads, and half of that for the first ones.
  const std::string line = "hq=9,sq=1024,d=32,dtype=fp32,mask=causal";
  EXPECT_EQ(Of(line, 1024 << 10, "tile_q=128").bytes_read, (1152 + 2304 + 576 + 288) << 10);
  EXPECT_EQ(Of(line, 1536 << 10, "tile_q=128").bytes_read, (1152 + 2304 + 576) << 10);
}

TEST(TrafficTest, HugeAndEmptyProblems) {
  EXPECT_GT(Of("hq=1,sq=2147483647,d=256,dtype=fp32,mask=causal", 1 << 20).bytes_read,
            int64_t{1} << 50);
  EXPECT_GT(Of("hq=262144,hkv=1,sq=1000000,d=8,mask=causal", 1 << 20, "pack=always").bytes_read, 0);
  EXPECT_EQ(Of("b=2,hq=4,sq=0,skv=0,d=64,mask=causal", 1 << 20).bytes_read, 0);
}

}  // namespace
}  // namespace attnlab::fa2
