// Every way to divide a problem, on ranks in memory: against the oracle, and with ranks that go wrong.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/multi_gpu/all_to_all.h"
#include "attention/multi_gpu/heads.h"
#include "attention/multi_gpu/on_ranks.h"
#include "attention/multi_gpu/part.h"
#include "attention/multi_gpu/ring.h"
#include "attention/multi_gpu/ring_problem.h"
#include "attention/multi_gpu/split_kv.h"
#include "attention/multi_gpu/testing/rows_of_ranks.h"
#include "attention/oracle/inputs.h"
#include "attention/oracle/reference.h"
#include "attention/oracle/tolerance.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::multi_gpu {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Way { kRing, kZigzagRing, kAllToAll, kZigzagAllToAll, kSplitKv, kHeads };

// Views of the whole: nothing travels.
absl::Status RunHeads(const AttentionProblem& p, const AttentionTensors& t, const Whole& whole,
                      Communicator& c) {
  const Chunk heads = KvHeadsOf(p, c.ranks(), c.rank());
  const int64_t group = p.hq / p.hkv;
  AttentionTensors mine;
  const auto some = [&](const ConstTensorView& view, int64_t of_each) {
    return SomeHeads(view, heads.begin * of_each, heads.size() * of_each);
  };
  mine.q = some(t.q, group), mine.k = some(t.k, 1), mine.v = some(t.v, 1);
  mine.o = Mutable(some(whole.o, group)), mine.lse = Mutable(some(whole.lse, group));
  return HeadsForward(p, "", c, mine);
}

Whole RunOnRanks(const AttentionProblem& p, const AttentionTensors& t, int ranks, Way way) {
  const int64_t b = t.q.shape[0], sq = t.q.shape[1], skv = t.k.shape[1];  // packed: all tokens
  Whole whole(p, b, sq);
  std::vector<std::vector<char>> outputs(ranks);
  const auto statuses = OnRanks(ranks, absl::Seconds(60), [&](Communicator& c) {
    const int rank = c.rank();
    if (way == Way::kHeads) return RunHeads(p, t, whole, c);
    const Order order =
        way == Way::kZigzagRing || way == Way::kZigzagAllToAll ? Order::kZigzag : Order::kInOrder;
    const std::vector<Chunk> keys = ChunksOf(skv, ranks, rank, order),
                             queries = way == Way::kSplitKv ? std::vector<Chunk>{{0, sq}}
                                                            : ChunksOf(sq, ranks, rank, order);
    Local q = Take(queries, t.q), k = Take(keys, t.k), v = Take(keys, t.v),
          out = Take(queries, whole.o), logs = Take(queries, whole.lse);
    AttentionTensors mine;
    mine.q = q.view, mine.k = k.view, mine.v = v.view, mine.o = out.view, mine.lse = logs.view;
    mine.cu_seqlens_q = t.cu_seqlens_q, mine.cu_seqlens_kv = t.cu_seqlens_kv;
    const absl::Status s = [&] {
      switch (way) {
        case Way::kSplitKv:
          return SplitKvForward(p, c, mine);
        case Way::kAllToAll:
        case Way::kZigzagAllToAll:
          return AllToAllForward(p, {order, ""}, c, mine);
        default:
          return RingForward(p, {order, ""}, c, mine);
      }
    }();
    outputs[rank] = out.bytes;
    if (way == Way::kSplitKv && rank != ranks - 1) return s;  // all have the same
    PutBack(queries, whole.o, out.view);
    PutBack(queries, whole.lse, logs.view);
    return s;
  });
  for (const absl::Status& s : statuses) whole.status.Update(s);
  if (way == Way::kSplitKv) {
    EXPECT_THAT(outputs, Each(outputs[0]));
  }
  return whole;
}

struct Case {
  const char* line;
  int ranks;
  Way way;
};

TEST(MultiGpuTest, AgreesWithTheOracle) {
  const Case kCases[] = {
      {"b=2,hq=4,hkv=2,sq=70,d=32,dtype=fp32", 3, Way::kRing},
      {"b=2,hq=4,hkv=2,sq=70,d=32,dtype=fp32,mask=causal", 4, Way::kZigzagRing},
      {"b=1,hq=2,sq=130,d=64,dtype=bf16,mask=causal", 2, Way::kZigzagRing},
      {"b=1,hq=2,sq=130,d=64,dtype=fp16,mask=causal", 5, Way::kRing},
      {"b=1,hq=2,sq=60,skv=200,d=48,dv=24,dtype=bf16,mask=causal", 8, Way::kZigzagRing},
      {"b=1,hq=2,sq=60,skv=20,d=16,dtype=fp32,mask=causal", 4, Way::kZigzagRing},
      {"b=2,hq=2,sq=200,d=32,dtype=bf16,mask=window:30:0", 4, Way::kZigzagRing},
      {"b=1,hq=2,sq=90,skv=77,d=32,dtype=fp32,mask=window:9:14,softcap=3", 7, Way::kRing},
      {"b=1,hq=1,sq=5,d=8,dtype=fp32,mask=causal", 8, Way::kZigzagRing},  // ranks without rows
      {"b=1,hq=1,sq=3,skv=40,d=8,dtype=fp32,scale=0.4", 6, Way::kRing},
      {"b=1,hq=2,sq=33,d=16,dtype=fp16", 1, Way::kZigzagRing},
      {"b=5,hq=2,sq=60,d=16,dtype=fp32,mask=causal,lens=packed", 4, Way::kZigzagRing},
      {"b=3,hq=4,hkv=2,sq=40,skv=90,d=32,dtype=bf16,mask=causal,lens=packed", 3, Way::kRing},
      {"b=9,hq=1,sq=20,d=8,dtype=fp16,mask=window:7:2,lens=packed", 8, Way::kRing},
      {"b=4,hq=2,sq=30,d=24,dtype=fp32,lens=packed,softcap=2", 2, Way::kZigzagRing},
      {"b=2,hq=4,hkv=4,sq=70,d=32,dtype=fp32,mask=causal", 4, Way::kAllToAll},
      {"b=2,hq=12,hkv=3,sq=50,skv=61,d=16,dv=8,dtype=bf16", 2, Way::kZigzagAllToAll},
      {"b=1,hq=6,hkv=2,sq=33,d=8,dtype=fp16,mask=window:9:0", 5, Way::kZigzagAllToAll},
      {"b=1,hq=3,sq=5,skv=2,d=8,dtype=fp32,mask=causal,softcap=2", 8, Way::kAllToAll},
      {"b=1,hq=2,sq=20,d=8,dtype=bf16", 1, Way::kAllToAll},
      {"b=2,hq=10,hkv=5,sq=40,skv=61,d=16,dv=8,dtype=bf16,mask=causal", 3, Way::kHeads},
      {"b=1,hq=2,sq=9,d=8,dtype=fp32", 4, Way::kHeads},  // ranks without heads
      {"b=2,hq=8,hkv=2,sq=1,skv=301,d=64,dtype=bf16", 4, Way::kSplitKv},
      {"b=1,hq=4,sq=5,skv=100,d=32,dv=16,dtype=fp32,mask=causal", 8, Way::kSplitKv},
      {"b=1,hq=2,sq=30,skv=12,d=8,dtype=fp32,mask=causal", 3, Way::kSplitKv},
      {"b=1,hq=2,sq=9,skv=200,d=16,dtype=fp16,mask=window:40:3,softcap=2", 5, Way::kSplitKv},
      {"b=1,hq=1,sq=2,skv=3,d=8,dtype=fp32", 8, Way::kSplitKv},   // ranks without keys
      {"b=1,hq=1,sq=3,skv=30,d=5,dtype=fp16", 3, Way::kSplitKv},  // O of 30 bytes
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(absl::StrCat(c.line, " on ", c.ranks, " ranks"));
    const AttentionProblem p = AttentionProblem::Parse(c.line).value();
    auto inputs = oracle::Inputs::Make(p, Device::Cpu());
    ASSERT_TRUE(inputs.ok()) << inputs.status();
    const AttentionTensors& t = inputs->host_tensors();
    const std::vector<oracle::Row> rows = oracle::AllRows(p, t);
    const auto exact = oracle::Exact(p, t, rows), plain = oracle::Straightforward(p, t, rows);
    ASSERT_TRUE(exact.ok() && plain.ok()) << exact.status() << plain.status();
    const Whole got = RunOnRanks(p, t, c.ranks, c.way);
    ASSERT_TRUE(got.status.ok()) << got.status;
    const oracle::Errors errors =
        oracle::Compare(p.dtype, p.ODType(), rows, *exact, *plain, got.Values(t, rows));
    EXPECT_TRUE(errors.o.Passed()) << errors.o.ToString();
    EXPECT_TRUE(errors.lse.Passed()) << errors.lse.ToString();
    const Whole again = RunOnRanks(p, t, c.ranks, c.way);
    EXPECT_EQ(got.o_bytes, again.o_bytes);
    EXPECT_EQ(got.logs, again.logs);
    if (c.way == Way::kAllToAll) {
      EXPECT_EQ(got.o_bytes, RunOnRanks(p, t, 1, c.way).o_bytes);
    }
  }
}

// Each rank's status, of ranks that call RingForward() with problems of their own.
std::vector<absl::Status> Statuses(const std::vector<std::string>& lines, absl::Duration limit) {
  const int ranks = static_cast<int>(lines.size());
  return OnRanks(ranks, limit, [&](Communicator& c) {
    const std::string& line = lines[c.rank()];
    if (line == "hangs") absl::SleepFor(4 * limit);
    if (line == "hangs" || line == "leaves") return absl::OkStatus();
    const AttentionProblem p = AttentionProblem::Parse(line).value();
    const auto chunks = ChunksOf(p.sq, ranks, c.rank(), Order::kInOrder);
    std::vector<float> memory(p.b * p.sq * p.hq * p.d), o(memory.size());
    const TensorView view = BshdView(static_cast<void*>(memory.data()), p.dtype, Device::Cpu(), p.b,
                                     RowsOf(chunks), p.hq, p.d);
    AttentionTensors mine;
    mine.q = mine.k = mine.v = view;
    mine.o = view, mine.o.data = o.data();
    return RingForward(p, {}, c, mine);
  });
}

TEST(RingTest, RanksThatDisagreeAreNamed) {
  const std::string one = "hq=1,sq=12,d=8,dtype=fp32",
                    other = "hq=1,sq=12,d=8,dtype=fp32,mask=causal";
  for (const absl::Status& s : Statuses({one, one, other}, absl::Seconds(30))) {
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(s.message()), HasSubstr("problem of a ring: rank 2 has b=1,"));
    EXPECT_THAT(std::string(s.message()),
                HasSubstr("mask=causal,order=0,kernel=, but rank 0 has b=1,"));
  }
}

TEST(RingTest, NobodyWaitsForEver) {
  const std::string line = "hq=1,sq=12,d=8,dtype=fp32";
  const auto left = Statuses({line, "leaves", line}, absl::Seconds(30));
  EXPECT_EQ(left[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(left[0].message()),
              HasSubstr("rank 0 waited for rank 1, which has left"));
  EXPECT_EQ(left[2].code(), absl::StatusCode::kUnavailable);
  const auto hung = Statuses({line, line, "hangs"}, absl::Milliseconds(300));
  EXPECT_EQ(hung[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(hung[0].message()), HasSubstr("rank 0 waited for rank 2 for 300ms"));
}

// One rank's status per list of offsets, in tensors of 6 tokens for both.
std::vector<absl::Status> WithOffsets(const std::vector<std::vector<int32_t>>& offsets) {
  return OnRanks(static_cast<int>(offsets.size()), absl::Seconds(30), [&](Communicator& c) {
    const auto p = AttentionProblem::Parse("b=2,hq=1,sq=4,d=8,dtype=fp32,lens=packed").value();
    const auto chunks = ChunksOf(6, c.ranks(), c.rank(), Order::kInOrder);
    std::vector<float> memory(48), o(48);
    AttentionTensors mine;
    mine.q = mine.k = mine.v = BshdView(static_cast<void*>(memory.data()), p.dtype, Device::Cpu(),
                                        1, RowsOf(chunks), 1, 8);
    mine.o =
        BshdView(static_cast<void*>(o.data()), p.dtype, Device::Cpu(), 1, RowsOf(chunks), 1, 8);
    const std::vector<int32_t>& of = offsets[c.rank()];
    mine.cu_seqlens_q = mine.cu_seqlens_kv = {of.data(), static_cast<int64_t>(of.size())};
    return RingForward(p, {}, c, mine);
  });
}

TEST(RingTest, OffsetsAreCheckedAndCompared) {
  const auto message = [](const absl::Status& s) { return std::string(s.message()); };
  for (const absl::Status& s : WithOffsets({{0, 2, 6}, {0, 2, 6}})) EXPECT_TRUE(s.ok()) << s;
  EXPECT_THAT(message(WithOffsets({{0, 2, 6}, {0, 3, 6}})[0]),
              HasSubstr("order=0,kernel=,cu_seqlens_q#"));
  EXPECT_THAT(message(WithOffsets({{0, 6}})[0]),
              HasSubstr("cu_seqlens_q: has 2 offsets, must have"));
  EXPECT_THAT(message(WithOffsets({{1, 2, 6}})[0]), HasSubstr("cu_seqlens_q[0]: is 1, must be 0"));
  EXPECT_THAT(message(WithOffsets({{0, 5, 6}})[0]),
              HasSubstr("cu_seqlens_q[1]: a sequence of 5 is not in 0..4"));
  EXPECT_THAT(message(WithOffsets({{0, 4, 3}})[0]), HasSubstr("a sequence of -1 is not in 0..4"));
}

// O is written while others still need K, V and Q. All ranks are told before any data moves.
TEST(RingTest, OutputsThatAreInputsAreRefused) {
  const auto statuses = OnRanks(2, absl::Seconds(30), [](Communicator& c) {
    const auto p = AttentionProblem::Parse("hq=1,sq=4,d=8,dtype=fp32").value();
    std::vector<float> memory(16), o(16);
    AttentionTensors mine;
    mine.q = mine.k = mine.v =
        BshdView(static_cast<void*>(memory.data()), p.dtype, Device::Cpu(), 1, 2, 1, 8);
    mine.o = BshdView(static_cast<void*>(c.rank() == 1 ? memory.data() : o.data()), p.dtype,
                      Device::Cpu(), 1, 2, 1, 8);
    return RingForward(p, {}, c, mine);
  });
  EXPECT_THAT(std::string(statuses[0].message()),
              HasSubstr("problem of a ring: rank 1 has o: shares its address with the input q"));
  EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("o: shares its address"));
}

// A rank whose own checks fail tells the others why, and does not leave them waiting.
TEST(AllToAllTest, ABadTensorIsNamedByAllRanks) {
  const auto statuses = OnRanks(2, absl::Seconds(30), [](Communicator& c) {
    auto p = AttentionProblem::Parse("hq=2,sq=4,d=8,dtype=fp32").value();
    std::vector<float> memory(64), o(64);
    AttentionTensors mine;
    mine.q = mine.k = mine.v =
        BshdView(static_cast<void*>(memory.data()), p.dtype, Device::Cpu(), 1, 2, 2, 8);
    mine.o = BshdView(static_cast<void*>(o.data()), p.dtype, Device::Cpu(), 1, 2, 2, 8);
    if (c.rank() == 1) p.hkv = 0;
    return AllToAllForward(p, {}, c, mine);
  });
  EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("hkv: 0"));
  EXPECT_THAT(std::string(statuses[0].message()),
              HasSubstr("problem of all-to-all: rank 1 has hkv: 0"));
}

// The problem of a ring of ranks in zigzag order as rank 0 sees it.
RingProblem ZigzagOf(const AttentionProblem& p, int ranks) {
  RingProblem ring;
  std::vector<float> memory(p.b * p.sq * p.hq * p.d), o(memory.size());
  OnRanks(ranks, absl::Seconds(30), [&](Communicator& c) -> absl::Status {
    if (c.rank() != 0) return absl::OkStatus();
    const int64_t rows = RowsOf(ChunksOf(p.sq, ranks, 0, Order::kZigzag));
    AttentionTensors mine;
    mine.o = BshdView(static_cast<void*>(o.data()), p.dtype, Device::Cpu(), p.b, rows, p.hq, p.d);
    mine.q = mine.k = mine.v = mine.o;
    mine.q.data = mine.k.data = mine.v.data = memory.data();
    std::string text;
    const absl::Status s = ring.Make(p, {Order::kZigzag}, c, mine, &text);
    EXPECT_TRUE(s.ok()) << s;
    return s;
  });
  return ring;
}

// Chunks that are neighbours make one kernel, not one each.
TEST(RingTest, AStepOfAZigzagRingIsOneProblem) {
  constexpr int kRanks = 5;
  for (const char* const line :
       {"hq=1,sq=160,d=8,dtype=fp32,mask=causal", "hq=1,sq=163,d=8,dtype=fp32,mask=causal",
        "hq=1,sq=157,d=8,dtype=fp32"}) {
    const AttentionProblem p = AttentionProblem::Parse(line).value();
    const RingProblem ring = ZigzagOf(p, kRanks);
    int64_t pairs = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int other = 0; other < kRanks; ++other) {
        const std::vector<Job> jobs = ring.JobsOf(rank, other);
        ASSERT_EQ(jobs.size(), 1) << line << ": rank " << rank << " with keys of " << other;
        pairs += VisiblePairs(jobs[0].problem.mask, jobs[0].problem.sq, jobs[0].problem.skv);
      }
    }
    EXPECT_EQ(pairs, VisiblePairs(p.mask, p.sq, p.skv));
  }
}

// K and V do not travel further than they are seen.
TEST(RingTest, KeysThatNobodySeesStay) {
  const auto needed = [](const char* line, int owner, int rank) {
    const Chunk c = ZigzagOf(AttentionProblem::Parse(line).value(), 2).KeysNeeded(owner, rank);
    return std::vector<int64_t>{c.begin, c.end};
  };
  // Rank 0 has chunks 0 and 3 of 10 rows, rank 1 has 1 and 2.
  EXPECT_THAT(needed("hq=1,sq=40,d=8", 0, 1), ElementsAre(0, 20));
  EXPECT_THAT(needed("hq=1,sq=40,d=8,mask=causal", 0, 1), ElementsAre(0, 10));
  EXPECT_THAT(needed("hq=1,sq=40,d=8,mask=causal", 1, 0), ElementsAre(0, 20));
  EXPECT_THAT(needed("b=2,hq=1,sq=40,d=8,mask=causal", 0, 1), ElementsAre(0, 20));
  EXPECT_THAT(needed("hq=1,sq=40,d=8,mask=window:3:0", 1, 0), ElementsAre(17, 20));
  EXPECT_THAT(needed("hq=1,sq=40,d=8,mask=window:0:0", 1, 0), ElementsAre(0, 0));
}

TEST(RingTest, WhatItDoesNotTake) {
  const auto status = [](const std::string& line) { return Statuses({line}, absl::Seconds(1))[0]; };
  EXPECT_THAT(std::string(status("hq=1,sq=12,d=8,dtype=fp32,lens=padded").message()),
              HasSubstr("lens: is not fixed or packed, in a ring of b=1,"));
}

}  // namespace
}  // namespace attnlab::multi_gpu
