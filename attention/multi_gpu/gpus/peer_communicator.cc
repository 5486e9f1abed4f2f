#include "attention/multi_gpu/gpus/peer_communicator.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/core/device.h"
#include "attention/cuda/call.h"
#include "attention/multi_gpu/gpus/on_this_gpu.h"
#include "attention/multi_gpu/memory_communicator.h"

namespace attnlab::multi_gpu {
namespace {

using cuda_backend::ScopedDevice;
using cuda_backend::ToStatus;
using Clock = std::chrono::steady_clock;

// What a sender tells a receiver, which is a thread of the same process.
struct Offer {
  const void* data;
  cudaEvent_t ready;
  int ordinal;
  int64_t bytes;
};

class PeerCommunicator : public Communicator {
 public:
  // `host`: of the same rank.
  PeerCommunicator(int ordinal, absl::Duration limit, std::unique_ptr<Communicator> host)
      : ordinal_(ordinal), limit_(limit), host_(std::move(host)) {}

  ~PeerCommunicator() override {
    const ScopedDevice current(ordinal_);
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    // Destroyed once its work is done, without waiting for that.
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Begin(const std::vector<int>& devices) {
    const ScopedDevice current(ordinal_);
    absl::Status s = current.status();
    if (s.ok()) {
      s = ToStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    }
    // Without access, CUDA copies by way of the host.
    for (const int other : devices) {
      int can = 0;
      if (!s.ok() || other == ordinal_) continue;
      s = ToStatus(cudaDeviceCanAccessPeer(&can, ordinal_, other), "cudaDeviceCanAccessPeer");
      if (!s.ok() || can == 0) continue;
      const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();  // clears it
      } else {
        s = ToStatus(error, "cudaDeviceEnablePeerAccess");
      }
    }
    return s;
  }

  int rank() const override { return host_->rank(); }
  int ranks() const override { return host_->ranks(); }
  Device device() const override { return Device::Cuda(ordinal_); }

  absl::Status Start(const Transfer& t) override {
    if (!failed_.ok()) return failed_;
    const ScopedDevice current(ordinal_);
    if (!current.status().ok()) return current.status();
    const absl::StatusOr<bool> here = OnThisGpu(t, ordinal_);
    if (!here.ok()) return here.status();
    if (!*here) return host_->Start(t);
    // On the stream of copies, whatever comes later follows `after` as well.
    const absl::StatusOr<cudaEvent_t> ready = NextEvent();
    absl::Status s = ready.status();
    if (s.ok() && t.after != nullptr) {
      s = ToStatus(cudaStreamWaitEvent(stream_, static_cast<cudaEvent_t>(t.after), 0),
                   "cudaStreamWaitEvent");
    }
    if (s.ok()) s = ToStatus(cudaEventRecord(*ready, stream_), "cudaEventRecord");
    if (!s.ok()) return s;
    Copy& copy = copies_.emplace_back(Copy{t, {}});
    const Offer mine = {t.send, *ready, ordinal_, t.send_bytes};
    s = host_->Start({&mine, t.to, &copy.from, t.from, sizeof(Offer), sizeof(Offer)});
    if (!s.ok()) copies_.pop_back();
    return s;
  }

  absl::Status Wait(absl::string_view what) override {
    if (!failed_.ok()) return failed_;
    const ScopedDevice current(ordinal_);
    if (!current.status().ok()) return current.status();
    failed_ = host_->Wait(what);
    if (failed_.ok() && !copies_.empty()) failed_ = CopyAll(what);
    // Also after an error: another rank may read memory of this one until it says that it has. A rank that did not
    // come in time is not waited for once more.
    if (!copies_.empty() && !absl::IsDeadlineExceeded(failed_)) failed_.Update(Acknowledge(what));
    copies_.clear();
    used_ = 0;
    return failed_;
  }

 private:
  struct Copy {
    Transfer transfer;
    Offer from;
  };

  absl::StatusOr<cudaEvent_t> NextEvent() {
    if (used_ == events_.size()) {
      cudaEvent_t event = nullptr;
      absl::Status s =
          ToStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
      if (!s.ok()) return s;
      events_.push_back(event);
    }
    return events_[used_++];
  }

  // Each receiver copies.
  absl::Status CopyAll(absl::string_view what) {
    for (const auto& [t, from] : copies_) {
      if (from.bytes != t.receive_bytes) {
        return OtherSize(what, t, rank(), from.bytes);
      }
      if (from.bytes == 0) continue;
      absl::Status s = ToStatus(cudaStreamWaitEvent(stream_, from.ready, 0), "cudaStreamWaitEvent");
      if (s.ok()) {
        s = ToStatus(cudaMemcpyPeerAsync(t.receive, ordinal_, from.data, from.ordinal,
                                         static_cast<size_t>(from.bytes), stream_),
                     "cudaMemcpyPeerAsync");
      }
      if (!s.ok()) return s;
    }
    const auto deadline = Clock::now() + absl::ToChronoNanoseconds(limit_);
    for (;;) {
      const cudaError_t error = cudaStreamQuery(stream_);
      if (error != cudaErrorNotReady) return ToStatus(error, what);
      cudaGetLastError();  // clears it, so that the next check of a launch does not see it
      if (Clock::now() > deadline) {
        return absl::DeadlineExceededError(absl::StrCat(
            what, ": rank ", rank(), " waited for rank ", copies_.front().transfer.from,
            "'s memory for ", absl::FormatDuration(limit_)));
      }
      std::this_thread::yield();
    }
  }

  // Tells the ranks whose memory was copied, and waits for those that copy this one's.
  absl::Status Acknowledge(absl::string_view what) {
    const char done = 0;
    std::vector<char> others(copies_.size());
    absl::Status s;
    for (size_t i = 0; i < copies_.size() && s.ok(); ++i) {
      const Transfer& t = copies_[i].transfer;
      s = host_->Start({&done, t.from, &others[i], t.to, 1, 1});
    }
    return s.ok() ? host_->Wait(what) : s;
  }

  const int ordinal_;
  const absl::Duration limit_;
  const std::unique_ptr<Communicator> host_;
  cudaStream_t stream_ = nullptr;  // of copies alone
  std::vector<cudaEvent_t> events_;
  size_t used_ = 0;          // of these, since the last Wait()
  std::deque<Copy> copies_;  // started; a deque, since offers are received into it
  absl::Status failed_;
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> RanksOnGpus(
    const std::vector<int>& devices, absl::Duration limit) {
  int count = 0;
  absl::Status s = ToStatus(cudaGetDeviceCount(&count), "GPUs");
  if (!s.ok()) return s;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i] < 0 || devices[i] >= count) {
      return absl::InvalidArgumentError(
          absl::StrCat("devices[", i, "]: ", devices[i], " is not one of 0 to ", count - 1));
    }
    if (std::count(devices.begin(), devices.end(), devices[i]) > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("devices[", i, "]: ", devices[i], " comes twice"));
    }
  }
  std::vector<std::unique_ptr<Communicator>> all;
  for (std::unique_ptr<Communicator>& host :
       RanksInMemory(static_cast<int>(devices.size()), limit)) {
    auto rank = std::make_unique<PeerCommunicator>(devices[all.size()], limit, std::move(host));
    if (s = rank->Begin(devices); !s.ok()) return s;
    all.push_back(std::move(rank));
  }
  return all;
}

}  // namespace attnlab::multi_gpu
