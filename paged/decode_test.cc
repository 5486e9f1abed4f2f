// A decode loop from an empty cache, with the manager, the block table, Append() and attention: each
// step gives the same bits as attention over contiguous K and V.
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/attention.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "gtest/gtest.h"
#include "paged/append.h"
#include "paged/block_table.h"
#include "paged/copy_pages.h"
#include "paged/page_manager.h"

namespace attnlab::paged {
namespace {

constexpr int64_t kRows = 3, kSteps = 4096, kHq = 2, kHkv = 1, kD = 16, kPage = 16;
// At this step, row 2 begins as a fork of row 0. From then on they share K and V of what is before.
constexpr int64_t kFork = 1003;
// Row 1 is swapped out and in again here.
constexpr int64_t kSwap = 2000;

TEST(PagedDecode, EachStepIsAsWithContiguousKv) {
  PageManager::Options options;
  options.page = kPage;
  options.pages = 3 * kSteps / kPage;
  options.host_pages = kSteps / kPage;
  options.sequences = kRows;
  options.most_tokens = kSteps;
  const auto cache = std::move(PageManager::Create(options).value());
  BlockTable table = BlockTable::Create(Device::Cpu(), *cache).value();

  AttentionProblem p = AttentionProblem::Parse(
                           "b=3,hq=2,hkv=1,sq=1,skv=4096,d=16,dtype=fp32,"
                           "lens=padded,page=16")
                           .value();
  // A step is too small for more.
  const LaunchConfig one_thread = LaunchConfig::Parse("threads=1").value();
  const Plan plan = MakePlan(p, Device::Cpu(), "cpu", one_thread).value();
  Buffer workspace = Buffer::Allocate(Device::Cpu(), plan.workspace_bytes).value();
  AttentionProblem alone = p;
  alone.page = 0;
  const Plan plan_alone = MakePlan(alone, Device::Cpu(), "cpu", one_thread).value();

  const int64_t pool_floats = options.pages * kPage * kHkv * kD;
  std::vector<float> k_pool(pool_floats), v_pool(pool_floats), k_host(pool_floats),
      v_host(pool_floats);
  std::vector<float> k(kRows * kSteps * kD), v(k.size());  // contiguous
  std::vector<float> q(kRows * kHq * kD), o(q.size()), o_alone(q.size()), new_k(kRows * kD),
      new_v(new_k);
  const auto view = [](std::vector<float>& x, int64_t b, int64_t s, int64_t h) {
    return BshdView(x.data(), DType::kFloat32, Device::Cpu(), b, s, h, kD);
  };
  std::vector<int32_t> q_len(kRows), kv_len(kRows);
  AttentionTensors t;
  t.q = view(q, kRows, 1, kHq);
  t.o = view(o, kRows, 1, kHq);
  t.k = view(k_pool, options.pages, kPage, kHkv);
  t.v = view(v_pool, options.pages, kPage, kHkv);
  t.page_table = table.pages();
  t.q_len = {q_len.data(), kRows};
  t.kv_len = table.lengths();
  AttentionTensors t_alone = t;
  t_alone.o = view(o_alone, kRows, 1, kHq);
  t_alone.k = view(k, kRows, kSteps, kHkv);
  t_alone.v = view(v, kRows, kSteps, kHkv);
  t_alone.page_table = {};
  t_alone.kv_len = {kv_len.data(), kRows};
  NewTokens added;
  added.k = view(new_k, kRows, 1, kHkv);
  added.v = view(new_v, kRows, 1, kHkv);

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<SequenceId> ids = {cache->Begin({}, 0).value(), cache->Begin({}, 1).value()};
  std::vector<PageCopy> copies;
  for (int64_t step = 0; step < kSteps; ++step) {
    if (step == kFork) {
      ids.push_back(cache->Fork(ids[0]).value());
      const int64_t floats = kSteps * kD;
      std::copy_n(k.begin(), floats, k.begin() + 2 * floats);
      std::copy_n(v.begin(), floats, v.begin() + 2 * floats);
    }
    if (step == kSwap) {
      ASSERT_TRUE(cache->SwapOut({ids[1]}, &copies).ok());
      ASSERT_TRUE(cache->SwapIn({ids[1]}, &copies).ok());
    }
    std::vector<PageManager::NewTokens> batch;
    std::vector<int32_t> tokens(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      tokens[i] = static_cast<int32_t>(random());
      batch.push_back({ids[i], {&tokens[i], 1}});
    }
    ASSERT_TRUE(cache->Append(batch, &copies).ok());
    ASSERT_TRUE(table.Update(*cache).ok());
    constexpr int64_t kPageBytes = kPage * kHkv * kD * int64_t{sizeof(float)};
    ASSERT_TRUE(CopyPages(copies, {Device::Cpu(), k_pool.data(), k_host.data(), kPageBytes,
                                   options.pages, options.host_pages})
                    .ok());
    ASSERT_TRUE(CopyPages(copies, {Device::Cpu(), v_pool.data(), v_host.data(), kPageBytes,
                                   options.pages, options.host_pages})
                    .ok());
    copies.clear();

    for (std::vector<float>* x : {&q, &new_k, &new_v}) {
      for (float& value : *x) value = normal(random);
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(ids[i].row, static_cast<int32_t>(i));
      q_len[i] = 1;
      kv_len[i] = static_cast<int32_t>(step + 1);
      std::copy_n(&new_k[i * kD], kD, &k[(i * kSteps + step) * kD]);
      std::copy_n(&new_v[i * kD], kD, &v[(i * kSteps + step) * kD]);
    }
    absl::Status s = Append(p, t, added);
    ASSERT_TRUE(s.ok()) << s;
    ASSERT_TRUE(Forward(plan, t, {workspace.data(), workspace.bytes()}).ok());
    ASSERT_TRUE(Forward(plan_alone, t_alone, {workspace.data(), workspace.bytes()}).ok());
    ASSERT_EQ(o, o_alone) << "step " << step;
    ASSERT_TRUE(cache->Commit(ids).ok());
  }
  EXPECT_GT(cache->counts().copies, 0);
  EXPECT_EQ(cache->Inconsistency(), "");
}

TEST(CopyPages, NamesAPageThatDoesNotExist) {
  float pool[8] = {};
  const PageMemory memory = {Device::Cpu(), pool, nullptr, 16, 2, 0};
  EXPECT_EQ(CopyPages({{PageCopy::kWithinPool, 1, 2}}, memory).message(),
            "copies: entry 0 is from page 1 of 2 to page 2 of 2");
  EXPECT_EQ(CopyPages({{PageCopy::kToHost, 1, 0}}, memory).message(),
            "copies: entry 0 is from page 1 of 2 to page 0 of 0");
}

}  // namespace
}  // namespace attnlab::paged
