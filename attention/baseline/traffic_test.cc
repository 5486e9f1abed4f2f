#include "attention/baseline/traffic.h"

#include <string>

#include "attention/baseline/options.h"
#include "attention/machine.h"
#include "attention/problem.h"
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
  return ExpectedTraffic(AttentionProblem::Parse(line).value(), gpu, options);
}

// S and P of 2 heads of 256 queries and keys, and Q, of 2 heads as K, V and O, in fp32.
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

TEST(ExpectedTrafficTest, InL2InputsAreReadOnce) {
  const Traffic traffic = Of(kLine, 1 << 30);
  EXPECT_EQ(traffic.bytes_read, 3 * kQ);
  EXPECT_EQ(traffic.bytes_written, 3 * kS + kQ);
}

TEST(ExpectedTrafficTest, OfSAndPAPartMayBeThereStill) {
  // S is four times Q here. When the softmax reads its first element, S, Q and K were used since it
  // was written, at its last S and P: six and eight Q. Of P it is eight at the first and six at the
  // last, with V and O. With room for seven each finds a half.
  const int64_t all = Of(kLine, 0, true).bytes_read;
  EXPECT_EQ(Of(kLine, 6 * kQ, true).bytes_read, all);
  EXPECT_EQ(Of(kLine, 7 * kQ, true).bytes_read, all - kS / 2 - kS / 2);
  EXPECT_EQ(Of(kLine, 8 * kQ, true).bytes_read, 3 * kQ);
}

TEST(ExpectedTrafficTest, NearTheCapacityThereIsAnInterval) {
  // All is found in an L2 of eight Q, and nothing in one of six.
  const int64_t all = Of(kLine, 0, true).bytes_read;
  for (const int64_t l2 : {6, 8, 10}) {
    const Traffic traffic = Of(kLine, l2 * kQ, true);
    ASSERT_TRUE(traffic.reads_between.has_value()) << l2;
    EXPECT_LE(traffic.reads_between->least, traffic.bytes_read);
    EXPECT_GE(traffic.reads_between->most, traffic.bytes_read);
  }
  EXPECT_EQ(Of(kLine, 8 * kQ, true).reads_between->least, 3 * kQ);
  EXPECT_EQ(Of(kLine, 8 * kQ, true).reads_between->most, all);
  EXPECT_FALSE(Of(kLine, 12 * kQ, true).reads_between.has_value());
  EXPECT_FALSE(Of(kLine, 3 * kQ, true).reads_between.has_value());
}

TEST(ExpectedTrafficTest, LongRowsAreReadTwiceFromMemoryWhereL2DoesNotHoldThem) {
  // 24576 keys are more than 512 threads have registers for; two blocks of those a multiprocessor
  // have 25 MiB of rows under way.
  const double scores = 2.0 * 24576 * 24576;
  const auto read = [&](int64_t l2) {
    return static_cast<double>(Of("hq=2,sq=24576,d=64,dtype=bf16", l2, true).bytes_read) / scores;
  };
  EXPECT_NEAR(read(60 << 20), 4 + 2, 0.05);
  EXPECT_NEAR(read(30 << 20), 8 + 2, 0.05);
}

TEST(ExpectedTrafficTest, LongerThanL2ItGrowsWithTheSquare) {
  const double one = static_cast<double>(Of("hq=8,sq=8192,d=64,dtype=bf16", 60 << 20).Bytes());
  const double two = static_cast<double>(Of("hq=8,sq=16384,d=64,dtype=bf16", 60 << 20).Bytes());
  EXPECT_GT(two / one, 3.9);
}

}  // namespace
}  // namespace attnlab::baseline
