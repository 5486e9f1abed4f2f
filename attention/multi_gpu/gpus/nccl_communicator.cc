#include "attention/multi_gpu/gpus/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/core/device.h"
#include "attention/cuda/call.h"
#include "attention/cuda/memory.h"
#include "attention/cuda/stream_buffer.h"
#include "attention/multi_gpu/gpus/on_this_gpu.h"
#include "nccl.h"

namespace attnlab::multi_gpu {
namespace {

using cuda_backend::ScopedDevice;
using cuda_backend::StreamBuffer;
using cuda_backend::ToStatus;
using Clock = std::chrono::steady_clock;

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId), "an id is passed on as it is");

// How long NCCL may take to stop its kernels, or to leave in order.
constexpr absl::Duration kLeaving = absl::Seconds(5);

constexpr int64_t kStaged = 1 << 20;  // bytes; an exchange of more allocates

// `comm` may be null.
absl::Status OfNccl(ncclResult_t result, absl::string_view what, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  std::string message = absl::StrCat(what, ": NCCL: ", ncclGetErrorString(result));
  const char* const detail = ncclGetLastError(comm);
  if (detail != nullptr && *detail != 0) absl::StrAppend(&message, ": ", detail);
  switch (result) {
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return absl::InvalidArgumentError(message);
    case ncclRemoteError:  // another rank is gone
    case ncclSystemError:  // a connection failed
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(int ranks, int rank, int ordinal, absl::Duration limit)
      : ranks_(ranks), rank_(rank), ordinal_(ordinal), limit_(limit) {}

  ~NcclCommunicator() override {
    const ScopedDevice current(ordinal_);
    if (comm_ != nullptr) {
      // In order, so that others get what this rank has sent.
      const ncclResult_t result = ncclCommFinalize(comm_);
      absl::Status s = OfNccl(result, "leave", comm_);
      if (s.ok()) s = Settle("leave", "NCCL", Clock::now() + absl::ToChronoNanoseconds(kLeaving));
      if (s.ok()) {
        ncclCommDestroy(comm_);
      } else {
        ncclCommAbort(comm_);
      }
    }
    if (done_ != nullptr) cudaEventDestroy(done_);
    // Destroyed once its work is done, without waiting for that.
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Begin(const NcclId& id) {
    const ScopedDevice current(ordinal_);
    if (!current.status().ok()) return current.status();
    int least = 0, greatest = 0;
    absl::Status s = ToStatus(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                              "cudaDeviceGetStreamPriorityRange");
    // NCCL's kernels go first: kernels of attention that fill the GPU would hold transfers up.
    if (s.ok()) {
      s = ToStatus(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
                   "cudaStreamCreateWithPriority");
    }
    if (s.ok()) {
      s = ToStatus(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "cudaEventCreate");
    }
    // The pool gets memory for later exchanges before any rank runs a kernel that waits for this one.
    if (s.ok()) s = StreamBuffer::Allocate(ordinal_, stream_, kStaged).status();
    if (!s.ok()) return s;
    const std::string what = "start";
    ncclUniqueId unique;
    std::memcpy(&unique, id.data(), sizeof(unique));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    s = OfNccl(ncclCommInitRankConfig(&comm_, ranks_, unique, rank_, &config), what, nullptr);
    if (s.ok()) s = Settle(what, "the other ranks", Deadline());
    return s.ok() ? s : Fail(s);
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  Device device() const override { return Device::Cuda(ordinal_); }

  absl::Status Start(const Transfer& t) override {
    if (!failed_.ok()) return failed_;
    if (absl::Status s = CheckTransfer(t, ranks_); !s.ok()) return s;
    const ScopedDevice current(ordinal_);
    if (!current.status().ok()) return current.status();
    const absl::StatusOr<bool> here = OnThisGpu(t, ordinal_);
    if (!here.ok()) return here.status();
    if (!*here) {
      on_host_.push_back(t);
      return absl::OkStatus();
    }
    absl::Status s =
        ToStatus(cudaEventRecord(done_, static_cast<cudaStream_t>(t.stream)), "cudaEventRecord");
    if (s.ok()) s = ToStatus(cudaStreamWaitEvent(stream_, done_, 0), "cudaStreamWaitEvent");
    if (s.ok()) s = Enqueue("transfer", {t}, Deadline());
    if (!s.ok()) return Fail(s);
    on_gpu_.push_back(t);
    return absl::OkStatus();
  }

  absl::Status Wait(absl::string_view what) override {
    if (!failed_.ok()) return failed_;
    const std::vector<Transfer> on_gpu = std::exchange(on_gpu_, {}),
                                on_host = std::exchange(on_host_, {});
    const ScopedDevice current(ordinal_);
    absl::Status s = current.status();
    const Clock::time_point deadline = Deadline();
    if (s.ok() && !on_gpu.empty()) s = Poll(what, on_gpu, deadline);
    if (s.ok() && !on_host.empty()) s = ExchangeOnHost(what, on_host, deadline);
    return s.ok() ? s : Fail(s);
  }

 private:
  Clock::time_point Deadline() const { return Clock::now() + absl::ToChronoNanoseconds(limit_); }

  // Stops NCCL's kernels. Afterwards all calls return this error.
  absl::Status Fail(const absl::Status& s) {
    failed_ = s;
    on_gpu_.clear(), on_host_.clear();
    if (comm_ != nullptr) ncclCommAbort(comm_);
    comm_ = nullptr;
    const Clock::time_point deadline = Clock::now() + absl::ToChronoNanoseconds(kLeaving);
    while (cudaStreamQuery(stream_) == cudaErrorNotReady && Clock::now() < deadline) {
      std::this_thread::yield();
    }
    cudaGetLastError();  // cudaErrorNotReady
    return failed_;
  }

  // What is wrong by now: NCCL's own error, or that it is too late. `state` becomes NCCL's.
  absl::Status Check(absl::string_view what, absl::string_view whom, Clock::time_point deadline,
                     ncclResult_t* state) {
    absl::Status s = OfNccl(ncclCommGetAsyncError(comm_, state), what, comm_);
    if (s.ok()) s = OfNccl(*state, what, comm_);
    if (!s.ok()) {
      return absl::Status(s.code(),
                          absl::StrCat(s.message(), ": rank ", rank_, " waited for ", whom));
    }
    if (Clock::now() < deadline) return s;
    return absl::DeadlineExceededError(absl::StrCat(what, ": rank ", rank_, " waited for ", whom,
                                                    " for ", absl::FormatDuration(limit_)));
  }

  // Until NCCL has enqueued what it was asked for. For that it may wait for `whom`.
  absl::Status Settle(absl::string_view what, absl::string_view whom, Clock::time_point deadline) {
    for (;;) {
      ncclResult_t state = ncclSuccess;
      absl::Status s = Check(what, whom, deadline, &state);
      if (!s.ok() || state != ncclInProgress) return s;
      std::this_thread::yield();
    }
  }

  // Enqueues transfers of memory on this GPU.
  absl::Status Enqueue(absl::string_view what, const std::vector<Transfer>& transfers,
                       Clock::time_point deadline) {
    absl::Status s = OfNccl(ncclGroupStart(), what, comm_);
    if (!s.ok()) return s;
    for (const Transfer& t : transfers) {
      // Transfers of nothing are left out on both sides.
      if (t.send_bytes > 0) {
        s.Update(
            OfNccl(ncclSend(t.send, t.send_bytes, ncclInt8, t.to, comm_, stream_), what, comm_));
      }
      if (t.receive_bytes > 0) {
        s.Update(OfNccl(ncclRecv(t.receive, t.receive_bytes, ncclInt8, t.from, comm_, stream_),
                        what, comm_));
      }
    }
    s.Update(OfNccl(ncclGroupEnd(), what, comm_));
    // NCCL enqueues on a thread of its own. An event before that would mark nothing.
    if (s.ok()) s = Settle(what, Senders(transfers), deadline);
    if (s.ok()) s = ToStatus(cudaEventRecord(done_, stream_), "cudaEventRecord");
    return s;
  }

  // Until everything that was enqueued is done.
  absl::Status Poll(absl::string_view what, const std::vector<Transfer>& transfers,
                    Clock::time_point deadline) {
    const std::string whom = Senders(transfers);
    for (;;) {
      const cudaError_t error = cudaEventQuery(done_);
      if (error != cudaErrorNotReady) return ToStatus(error, what);
      cudaGetLastError();  // clears it, so that the next check of a launch does not see it
      ncclResult_t state = ncclSuccess;
      if (absl::Status s = Check(what, whom, deadline, &state); !s.ok()) return s;
      std::this_thread::yield();
    }
  }

  static std::string Senders(const std::vector<Transfer>& transfers) {
    std::vector<int> from;
    for (const Transfer& t : transfers) from.push_back(t.from);
    std::sort(from.begin(), from.end());
    from.erase(std::unique(from.begin(), from.end()), from.end());
    return absl::StrCat(from.size() > 1 ? "ranks " : "rank ", absl::StrJoin(from, ", "));
  }

  absl::Status ExchangeOnHost(absl::string_view what, const std::vector<Transfer>& transfers,
                              Clock::time_point deadline) {
    std::vector<int64_t> sizes(transfers.size());  // as the others send them
    std::vector<Transfer> headers = transfers;
    for (size_t i = 0; i < transfers.size(); ++i) {
      headers[i].send = &transfers[i].send_bytes, headers[i].receive = &sizes[i];
      headers[i].send_bytes = headers[i].receive_bytes = sizeof(int64_t);
    }
    if (absl::Status s = ByWayOfGpu(what, headers, deadline); !s.ok()) return s;
    for (size_t i = 0; i < transfers.size(); ++i) {
      const Transfer& t = transfers[i];
      if (sizes[i] == t.receive_bytes) continue;
      return OtherSize(what, t, rank_, sizes[i]);
    }
    return ByWayOfGpu(what, transfers, deadline);
  }

  // Host memory whose sizes fit. The stream must have no work: copies of host memory wait for it, without limit.
  absl::Status ByWayOfGpu(absl::string_view what, const std::vector<Transfer>& transfers,
                          Clock::time_point deadline) {
    int64_t bytes = 0;
    for (const Transfer& t : transfers) {
      bytes += AlignedBytes(t.send_bytes) + AlignedBytes(t.receive_bytes);
    }
    const absl::StatusOr<StreamBuffer> staged = StreamBuffer::Allocate(ordinal_, stream_, bytes);
    if (!staged.ok()) return staged.status();
    std::vector<Transfer> there = transfers;
    char* at = static_cast<char*>(staged->data());
    for (Transfer& t : there) {
      const void* const from = t.send;
      t.send = at, t.receive = at + AlignedBytes(t.send_bytes);
      at = static_cast<char*>(t.receive) + AlignedBytes(t.receive_bytes);
      absl::Status s = Copy(const_cast<void*>(t.send), from, t.send_bytes, cudaMemcpyHostToDevice);
      if (!s.ok()) return s;
    }
    absl::Status s = Enqueue(what, there, deadline);
    if (s.ok()) s = Poll(what, there, deadline);
    for (size_t i = 0; s.ok() && i < transfers.size(); ++i) {
      s = Copy(transfers[i].receive, there[i].receive, transfers[i].receive_bytes,
               cudaMemcpyDeviceToHost);
    }
    if (s.ok()) s = ToStatus(cudaStreamSynchronize(stream_), what);
    return s;
  }

  absl::Status Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return absl::OkStatus();
    return ToStatus(cudaMemcpyAsync(to, from, bytes, kind, stream_), "copy of a transfer");
  }

  const int ranks_, rank_, ordinal_;
  const absl::Duration limit_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;  // of transfers alone
  cudaEvent_t done_ = nullptr;     // after what a transfer follows, then after the transfer
  std::vector<Transfer> on_gpu_, on_host_;
  absl::Status failed_;
};

}  // namespace

absl::StatusOr<NcclId> NewNcclId() {
  ncclUniqueId unique;
  absl::Status s = OfNccl(ncclGetUniqueId(&unique), "id", nullptr);
  if (!s.ok()) return s;
  NcclId id;
  std::memcpy(id.data(), &unique, sizeof(unique));
  return id;
}

absl::StatusOr<std::unique_ptr<Communicator>> RankOnGpu(const NcclId& id, int ranks, int rank,
                                                        int device, absl::Duration limit) {
  if (rank < 0 || rank >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank: ", rank, " is not one of 0 to ", ranks - 1));
  }
  auto c = std::make_unique<NcclCommunicator>(ranks, rank, device, limit);
  if (absl::Status s = c->Begin(id); !s.ok()) return s;
  return c;
}

}  // namespace attnlab::multi_gpu
