// On two GPUs: transfers, and ranks that go wrong. Of one process, and by NCCL as of several.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "attention/core/device.h"
#include "attention/cuda/call.h"
#include "attention/cuda/memory.h"
#include "attention/cuda/stream.h"
#include "attention/multi_gpu/communicator.h"
#include "attention/multi_gpu/gpus/nccl_communicator.h"
#include "attention/multi_gpu/testing/on_gpus.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::multi_gpu {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Also the limit for NCCL to start.
constexpr absl::Duration kLimit = absl::Seconds(10);

std::string Text(const absl::Status& s) { return std::string(s.message()); }

// The parameter: by NCCL alone.
class CommunicatorsGpuTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!HasTwoGpus()) GTEST_SKIP() << "needs two GPUs";
    absl::StatusOr<Ranks> ranks = GetParam() ? RanksById(kLimit) : RanksOnGpus({0, 1}, kLimit);
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    ranks_ = *std::move(ranks);
  }
  Ranks ranks_;
};

INSTANTIATE_TEST_SUITE_P(Threads, CommunicatorsGpuTest, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(ById, CommunicatorsGpuTest, ::testing::Values(true));

std::vector<uint8_t> Bytes(int64_t count, int seed) {
  std::vector<uint8_t> bytes(count);
  for (int64_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 251 + seed);
  return bytes;
}

TEST_P(CommunicatorsGpuTest, BytesArriveOnTheOtherGpu) {
  // What rank 0 sends, and rank 1.
  const std::pair<int64_t, int64_t> kSizes[] = {
      {1, 1}, {7, 4096}, {0, 33}, {1 << 20, 0}, {3'000'001, 3'000'000}, {50'000'000, 40'000'003}};
  for (const auto& [first, second] : kSizes) {
    SCOPED_TRACE(first);
    const int64_t sizes[] = {first, second};
    std::vector<Buffer> send(kGpus), receive(kGpus);
    for (int rank : {0, 1}) {
      send[rank] = Buffer::Allocate(Device::Cuda(rank), sizes[rank]).value();
      receive[rank] = Buffer::Allocate(Device::Cuda(rank), sizes[1 - rank]).value();
      ASSERT_TRUE(send[rank].CopyFromHost(Bytes(sizes[rank], rank).data(), sizes[rank]).ok());
      ASSERT_TRUE(receive[rank].Fill(0xEE).ok());
    }
    EXPECT_THAT(OnGpus(ranks_,
                       [&](Communicator& c) {
                         const int rank = c.rank(), other = 1 - rank;
                         absl::Status s = c.Start({send[rank].data(), other, receive[rank].data(),
                                                   other, sizes[rank], sizes[other]});
                         return s.ok() ? c.Wait("bytes") : s;
                       }),
                Each(absl::OkStatus()));
    for (int rank : {0, 1}) {
      std::vector<uint8_t> got(sizes[1 - rank]);
      ASSERT_TRUE(receive[rank].CopyToHost(got.data(), sizes[1 - rank]).ok());
      EXPECT_TRUE(got == Bytes(sizes[1 - rank], 1 - rank));
    }
  }
}

TEST_P(CommunicatorsGpuTest, SeveralTransfersOfOneWait) {
  constexpr int64_t kBytes = 100'000;
  std::vector<Buffer> memory(kGpus);
  for (int rank : {0, 1}) {
    memory[rank] = Buffer::Allocate(Device::Cuda(rank), 4 * kBytes).value();
    ASSERT_TRUE(memory[rank].CopyFromHost(Bytes(2 * kBytes, rank).data(), 2 * kBytes).ok());
  }
  EXPECT_THAT(
      OnGpus(ranks_,
             [&](Communicator& c) {
               const int other = 1 - c.rank();
               char* const at = static_cast<char*>(memory[c.rank()].data());
               int64_t number = 40 + c.rank(), others = 0;
               absl::Status s = c.Start({at, other, at + 2 * kBytes, other, kBytes, kBytes});
               s.Update(c.Start({&number, other, &others, other, 8, 8}));
               s.Update(c.Start({at + kBytes, other, at + 3 * kBytes, other, kBytes, kBytes}));
               if (s.ok()) s = c.Wait("all");
               EXPECT_EQ(others, 40 + other);
               return s;
             }),
      Each(absl::OkStatus()));
  for (int rank : {0, 1}) {
    std::vector<uint8_t> got(2 * kBytes);
    ASSERT_TRUE(memory[rank].CopyToHost(got.data(), 2 * kBytes, 2 * kBytes).ok());
    EXPECT_TRUE(got == Bytes(2 * kBytes, 1 - rank));
  }
}

TEST_P(CommunicatorsGpuTest, HostMemory) {
  EXPECT_THAT(OnGpus(ranks_,
                     [&](Communicator& c) {
                       EXPECT_EQ(c.device(), Device::Cuda(c.rank()));
                       for (int64_t i = 0; i < 20; ++i) {
                         const int64_t mine = 10 * i + c.rank();
                         std::vector<int64_t> all(kGpus);
                         absl::Status s = Gather(c, "numbers", &mine, sizeof(mine), all.data());
                         if (!s.ok()) return s;
                         EXPECT_EQ(all[0], 10 * i);
                         EXPECT_EQ(all[1], 10 * i + 1);
                       }
                       return Agree(c, "text", "the same");
                     }),
              Each(absl::OkStatus()));
  for (const absl::Status& s :
       OnGpus(ranks_, [](Communicator& c) { return Agree(c, "text", c.rank() ? "b" : "a"); })) {
    EXPECT_EQ(s, absl::InvalidArgumentError("text: rank 1 has b, but rank 0 has a"));
  }
}

TEST_P(CommunicatorsGpuTest, SizesInHostMemoryAreCompared) {
  const auto statuses = OnGpusThatLeave(std::move(ranks_), [](Communicator& c) {
    std::vector<char> memory(64);
    const int other = 1 - c.rank();
    absl::Status s = c.Start({memory.data(), other, memory.data() + 32, other, 8 + c.rank(), 8});
    s.Update(c.Wait("numbers"));
    if (c.rank() == 0) {
      EXPECT_EQ(c.Wait("more"), s);
    }
    return s;
  });
  EXPECT_EQ(statuses[0],
            absl::InvalidArgumentError("numbers: rank 1 sends 9 bytes, but rank 0 expects 8"));
}

// A transfer to and from the other rank, which does not come.
absl::Status WaitInVain(Communicator& c, void* data) {
  char* const at = static_cast<char*>(data);
  const int other = 1 - c.rank();
  absl::Status s = c.Start({at, other, at + 64, other, 64, 64});
  const absl::Time begin = absl::Now();
  s.Update(c.Wait("K and V of step 3"));
  EXPECT_LT(absl::Now() - begin, 2 * kLimit);
  EXPECT_EQ(c.Wait("again"), s);
  return s;
}

TEST_P(CommunicatorsGpuTest, ARankThatLeavesIsNamed) {
  const bool by_id = GetParam();
  for (const bool on_gpu : {false, true}) {
    if (on_gpu) {
      absl::StatusOr<Ranks> ranks = by_id ? RanksById(kLimit) : RanksOnGpus({0, 1}, kLimit);
      ASSERT_TRUE(ranks.ok()) << ranks.status();
      ranks_ = *std::move(ranks);
    }
    Buffer memory = Buffer::Allocate(on_gpu ? Device::Cuda(0) : Device::Cpu(), 128).value();
    const auto statuses = OnGpusThatLeave(std::move(ranks_), [&](Communicator& c) {
      return c.rank() == 1 ? absl::OkStatus() : WaitInVain(c, memory.data());
    });
    if (by_id) {  // NCCL may notice it before the limit
      EXPECT_FALSE(statuses[0].ok());
      EXPECT_THAT(Text(statuses[0]), HasSubstr("rank 0 waited for rank 1"));
    } else {
      EXPECT_EQ(statuses[0], absl::UnavailableError(
                                 "K and V of step 3: rank 0 waited for rank 1, which has left"));
    }
  }
}

TEST_P(CommunicatorsGpuTest, ARankThatHangsIsNamed) {
  Buffer memory = Buffer::Allocate(Device::Cuda(0), 128).value();
  absl::Status s = WaitInVain(*ranks_[0], memory.data());
  EXPECT_EQ(s.code(), absl::StatusCode::kDeadlineExceeded) << s;
  EXPECT_THAT(Text(s), HasSubstr("rank 0 waited for rank 1 for 10s"));
}

TEST(PeerCommunicatorTest, SizesOnGpusAreComparedBeforeDataMoves) {
  if (!HasTwoGpus()) GTEST_SKIP() << "needs two GPUs";
  absl::StatusOr<Ranks> ranks = RanksOnGpus({0, 1}, kLimit);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  Buffer memory[] = {Buffer::Allocate(Device::Cuda(0), 128).value(),
                     Buffer::Allocate(Device::Cuda(1), 128).value()};
  const auto statuses = OnGpusThatLeave(*std::move(ranks), [&](Communicator& c) {
    char* const at = static_cast<char*>(memory[c.rank()].data());
    const int other = 1 - c.rank();
    absl::Status s = c.Start({at, other, at + 64, other, 8 + c.rank(), 8});
    s.Update(c.Wait("bytes"));
    return s;
  });
  EXPECT_EQ(statuses[0],
            absl::InvalidArgumentError("bytes: rank 1 sends 9 bytes, but rank 0 expects 8"));
}

// The value that is sent is written by work that begins late.
TEST(PeerCommunicatorTest, TransfersFollowTheStream) {
  if (!HasTwoGpus()) GTEST_SKIP() << "needs two GPUs";
  absl::StatusOr<Ranks> ranks = RanksOnGpus({0, 1}, kLimit);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  constexpr int64_t kBytes = 1000;
  std::vector<Buffer> send(kGpus), receive(kGpus);
  for (int rank : {0, 1}) {
    send[rank] = Buffer::Allocate(Device::Cuda(rank), kBytes).value();
    receive[rank] = Buffer::Allocate(Device::Cuda(rank), kBytes).value();
    ASSERT_TRUE(send[rank].Fill(1).ok());
  }
  const cuda_backend::ScopedDevice device(0);
  auto stream = cuda_backend::Stream::Create(0, cuda_backend::Stream::Kind::kIndependent);
  ASSERT_TRUE(stream.ok()) << stream.status();
  auto* const on = static_cast<cudaStream_t>(stream->get());
  {
    auto gate = cuda_backend::Gate::Close(*stream, /*seconds=*/20);
    ASSERT_TRUE(gate.ok()) << gate.status();
    ASSERT_EQ(cudaMemsetAsync(send[0].data(), 2, kBytes, on), cudaSuccess);
    EXPECT_THAT(OnGpus(*ranks,
                       [&](Communicator& c) {
                         const int rank = c.rank(), other = 1 - rank;
                         absl::Status s =
                             c.Start({send[rank].data(), other, receive[rank].data(), other, kBytes,
                                      kBytes, rank == 0 ? on : nullptr});
                         return s.ok() ? c.Wait("bytes") : s;
                       }),
                Each(absl::OkStatus()));
    EXPECT_FALSE(gate->TimedOut());  // the threads have not waited for it
  }
  std::vector<uint8_t> got(kBytes);
  ASSERT_TRUE(receive[1].CopyToHost(got.data(), kBytes).ok());
  EXPECT_THAT(got, Each(2));
}

// Memory of a caller's pool, to which other GPUs have no access.
TEST(PeerCommunicatorTest, MemoryOfTheDefaultPool) {
  if (!HasTwoGpus()) GTEST_SKIP() << "needs two GPUs";
  absl::StatusOr<Ranks> ranks = RanksOnGpus({0, 1}, kLimit);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  constexpr int64_t kBytes = 1 << 20;
  EXPECT_THAT(OnGpus(*ranks,
                     [&](Communicator& c) {
                       const cuda_backend::ScopedDevice device(c.rank());
                       void *send = nullptr, *receive = nullptr;
                       EXPECT_EQ(cudaMallocAsync(&send, kBytes, nullptr), cudaSuccess);
                       EXPECT_EQ(cudaMallocAsync(&receive, kBytes, nullptr), cudaSuccess);
                       EXPECT_EQ(cudaMemsetAsync(send, 1 + c.rank(), kBytes, nullptr), cudaSuccess);
                       const int other = 1 - c.rank();
                       absl::Status s = c.Start({send, other, receive, other, kBytes, kBytes});
                       s.Update(c.Wait("bytes"));
                       std::vector<uint8_t> got(kBytes);
                       EXPECT_EQ(cudaMemcpy(got.data(), receive, kBytes, cudaMemcpyDeviceToHost),
                                 cudaSuccess);
                       EXPECT_THAT(got, Each(1 + other));
                       EXPECT_EQ(cudaFreeAsync(send, nullptr), cudaSuccess);
                       EXPECT_EQ(cudaFreeAsync(receive, nullptr), cudaSuccess);
                       return s;
                     }),
              Each(absl::OkStatus()));
}

TEST(PeerCommunicatorTest, MemoryMustFit) {
  if (!HasTwoGpus()) GTEST_SKIP() << "needs two GPUs";
  EXPECT_THAT(Text(RanksOnGpus({0, 99}).status()), StartsWith("devices[1]: 99 is not one of 0 to"));
  EXPECT_EQ(RanksOnGpus({1, 1}).status(), absl::InvalidArgumentError("devices[0]: 1 comes twice"));
  absl::StatusOr<Ranks> ranks = RanksOnGpus({0, 1}, kLimit);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  Buffer memory = Buffer::Allocate(Device::Cuda(1), 8).value();
  int64_t on_host = 0;
  Communicator& c = *(*ranks)[0];
  EXPECT_EQ(c.Start({memory.data(), 1, memory.data(), 1, 8, 8}),
            absl::InvalidArgumentError("memory of a transfer: on cuda:1, must be on cuda:0"));
  Buffer here = Buffer::Allocate(Device::Cuda(0), 8).value();
  EXPECT_EQ(c.Start({here.data(), 1, &on_host, 1, 8, 8}),
            absl::InvalidArgumentError(
                "memory of a transfer: must be all in host memory or all on a GPU"));
  EXPECT_EQ(c.Start({&on_host, 2, &on_host, 1, 8, 8}),
            absl::InvalidArgumentError("rank: 2 is not one of 0 to 1"));
}

}  // namespace
}  // namespace attnlab::multi_gpu
