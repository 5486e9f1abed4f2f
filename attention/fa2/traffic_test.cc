#include "attention/fa2/traffic.h"

#include <cstdint>
#include <string>

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

}  // namespace
}  // namespace attnlab::fa2
