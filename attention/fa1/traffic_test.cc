#include "attention/fa1/traffic.h"

#include <string>

#include "gtest/gtest.h"

namespace attnlab::fa1 {
namespace {

constexpr device::CudaCoreTile kTile = device::kCudaCoreTiles[3];  // 256 x 64, head dim 64

DeviceInfo Gpu(int64_t l2) {
  DeviceInfo info;
  info.device = Device::Cuda(0);
  info.multiprocessors = 132;
  info.last_level_cache_bytes = l2;
  return info;
}

Traffic Of(const std::string& line, int64_t l2) {
  return ExpectedTraffic(AttentionProblem::Parse(line).value(), Gpu(l2), kTile);
}

TEST(ExpectedTrafficTest, WhatStaysInL2IsReadOnce) {
  const std::string line = "b=2,hq=4,sq=1024,d=64,dtype=fp32";
  const Traffic least = CompulsoryTraffic(AttentionProblem::Parse(line).value());
  EXPECT_EQ(Of(line, 50 << 20).Bytes(), least.Bytes());
  EXPECT_EQ(Of(line, 50 << 20).flops, least.flops);
}

TEST(ExpectedTrafficTest, OtherwiseEveryTileReadsWhatItSees) {
  // Four tiles; K and V of a head are 1024 rows of 512 bytes.
  const Traffic none = Of("b=2,hq=4,sq=1024,d=64,dtype=fp32", 0);
  EXPECT_EQ(none.bytes_read, 8 * (1024 * 256 + 4 * 1024 * 512));
  EXPECT_EQ(none.bytes_written, 8 * 1024 * 256);
  const Traffic causal = Of("b=2,hq=4,sq=1024,d=64,dtype=fp32,mask=causal", 0);
  EXPECT_EQ(causal.bytes_read, 8 * (1024 * 256 + (256 + 512 + 768 + 1024) * 512));
}

TEST(ExpectedTrafficTest, FirstTilesOfACausalMaskFindWhatTheyReadBefore) {
  // 132 heads, tiles of 256 rows of 512 bytes, Q and O as much again for each tile: of a second
  // tile 132 * (256 + 256) * 512 bytes are in use, of a third 132 * (512 + 256) * 512.
  const int64_t kv_tile = 132 * 256 * 512, q = 132 * 1024 * 256;
  const std::string line = "hq=132,sq=1024,d=64,dtype=fp32,mask=causal";
  EXPECT_EQ(Of(line, 2 * kv_tile).bytes_read, q + (4 + 2 + 3) * kv_tile);
  // One and a half times as large an L2 would still hold that of the second, 11/12: a value that is
  // no more than 5 % from either.
  EXPECT_EQ(Of(line, 2 * kv_tile - 1).bytes_read, WholeBytes((q + (4 + 2 + 3) * kv_tile) / 0.95));
  EXPECT_EQ(Of(line, 3 * kv_tile).bytes_read, q + (4 + 3) * kv_tile);
}

TEST(ExpectedTrafficTest, TheLastHeadsHaveL2ForThemselves) {
  // 132 heads at a time, and then one.
  const int64_t head = 1024 * 512, q = 1024 * 256;
  const Traffic traffic = Of("hq=133,sq=1024,d=64,dtype=fp32", 2 * head);
  EXPECT_EQ(traffic.bytes_read, 133 * q + (132 * 4 + 1) * head);
}

TEST(ExpectedTrafficTest, OfAWindowNeighbouringTilesShareAPart) {
  // Tiles of 256 rows see 256 keys before each: from the second on 256 of their 512 anew.
  const Traffic traffic = Of("hq=132,sq=1024,d=64,dtype=fp32,mask=window:256:0", 0);
  EXPECT_EQ(traffic.bytes_read, 132 * (1024 * 256 + (1024 + 3 * 256) * 512));
}

TEST(ExpectedTrafficTest, HeadsThatShareKAndVReadThemTogether) {
  const Traffic shared = Of("b=2,hq=4,hkv=1,sq=1024,d=64,dtype=fp32", 0);
  EXPECT_EQ(shared.bytes_read, 8 * 1024 * 256 + 2 * 4 * 1024 * 512);
}

TEST(ExpectedTrafficTest, NearTheCapacityThereIsAnInterval) {
  // K, V, Q and O under way: 132 * (1024 + 256) * 512 bytes.
  const int64_t in_use = 132 * 1280 * 512, once = 132 * 1024 * 768, again = 132 * 3 * 1024 * 512;
  const std::string line = "hq=132,sq=1024,d=64,dtype=fp32";
  for (const int64_t l2 : {in_use * 7 / 10, in_use - 1, in_use, in_use * 7 / 5}) {
    const Traffic traffic = Of(line, l2);
    EXPECT_EQ(traffic.bytes_read, l2 < in_use ? once + again : once);
    ASSERT_TRUE(traffic.reads_between.has_value());
    EXPECT_EQ(traffic.reads_between->least, once);
    EXPECT_EQ(traffic.reads_between->most, once + again);
  }
  EXPECT_FALSE(Of(line, in_use * 3 / 5).reads_between.has_value());
  EXPECT_FALSE(Of(line, in_use * 8 / 5).reads_between.has_value());
}

TEST(ExpectedTrafficTest, HeadsThatShareKAndVMayReadThemEachForItself) {
  const std::string line = "b=2,hq=4,hkv=1,sq=1024,d=64,dtype=fp32";
  const Traffic shared = Of(line, 0);
  const int64_t once = 8 * 1024 * 256 + 2 * 1024 * 512;
  ASSERT_TRUE(shared.reads_between.has_value());
  EXPECT_EQ(shared.reads_between->least, shared.bytes_read);
  EXPECT_EQ(shared.reads_between->most, once + 8 * 3 * 1024 * 512);
  // Not where L2 has them, where each has its own, nor in a single tile.
  EXPECT_FALSE(Of(line, 50 << 20).reads_between.has_value());
  EXPECT_FALSE(Of("b=2,hq=4,sq=1024,d=64,dtype=fp32", 0).reads_between.has_value());
  EXPECT_FALSE(Of("b=2,hq=4,hkv=1,sq=256,skv=4096,d=64", 0).reads_between.has_value());
}

TEST(ExpectedTrafficTest, HugeProblemsDoNotOverflow) {
  const Traffic t = Of("b=1024,hq=1024,sq=2147483647,skv=1024,d=64", 0);
  EXPECT_GT(t.bytes_read, 0);
  const Traffic shared = Of("b=1024,hq=1024,hkv=1,sq=2147483647,skv=1024,d=64", 0);
  ASSERT_TRUE(shared.reads_between.has_value());
  EXPECT_GE(shared.reads_between->most, shared.bytes_read);
}

}  // namespace
}  // namespace attnlab::fa1
