#include "attention/baseline/traffic.h"

#include <string>

#include "attention/baseline/options.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "gtest/gtest.h"

namespace attnlab::baseline {
namespace {

Traffic Of(const std::string& line, int64_t l2, bool fused = false) {
  DeviceInfo gpu;
  gpu.device = Device::Cuda(0);
  gpu.compute_capability = 90;
  gpu.multiprocessors = 132;
  gpu.registers_per_multiprocessor = 65536;
  gpu.last_level_cache_bytes = l2;
  Options options;
  options.fused = fused;
  options.softmax_block = 512;
  options.heads = 2;
  return ExpectedTraffic(*AttentionProblem::Parse(line), gpu, options);
}

// Bytes in fp32: of S or P for 2 heads of 256 queries and keys, and of Q, K, V or O for 2 heads.
constexpr int64_t kS = 2 * 256 * 256 * 4, kQ = 2 * 256 * 64 * 4;
constexpr char kLine[] = "hq=2,sq=256,d=64,dtype=fp32";

TEST(ExpectedTrafficTest, WithoutACacheEveryStepReadsAndWritesItsTensors) {
  const Traffic traffic = Of(kLine, 0);
  EXPECT_EQ(traffic.bytes_read, 3 * kQ + 3 * kS);
  EXPECT_EQ(traffic.bytes_written, 3 * kS + kQ);
  EXPECT_EQ(traffic.flops, 2 * 2 * 256 * 256 * 128.0);
  const Traffic fused = Of(kLine, 0, true);
  EXPECT_EQ(fused.bytes_read, 3 * kQ + 2 * kS);
  EXPECT_EQ(fused.bytes_written, 2 * kS + kQ);
}

TEST(ExpectedTrafficTest, AMaskSavesNothing) {
  const Traffic causal = Of("hq=2,sq=256,d=64,dtype=fp32,mask=causal", 0);
  EXPECT_EQ(causal.flops, Of(kLine, 0).flops);
  EXPECT_EQ(causal.bytes_read, Of(kLine, 0).bytes_read);
}

TEST(ExpectedTrafficTest, InL2InputsAreReadOnce) {
  const Traffic traffic = Of(kLine, 2 * kS);
  EXPECT_EQ(traffic.bytes_read, 3 * kQ);
  EXPECT_EQ(traffic.bytes_written, 3 * kS + kQ);
  EXPECT_FALSE(traffic.l2_decides);
  EXPECT_TRUE(Of(kLine, 2 * kS - 1).l2_decides);
}

TEST(ExpectedTrafficTest, PermutationsCopy) {
  // The heads of several sequences are not evenly spaced matrices.
  const std::string line = "b=2,hq=2,sq=256,d=64,dtype=fp32";
  EXPECT_EQ(Of(line, 0).bytes_read, 2 * (3 * kQ + 3 * kS + 4 * kQ));
  EXPECT_EQ(Of(line, 0).bytes_written, 2 * (kQ + 3 * kS + 4 * kQ));
  EXPECT_EQ(Of(line, 1 << 30).bytes_read, 2 * 3 * kQ);
}

TEST(ExpectedTrafficTest, LongRowsAreReadTwiceFromMemoryWhereL2DoesNotHoldThem) {
  // 512 threads do not have registers for 24576 keys. Two such blocks per multiprocessor work on 25
  // MiB of rows at a time.
  const double scores = 2.0 * 24576 * 24576;
  const auto read = [&](int64_t l2) {
    const Traffic traffic = Of("hq=2,sq=24576,d=64,dtype=bf16", l2, true);
    EXPECT_FALSE(traffic.l2_decides);
    return static_cast<double>(traffic.bytes_read) / scores;
  };
  EXPECT_NEAR(read(60 << 20), 4 + 2, 0.05);
  EXPECT_NEAR(read(12 << 20), 8 + 2, 0.05);
}

}  // namespace
}  // namespace attnlab::baseline
