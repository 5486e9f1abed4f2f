#include "attention/fa1/options.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::fa1 {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHopper = 227 << 10, kTuring = 64 << 10;

DeviceInfo Gpu(int64_t shared_bytes) {
  DeviceInfo info;
  info.device = Device::Cuda(0);
  info.compute_capability = 90;
  info.shared_memory_per_block = shared_bytes;
  return info;
}

absl::StatusOr<device::CudaCoreTile> Tile(const std::string& problem, int64_t shared_bytes,
                                          const std::string& config = "") {
  return TileFor(AttentionProblem::Parse(problem).value(), Gpu(shared_bytes),
                 LaunchConfig::Parse(config).value());
}

TEST(TileForTest, LongQueriesGetTheLargestThatFits) {
  const auto large = Tile("hq=1,sq=1000,d=64", kHopper);
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_EQ(large->rows, 256);
  EXPECT_EQ(large->keys, 64);
  const auto small = Tile("hq=1,sq=1000,d=64", kTuring);
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ(small->rows, 64);
  EXPECT_EQ(small->keys, 32);
}

TEST(TileForTest, ShortQueriesGetTheSmallOne) {
  EXPECT_EQ(Tile("hq=1,sq=64,skv=5000,d=64", kHopper)->rows, 64);
  EXPECT_EQ(Tile("hq=1,sq=65,skv=5000,d=64", kHopper)->rows, 256);
}

TEST(TileForTest, HeadDimsArePaddedToTheNextOne) {
  EXPECT_EQ(Tile("hq=1,sq=1000,d=1,dtype=fp32", kHopper)->dim, 32);
  EXPECT_EQ(Tile("hq=1,sq=1000,d=65,dtype=fp32", kHopper)->dim, 96);
  EXPECT_EQ(Tile("hq=1,sq=1000,d=8,dv=129,dtype=fp32", kHopper)->dim, 192);
  EXPECT_EQ(Tile("hq=1,sq=1000,d=200,dv=8,dtype=fp32", kHopper)->dim, 256);
  for (const std::string dtype : {"fp16", "bf16"}) {
    EXPECT_EQ(Tile("hq=1,sq=1000,d=1,dtype=" + dtype, kHopper)->dim, 64);
    EXPECT_EQ(Tile("hq=1,sq=1000,d=65,dtype=" + dtype, kHopper)->dim, 128);
    EXPECT_EQ(Tile("hq=1,sq=1000,d=8,dv=129,dtype=" + dtype, kHopper)->dim, 256);
  }
}

TEST(TileForTest, EveryHeadDimFitsTuring) {
  for (int d = 1; d <= 256; ++d) {
    EXPECT_TRUE(Tile("hq=1,sq=1000,d=" + std::to_string(d), kTuring).ok()) << d;
    EXPECT_TRUE(Tile("hq=1,sq=1000,d=" + std::to_string(d), kHopper).ok()) << d;
  }
}

TEST(TileForTest, TakesWhatIsConfigured) {
  EXPECT_EQ(Tile("hq=1,sq=1000,d=128", kHopper, "tile_kv=32")->rows, 32);
  EXPECT_EQ(Tile("hq=1,sq=8,d=128", kHopper, "tile_q=128")->keys, 64);
  EXPECT_EQ(Tile("hq=1,sq=8,d=128", kHopper, "tile_q=128,tile_kv=64")->keys, 64);
}

TEST(TileForTest, WhatThereIsNotIsAnErrorThatNamesWhatThereIs) {
  const absl::Status tile = Tile("hq=1,sq=8,d=100", kHopper, "tile_q=48").status();
  EXPECT_EQ(tile.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(tile.message(),
              HasSubstr("tile_q=48 is not a tile for head dims up to 128; there are "
                        "tile_q=128,tile_kv=64 and tile_q=32,tile_kv=32"));
  EXPECT_EQ(Tile("hq=1,sq=8,d=64", kHopper, "tile_q=large").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Tile("hq=1,sq=8,d=64", kHopper, "warps=4").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TileForTest, WhatDoesNotFitSaysHowMuchItNeeds) {
  const absl::Status s = Tile("hq=1,sq=1000,d=64", kTuring, "tile_q=256").status();
  EXPECT_EQ(s.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(s.message(),
              HasSubstr("tile_q=256,tile_kv=64 needs 171248 bytes of shared memory per "
                        "block, but cuda:0 has 65536"));
}

TEST(TileForTest, LargeHeadDimsAreDeclined) {
  const absl::Status s = Tile("hq=1,sq=8,d=64,dv=257", kHopper).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(s.message(), HasSubstr("dv: 257 is above 256"));
}

}  // namespace
}  // namespace attnlab::fa1
