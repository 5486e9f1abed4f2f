#include "attention/fa1/traffic.h"

#include <string>

#include "gtest/gtest.h"

namespace attnlab::fa1 {
namespace {

constexpr device::CudaCoreTile kTile = device::kCudaCoreTiles[2];  // 256 x 64, head dim 64

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

TEST(ExpectedTrafficTest, HeadsThatShareKAndVReadThemTogether) {
  const Traffic shared = Of("b=2,hq=4,hkv=1,sq=1024,d=64,dtype=fp32", 0);
  EXPECT_EQ(shared.bytes_read, 8 * 1024 * 256 + 2 * 4 * 1024 * 512);
}

TEST(ExpectedTrafficTest, HugeProblemsDoNotOverflow) {
  const Traffic t = Of("b=1024,hq=1024,sq=2147483647,skv=1024,d=64", 0);
  EXPECT_GT(t.bytes_read, 0);
}

}  // namespace
}  // namespace attnlab::fa1
