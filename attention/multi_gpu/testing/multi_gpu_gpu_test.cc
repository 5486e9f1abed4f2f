// On two GPUs: every way to divide a problem, against the oracle, and the ring with a rank that goes wrong.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <future>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "attention/attention.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/memory.h"
#include "attention/cuda/stream.h"
#include "attention/multi_gpu/all_to_all.h"
#include "attention/multi_gpu/ring.h"
#include "attention/multi_gpu/split_kv.h"
#include "attention/multi_gpu/testing/on_gpus.h"
#include "attention/multi_gpu/testing/rows_of_ranks.h"
#include "attention/oracle/gpu.h"
#include "attention/oracle/inputs.h"
#include "attention/oracle/reference.h"
#include "attention/oracle/tolerance.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::multi_gpu {
namespace {

using cuda_backend::Stream;
using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(10);
constexpr int kProblems = 400;  // half of them in rings

std::string Text(const absl::Status& s) { return std::string(s.message()); }

// A tensor of a rank, and its copy on the rank's GPU.
struct OnGpu {
  Local host;
  Buffer memory;

  OnGpu(int ordinal, const std::vector<Chunk>& chunks, const ConstTensorView& of)
      : host(Take(chunks, of)) {
    const auto bytes = static_cast<int64_t>(host.bytes.size());
    memory = Buffer::Allocate(Device::Cuda(ordinal), bytes).value();
    EXPECT_TRUE(memory.CopyFromHost(host.bytes.data(), bytes).ok());
  }
  TensorView view() {
    TensorView v = host.view;
    v.data = memory.data(), v.device = memory.device();
    return v;
  }
  void Download() {
    const auto bytes = static_cast<int64_t>(host.bytes.size());
    EXPECT_TRUE(memory.CopyToHost(host.bytes.data(), bytes).ok());
  }
};

enum class Way { kRing, kZigzagRing, kAllToAll, kSplitKv };
constexpr Way kWays[] = {Way::kRing, Way::kZigzagRing, Way::kAllToAll, Way::kSplitKv};
Order OrderOf(Way way) { return way == Way::kZigzagRing ? Order::kZigzag : Order::kInOrder; }

// What a rank has.
struct Share {
  std::vector<Chunk> queries, keys;
  OnGpu q, k, v, o, lse;
  LengthsView q_offsets, kv_offsets;  // in host memory

  Share(int rank, Way way, const AttentionTensors& t, const Whole& whole)
      : queries(way == Way::kSplitKv ? std::vector<Chunk>{{0, t.q.shape[1]}}
                                     : ChunksOf(t.q.shape[1], kGpus, rank, OrderOf(way))),
        keys(ChunksOf(t.k.shape[1], kGpus, rank, OrderOf(way))),
        q(rank, queries, t.q),
        k(rank, keys, t.k),
        v(rank, keys, t.v),
        o(rank, queries, whole.o),
        lse(rank, queries, whole.lse),
        q_offsets(t.cu_seqlens_q),
        kv_offsets(t.cu_seqlens_kv) {
    // NaN: rows that are not written show.
    EXPECT_TRUE(o.memory.Fill(0xFF).ok() && lse.memory.Fill(0xFF).ok());
  }
  AttentionTensors tensors() {
    AttentionTensors t;
    t.q = q.view(), t.k = k.view(), t.v = v.view(), t.o = o.view(), t.lse = lse.view();
    t.cu_seqlens_q = q_offsets, t.cu_seqlens_kv = kv_offsets;
    return t;
  }
};

// `own_stream`: instead of the default stream.
Whole RunOn(const Ranks& ranks, const AttentionProblem& p, const AttentionTensors& t, Way way,
            bool own_stream) {
  Whole whole(p, t.q.shape[0], t.q.shape[1]);  // lens = packed: all tokens
  std::vector<Share> shares;
  std::vector<Stream> streams;
  shares.reserve(kGpus), streams.reserve(kGpus);
  for (int rank = 0; rank < kGpus; ++rank) {
    shares.emplace_back(rank, way, t, whole);
    streams.push_back(Stream::Create(rank, Stream::Kind::kIndependent).value());
    whole.status.Update(cuda_backend::Synchronize(rank));
  }
  const auto statuses = OnGpus(ranks, [&](Communicator& c) {
    void* const stream = own_stream ? streams[c.rank()].get() : nullptr;
    const AttentionTensors mine = shares[c.rank()].tensors();
    if (way == Way::kSplitKv) return SplitKvForward(p, c, mine, "", stream);
    if (way == Way::kAllToAll) return AllToAllForward(p, {OrderOf(way), ""}, c, mine, stream);
    return RingForward(p, {OrderOf(way), ""}, c, mine, stream);
  });
  for (int rank = 0; rank < kGpus; ++rank) {
    whole.status.Update(statuses[rank]);
    whole.status.Update(cuda_backend::Synchronize(rank));
    Share& share = shares[rank];
    share.o.Download(), share.lse.Download();
    PutBack(share.queries, whole.o, share.o.host.view);
    PutBack(share.queries, whole.lse, share.lse.host.view);
  }
  return whole;
}

class MultiGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasTwoGpus()) GTEST_SKIP() << "needs two GPUs";
    absl::StatusOr<Ranks> ranks = RanksOnGpus({0, 1}, kLimit);
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    ranks_ = *std::move(ranks);
  }

  // Two runs, against the oracle and against each other. `most_rows`: so many are compared with the oracle.
  void Check(const AttentionProblem& p, Way way, bool own_stream, int64_t most_rows) {
    auto inputs = oracle::Inputs::Make(p, Device::Cuda(0));
    ASSERT_TRUE(inputs.ok()) << inputs.status();
    const AttentionTensors& t = inputs->host_tensors();
    std::vector<oracle::Row> rows = oracle::AllRows(p, t);
    if (static_cast<int64_t>(rows.size()) > most_rows) {
      std::shuffle(rows.begin(), rows.end(), std::mt19937_64(1));
      rows.resize(most_rows);
    }
    const auto expected = oracle::OracleOnGpu(p, t, inputs->tensors(), rows);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const Whole got = RunOn(ranks_, p, t, way, own_stream);
    ASSERT_TRUE(got.status.ok()) << got.status;
    const oracle::Errors errors = oracle::Compare(p.dtype, p.ODType(), rows, expected->exact,
                                                  expected->straightforward, got.Values(t, rows));
    EXPECT_TRUE(errors.o.Passed()) << errors.o.ToString();
    EXPECT_TRUE(errors.lse.Passed()) << errors.lse.ToString();
    const Whole again = RunOn(ranks_, p, t, way, own_stream);
    ASSERT_TRUE(again.status.ok()) << again.status;
    EXPECT_TRUE(got.o_bytes == again.o_bytes) << "O differs from run to run";
    EXPECT_EQ(0, std::memcmp(got.logs.data(), again.logs.data(), got.logs.size() * sizeof(float)))
        << "LSE differs from run to run";
  }

  Ranks ranks_;
};

AttentionProblem Draw(uint64_t seed, bool may_pack) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](const std::vector<int64_t>& of) { return of[random() % of.size()]; };
  const std::vector<int64_t> lengths = {1,   2,   3,   5,   17,  63,  64,  65,  127,
                                        128, 130, 200, 257, 384, 511, 640, 1000};
  AttentionProblem p;
  p.b = one_of({1, 1, 2, 3});
  p.hkv = one_of({1, 2, 3});
  p.hq = p.hkv * one_of({1, 1, 2, 4});
  p.sq = one_of(lengths);
  p.skv = random() % 2 == 0 ? p.sq : one_of(lengths);
  p.d = p.dv = one_of({64, 64, 128, 128, 128, 32, 40, 80, 96, 256});
  p.dtype = random() % 2 == 0 ? DType::kBFloat16 : DType::kFloat16;
  switch (random() % 4) {
    case 0:
      break;
    case 1:
      p.mask = Mask::SlidingWindow(one_of(lengths), random() % 2 == 0 ? 0 : one_of(lengths));
      break;
    default:
      p.mask = Mask::Causal();
  }
  if (random() % 8 == 0) p.softcap = 5;
  if (random() % 4 == 0 && may_pack) p.lens = Lengths::kPacked, p.b += 2;
  return p;
}

TEST_F(MultiGpuTest, AgreesWithTheOracle) {
  int checked = 0;
  for (int i = 0; i < kProblems && !HasFatalFailure(); ++i) {
    const Way way = kWays[i % 4];
    const AttentionProblem p = Draw(i, way == Way::kRing || way == Way::kZigzagRing);
    SCOPED_TRACE(absl::StrCat("problem ", i, ", way ", i % 4, ": ", p.ToString()));
    // Some heads have no kernel with some features.
    const absl::StatusOr<Plan> plan = MakePlan(p, Device::Cuda(0));
    if (absl::IsUnimplemented(plan.status())) continue;
    ++checked;
    Check(p, way, /*own_stream=*/i % 8 < 4, /*most_rows=*/INT64_MAX);
  }
  EXPECT_GE(checked, kProblems * 3 / 4);
}

TEST_F(MultiGpuTest, LongSequences) {
  for (const char* const line :
       {"hq=16,hkv=4,sq=16384,d=128,mask=causal",
        "hq=8,sq=20001,d=64,dtype=fp16,mask=window:3000:0",
        // In order, whole tiles of the first rank see no key of the second one.
        "hq=16,hkv=4,sq=4096,skv=6144,d=128,mask=causal",
        "hq=4,sq=8192,d=128,mask=window:1024:1024", "b=2,hq=8,hkv=2,sq=5000,skv=30000,d=128",
        "b=7,hq=4,sq=5000,d=128,mask=causal,lens=packed"}) {
    for (const Way way : kWays) {
      const bool is_packed = std::strstr(line, "packed") != nullptr;
      if (is_packed && (way == Way::kAllToAll || way == Way::kSplitKv)) continue;
      SCOPED_TRACE(absl::StrCat(line, ", way ", static_cast<int>(way)));
      Check(AttentionProblem::Parse(line).value(), way, /*own_stream=*/true, /*most_rows=*/500);
    }
  }
}

// A rank's O and LSE may be those of a caller that wants no LSE.
TEST_F(MultiGpuTest, LseIsOptional) {
  for (const int d : {64, 128}) {  // at 128, the second part is added where the first one is
    SCOPED_TRACE(d);
    const auto p =
        AttentionProblem::Parse(absl::StrCat("hq=2,sq=100,mask=causal,dtype=bf16,d=", d)).value();
    auto inputs = oracle::Inputs::Make(p, Device::Cpu());
    ASSERT_TRUE(inputs.ok()) << inputs.status();
    const AttentionTensors& t = inputs->host_tensors();
    const Whole with = RunOn(ranks_, p, t, Way::kZigzagRing, false);
    ASSERT_TRUE(with.status.ok()) << with.status;
    Whole without(p, p.b, p.sq);
    std::vector<Share> shares;
    for (int rank : {0, 1}) shares.emplace_back(rank, Way::kZigzagRing, t, without);
    for (const absl::Status& s : OnGpus(ranks_, [&](Communicator& c) {
           AttentionTensors mine = shares[c.rank()].tensors();
           mine.lse = {};
           return RingForward(p, {Order::kZigzag, ""}, c, mine);
         })) {
      ASSERT_TRUE(s.ok()) << s;
    }
    for (int rank : {0, 1}) {
      ASSERT_TRUE(cuda_backend::Synchronize(rank).ok());
      shares[rank].o.Download();
      PutBack(shares[rank].queries, without.o, shares[rank].o.host.view);
    }
    EXPECT_TRUE(with.o_bytes == without.o_bytes);
  }
}

// Each rank's status, of a call with a problem of its own, "leaves" or "hangs".
std::vector<absl::Status> Statuses(Ranks ranks, const std::vector<std::string>& lines) {
  std::vector<Share> shares;
  for (int rank = 0; rank < kGpus; ++rank) {
    const bool comes = lines[rank] != "leaves" && lines[rank] != "hangs";
    const auto p = AttentionProblem::Parse(comes ? lines[rank] : lines[1 - rank]).value();
    const Whole whole(p, p.b, p.sq);
    AttentionTensors t;
    t.q = t.k = t.v = whole.o;  // d = dv
    shares.emplace_back(rank, Way::kRing, t, whole);
  }
  std::promise<void> done;
  std::shared_future<void> is_done = done.get_future().share();
  return OnGpusThatLeave(std::move(ranks), [&](Communicator& c) {
    const std::string& line = lines[c.rank()];
    if (line == "hangs") is_done.wait();
    if (line == "hangs" || line == "leaves") return absl::OkStatus();
    const absl::Status s =
        RingForward(AttentionProblem::Parse(line).value(), {}, c, shares[c.rank()].tensors());
    if (lines[1 - c.rank()] == "hangs") done.set_value();
    return s;
  });
}

const char* const kLine = "hq=2,sq=100,d=64";

TEST_F(MultiGpuTest, RanksThatDisagreeAreNamed) {
  for (const absl::Status& s :
       Statuses(std::move(ranks_), {kLine, "hq=2,sq=100,d=64,mask=causal"})) {
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Text(s), HasSubstr("problem of a ring: rank 1 has b=1,"));
  }
}

TEST_F(MultiGpuTest, ARankThatLeavesIsNamed) {
  EXPECT_EQ(Statuses(std::move(ranks_), {kLine, "leaves"})[0],
            absl::UnavailableError("problem of a ring: rank 0 waited for rank 1, which has left"));
}

TEST_F(MultiGpuTest, ARankThatHangsIsNamed) {
  EXPECT_EQ(Statuses(std::move(ranks_), {"hangs", kLine})[1],
            absl::DeadlineExceededError("problem of a ring: rank 1 waited for rank 0 for 10s"));
}

// Agrees on the problem, and leaves when K and V are to move.
class LeavesInTheMiddle : public Communicator {
 public:
  explicit LeavesInTheMiddle(Communicator& c) : c_(c) {}
  int rank() const override { return c_.rank(); }
  int ranks() const override { return c_.ranks(); }
  Device device() const override { return c_.device(); }
  absl::Status Start(const Transfer& t) override {
    return t.send_bytes == kMostAgreed ? c_.Start(t) : absl::AbortedError("leaves");
  }
  absl::Status Wait(absl::string_view what) override { return c_.Wait(what); }

 private:
  Communicator& c_;
};

TEST_F(MultiGpuTest, ARankThatLeavesInTheMiddleIsNamed) {
  const auto p = AttentionProblem::Parse(kLine).value();
  const Whole whole(p, p.b, p.sq);
  AttentionTensors t;
  t.q = t.k = t.v = whole.o;
  std::vector<Share> shares;
  for (int rank : {0, 1}) shares.emplace_back(rank, Way::kRing, t, whole);
  const auto statuses = OnGpusThatLeave(std::move(ranks_), [&](Communicator& c) {
    const AttentionTensors mine = shares[c.rank()].tensors();
    LeavesInTheMiddle leaves(c);
    return RingForward(p, {}, c.rank() == 1 ? static_cast<Communicator&>(leaves) : c, mine);
  });
  EXPECT_EQ(statuses[0],
            absl::UnavailableError("K and V for step 1 of 2: rank 0 waited for rank 1, "
                                   "which has left"));
  EXPECT_EQ(statuses[1], absl::AbortedError("leaves"));
}

TEST_F(MultiGpuTest, WhatItDoesNotTake) {
  const auto statuses = Statuses(std::move(ranks_), {"hq=2,sq=100,d=64,lens=padded", kLine});
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Text(statuses[0]), HasSubstr("lens: is not fixed or packed, in a ring of b=1,"));
  EXPECT_THAT(Text(statuses[1]), HasSubstr("rank 0 has lens: is not fixed or packed"));
}

TEST_F(MultiGpuTest, OffsetsMustBeInHostMemory) {
  const auto p = AttentionProblem::Parse("b=2,hq=1,sq=4,d=64,lens=packed").value();
  const std::vector<int32_t> offsets = {0, 2, 6};
  Buffer memory = Buffer::Allocate(Device::Cuda(0), 12).value();
  ASSERT_TRUE(memory.CopyFromHost(offsets.data(), 12).ok());
  for (const absl::Status& s : OnGpus(ranks_, [&](Communicator& c) {
         AttentionTensors mine;
         mine.q.device = c.device();
         mine.cu_seqlens_q = mine.cu_seqlens_kv = {static_cast<const int32_t*>(memory.data()), 3};
         return RingForward(p, {}, c, mine);
       })) {
    EXPECT_EQ(s, absl::InvalidArgumentError("cu_seqlens_q: on cuda:0, must be in host memory"));
  }
}

}  // namespace
}  // namespace attnlab::multi_gpu
