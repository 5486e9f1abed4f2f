#include "attention/fa1/traffic.h"

#include <string>

#include "gtest/gtest.h"

namespace attnlab::fa1 {
namespace {

// Tiles of 256 rows on a GPU of 132 multiprocessors with an L2 in one part.
Traffic Of(const std::string& line, int64_t l2) {
  DeviceInfo gpu;
  gpu.device = Device::Cuda(0);
  gpu.multiprocessors = 132;
  gpu.last_level_cache_bytes = l2;
  return ExpectedTraffic(*AttentionProblem::Parse(line), gpu, 256);
}

TEST(ExpectedTrafficTest, WhatStaysInL2IsReadOnce) {
  const std::string line = "b=2,hq=4,hkv=1,sq=1024,d=64,dtype=fp32";
  const Traffic least = CompulsoryTraffic(*AttentionProblem::Parse(line));
  const Traffic traffic = Of(line, 50 << 20);
  EXPECT_EQ(traffic.bytes_read, least.bytes_read);
  EXPECT_EQ(traffic.bytes_written, least.bytes_written);
  EXPECT_EQ(traffic.flops, least.flops);
  EXPECT_FALSE(traffic.l2_decides);
}

TEST(ExpectedTrafficTest, OtherwiseEveryTileReadsWhatItSees) {
  // Four tiles; K and V of a head are 1024 rows of 512 bytes.
  EXPECT_EQ(Of("b=2,hq=4,sq=1024,d=64,dtype=fp32", 0).bytes_read,
            8 * (1024 * 256 + 4 * 1024 * 512));
  EXPECT_EQ(Of("b=2,hq=4,sq=1024,d=64,dtype=fp32,mask=causal", 0).bytes_read,
            8 * (1024 * 256 + (256 + 512 + 768 + 1024) * 512));
}

TEST(ExpectedTrafficTest, TheLastHeadsHaveL2ForThemselves) {
  // 132 heads at a time, and then one.
  const int64_t head = 1024 * 512, q = 1024 * 256;
  EXPECT_EQ(Of("hq=133,sq=1024,d=64,dtype=fp32", 2 * head).bytes_read,
            133 * q + (132 * 4 + 1) * head);
}

TEST(ExpectedTrafficTest, HeadsThatShareKAndVMayNotReadThemTogether) {
  EXPECT_FALSE(Of("b=2,hq=4,sq=1024,d=64,dtype=fp32", 0).l2_decides);
  const Traffic shared = Of("b=2,hq=4,hkv=1,sq=1024,d=64,dtype=fp32", 0);
  EXPECT_EQ(shared.bytes_read, 8 * 1024 * 256 + 2 * 4 * 1024 * 512);
  EXPECT_TRUE(shared.l2_decides);
}

TEST(ExpectedTrafficTest, HugeProblemsDoNotOverflow) {
  EXPECT_GT(Of("b=1024,hq=1024,hkv=1,sq=2147483647,skv=1024,d=64", 0).bytes_read, 0);
}

}  // namespace
}  // namespace attnlab::fa1
