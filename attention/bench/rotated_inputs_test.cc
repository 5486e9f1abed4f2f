#include "attention/bench/rotated_inputs.h"

#include <cstdint>
#include <cstring>
#include <set>

#include "attention/attention.h"
#include "attention/bench/timed_kernel.h"
#include "attention/cuda/machine.h"
#include "gtest/gtest.h"

namespace attnlab::bench {
namespace {

AttentionProblem Problem(const char* line) { return *AttentionProblem::Parse(line); }

DeviceInfo CpuWithCache(int64_t bytes) {
  DeviceInfo cpu = CpuInfo();
  cpu.last_level_cache_bytes = bytes;
  return cpu;
}

constexpr int64_t kPlenty = int64_t{1} << 30;

TEST(RotatedInputsTest, TheSetsExceedTheCache) {
  const AttentionProblem p = Problem("hq=2,sq=64,d=32,dtype=fp32");  // 4 tensors of 16 KiB
  auto inputs = RotatedInputs::Make(p, CpuWithCache(1 << 20), 1, false, kPlenty);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_EQ(inputs->set_bytes(), 4 * 16 * 1024);
  EXPECT_EQ(inputs->sets(), 18);
  EXPECT_TRUE(inputs->past_cache());
}

TEST(RotatedInputsTest, OfPagesOnlyWhatSequencesUseCounts) {
  // K and V of 65 tokens each, in pools of 5 pages of 512 tokens.
  const AttentionProblem p =
      Problem("b=2,hq=1,sq=1,skv=65,d=64,dtype=fp16,kvdtype=fp8_e4m3,page=512");
  auto inputs = RotatedInputs::Make(p, CpuWithCache(1 << 18), 1, false, kPlenty);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_EQ(inputs->set_bytes(), 2 * (2 * 64 * 2 + 2 * 65 * 64));
  EXPECT_EQ(inputs->sets(), (1 << 18) / inputs->set_bytes() + 2);
  // The table is read, too.
  EXPECT_EQ(inputs->compulsory().bytes_read, 2 * (64 * 2 + 2 * 65 * 64 + 4));
  // Memory counts whole pages.
  const int64_t pools = 2 * 5 * 512 * 64;
  inputs = RotatedInputs::Make(p, CpuWithCache(1 << 30), 1, false, 4 * pools);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_LE(inputs->sets(), 3);
}

TEST(RotatedInputsTest, EachSetIsOfItsOwnAndTheyComeInTurn) {
  const AttentionProblem p = Problem("hq=1,sq=8,d=8,dtype=fp32");
  auto inputs = RotatedInputs::Make(p, CpuWithCache(4096), 1, true, kPlenty);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  std::set<const void*> q, o, lse;
  const void* first = nullptr;
  float last_value = 0;
  for (int64_t i = 0; i < inputs->sets(); ++i) {
    const AttentionTensors& t = inputs->Next();
    if (i == 0) first = t.q.data;
    q.insert(t.q.data);
    o.insert(t.o.data);
    lse.insert(t.lse.data);
    const float value = *static_cast<const float*>(t.q.data);
    if (i > 0) {
      EXPECT_NE(value, last_value);
    }
    last_value = value;
  }
  EXPECT_EQ(static_cast<int64_t>(q.size()), inputs->sets());
  EXPECT_EQ(q.size(), o.size());
  EXPECT_EQ(q.size(), lse.size());
  EXPECT_EQ(inputs->Next().q.data, first);
}

TEST(RotatedInputsTest, MemoryCapsTheSets) {
  const AttentionProblem p = Problem("hq=2,sq=64,d=32,dtype=fp32");
  auto inputs = RotatedInputs::Make(p, CpuWithCache(int64_t{1} << 40), 1, false, 1);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_EQ(inputs->sets(), 1);
  EXPECT_FALSE(inputs->past_cache());
}

TEST(RotatedInputsTest, TinyProblemsHaveNotMoreSetsThanAreMadeInAMoment) {
  const AttentionProblem p = Problem("hq=1,sq=8,d=8,dtype=fp32");
  auto inputs = RotatedInputs::Make(p, CpuWithCache(int64_t{1} << 40), 1, false, kPlenty);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_EQ(inputs->sets(), 1024);
  EXPECT_FALSE(inputs->past_cache());
  EXPECT_NE(inputs->Next().q.data, inputs->Next().q.data);
}

TEST(RotatedInputsTest, AllSetsHaveTheSameLengthsAndTheTrafficIsTheirs) {
  const AttentionProblem p = Problem("b=5,hq=1,sq=16,d=8,dtype=fp32,lens=padded");
  auto inputs = RotatedInputs::Make(p, CpuWithCache(64 << 10), 3, false, kPlenty);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  ASSERT_GT(inputs->sets(), 1);
  const AttentionTensors first = inputs->Next();
  std::vector<int32_t> q(first.q_len.data, first.q_len.data + 5);
  std::vector<int32_t> kv(first.kv_len.data, first.kv_len.data + 5);
  for (int64_t i = 1; i < inputs->sets(); ++i) {
    const AttentionTensors& t = inputs->Next();
    EXPECT_EQ(std::memcmp(t.q_len.data, q.data(), 20), 0);
    EXPECT_EQ(std::memcmp(t.kv_len.data, kv.data(), 20), 0);
  }
  EXPECT_EQ(q, kv);
  EXPECT_EQ(inputs->compulsory().flops, CompulsoryTraffic(p, false, q, kv).flops);
}

TEST(RotatedInputsTest, LengthsAreSpreadEvenly) {
  const AttentionProblem p = Problem("b=5,hq=1,sq=160,skv=32,d=8,dtype=fp32,lens=packed");
  auto inputs = RotatedInputs::Make(p, CpuInfo(), 3, false, 1);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  const AttentionTensors& t = inputs->Next();
  std::multiset<int32_t> q, kv;
  for (int i = 0; i < 5; ++i) {
    q.insert(t.cu_seqlens_q.data[i + 1] - t.cu_seqlens_q.data[i]);
    kv.insert(t.cu_seqlens_kv.data[i + 1] - t.cu_seqlens_kv.data[i]);
  }
  EXPECT_EQ(q, (std::multiset<int32_t>{10, 47, 85, 122, 160}));
  EXPECT_EQ(kv, (std::multiset<int32_t>{2, 9, 17, 24, 32}));
}

TEST(RotatedInputsTest, EmptyProblemsHaveInputsToo) {
  auto inputs = RotatedInputs::Make(Problem("hq=1,sq=0,d=8,dtype=fp32"), CpuInfo(), 1, true, 1);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_EQ(inputs->set_bytes(), 0);
  EXPECT_EQ(inputs->compulsory().flops, 0);
}

TEST(TimedKernelTest, CallsComputeAndTakeTime) {
  const AttentionProblem p = Problem("hq=2,sq=32,d=16,dtype=fp32");
  auto inputs = RotatedInputs::Make(p, CpuWithCache(1), 1, false, kPlenty);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  auto plan = MakePlan(p, Device::Cpu(), "reference");
  ASSERT_TRUE(plan.ok()) << plan.status();
  auto workspace = SharedWorkspace({*plan});
  ASSERT_TRUE(workspace.ok()) << workspace.status();
  auto kernel = TimedKernel::Make(*plan, &*inputs, &*workspace);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const void* o = nullptr;
  for (int64_t i = 0; i < inputs->sets(); ++i) o = inputs->Next().o.data;
  auto seconds = kernel->Calls(inputs->sets());
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_GT(*seconds, 0);
  EXPECT_LT(*seconds, 10);
  EXPECT_NE(*static_cast<const float*>(o), 0.0f);
}

TEST(TimedKernelTest, TheSharedWorkspaceIsTheLargest) {
  const Plan small = *MakePlan(Problem("hq=1,sq=8,d=8"), Device::Cpu(), "reference");
  const Plan large = *MakePlan(Problem("hq=1,sq=64,d=8"), Device::Cpu(), "reference");
  ASSERT_LT(small.workspace_bytes, large.workspace_bytes);
  EXPECT_EQ(SharedWorkspace({small, large, small})->bytes(), large.workspace_bytes);
  EXPECT_EQ(SharedWorkspace({})->bytes(), 0);
  Plan impossible = small;
  impossible.workspace_bytes = INT64_MAX / 2;
  EXPECT_EQ(SharedWorkspace({small, impossible}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(TimedKernelTest, ShortCallsAreTimedTogether) {
  EXPECT_EQ(CallsPerRepetition(Device::Cpu(), 1), 1);
  EXPECT_EQ(CallsPerRepetition(Device::Cpu(), 20e-6), 10);
  EXPECT_EQ(CallsPerRepetition(Device::Cuda(0), 20e-6), 50);
  EXPECT_EQ(CallsPerRepetition(Device::Cpu(), 0), 200000);
}

}  // namespace
}  // namespace attnlab::bench
