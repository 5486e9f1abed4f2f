#include "attention/multi_gpu/gpus/peer_communicator.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
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

// What a sender tells a receiver, which is a thread of the same process.
struct Offer {
  const void* data;
  cudaEvent_t ready;
  int ordinal;
  int64_t bytes;
};

// Events of all ranks, since one rank waits for those of another: they live as long as any rank.
class Events {
 public:
  ~Events() {
    for (const cudaEvent_t event : all_) cudaEventDestroy(event);
  }
  // On the current GPU.
  absl::StatusOr<cudaEvent_t> Make() {
    cudaEvent_t event = nullptr;
    absl::Status s =
        ToStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    if (!s.ok()) return s;
    const std::lock_guard<std::mutex> lock(mutex_);
    all_.push_back(event);
    return event;
  }

 private:
  std::mutex mutex_;
  std::vector<cudaEvent_t> all_;
};

class PeerCommunicator : public Communicator {
 public:
  // `host`: of the same rank.
  PeerCommunicator(int ordinal, std::shared_ptr<Events> events, std::unique_ptr<Communicator> host)
      : ordinal_(ordinal),
        events_(std::move(events)),
        host_(std::move(host)),
        given_(host_->ranks()) {}

  ~PeerCommunicator() override {
    const ScopedDevice current(ordinal_);
    if (stream_ == nullptr) return;
    // What it waits for was recorded before, so it ends. Then this rank reads no other one's memory any more.
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
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
    if (absl::Status s = CheckTransfer(t, ranks()); !s.ok()) return s;
    // Of the stream of copies, whatever comes later follows the caller's stream as well.
    absl::Status s = Follow(stream_, static_cast<cudaStream_t>(t.stream));
    const absl::StatusOr<cudaEvent_t> ready = s.ok() ? Mark(stream_) : s;
    if (!ready.ok()) return ready.status();
    Copy& copy = copies_.emplace_back(Copy{t, {}, *ready, nullptr});
    const Offer mine = {t.send, *ready, ordinal_, t.send_bytes};
    s = host_->Start({&mine, t.to, &copy.from, t.from, sizeof(Offer), sizeof(Offer)});
    if (!s.ok()) copies_.pop_back();
    return s;
  }

  // Waits for the other ranks' threads alone: the GPUs wait for each other by events.
  absl::Status Wait(absl::string_view what) override {
    if (!failed_.ok()) return failed_;
    const ScopedDevice current(ordinal_);
    if (!current.status().ok()) return current.status();
    failed_ = host_->Wait(what);
    if (copies_.empty()) return failed_;
    if (failed_.ok()) failed_ = CopyAll(what);
    // After an error, too: another rank may read memory of this one until it says that it has. A rank that did not
    // come in time is not waited for once more.
    if (!absl::IsDeadlineExceeded(failed_)) failed_.Update(Acknowledge(what));
    for (const Copy& copy : copies_) {
      failed_.Update(Follow(static_cast<cudaStream_t>(copy.transfer.stream), stream_));
    }
    copies_.clear();
    return failed_;
  }

 private:
  struct Copy {
    Transfer transfer;
    Offer from;
    cudaEvent_t ready;   // for whom this rank sends to
    cudaEvent_t copied;  // for whom it receives from; null if nothing was copied
  };

  // An event after the stream's work so far.
  absl::StatusOr<cudaEvent_t> Mark(cudaStream_t stream) {
    if (free_.empty()) {
      const absl::StatusOr<cudaEvent_t> made = events_->Make();
      if (!made.ok()) return made;
      free_.push_back(*made);
    }
    absl::Status s = ToStatus(cudaEventRecord(free_.back(), stream), "cudaEventRecord");
    if (!s.ok()) return s;
    const cudaEvent_t event = free_.back();
    free_.pop_back();
    return event;
  }
  static absl::Status WaitFor(cudaStream_t stream, cudaEvent_t event) {
    return ToStatus(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
  }
  // What `later` gets from now on comes after what `earlier` has.
  absl::Status Follow(cudaStream_t later, cudaStream_t earlier) {
    const absl::StatusOr<cudaEvent_t> event = Mark(earlier);
    if (!event.ok()) return event.status();
    free_.push_back(*event);  // streams that wait for an event do not see it recorded anew
    return WaitFor(later, *event);
  }

  // Each receiver copies.
  absl::Status CopyAll(absl::string_view what) {
    for (const Copy& copy : copies_) {
      // Whoever sends this has done with what it got from earlier calls.
      std::vector<cudaEvent_t>& given = given_[copy.transfer.from];
      free_.insert(free_.end(), given.begin(), given.end());
      given.clear();
    }
    for (Copy& copy : copies_) {
      const Transfer& t = copy.transfer;
      const Offer& from = copy.from;
      if (from.bytes != t.receive_bytes) {
        return OtherSize(what, t, rank(), from.bytes);
      }
      absl::Status s = WaitFor(stream_, from.ready);
      if (s.ok() && from.bytes > 0) {
        s = ToStatus(cudaMemcpyPeerAsync(t.receive, ordinal_, from.data, from.ordinal,
                                         static_cast<size_t>(from.bytes), stream_),
                     what);
      }
      const absl::StatusOr<cudaEvent_t> copied = s.ok() ? Mark(stream_) : s;
      if (!copied.ok()) return copied.status();
      copy.copied = *copied;
    }
    return absl::OkStatus();
  }

  // Tells the ranks whose memory is copied when that is done. The stream waits for those that copy this one's.
  absl::Status Acknowledge(absl::string_view what) {
    std::vector<cudaEvent_t> others(copies_.size());
    absl::Status s;
    for (size_t i = 0; i < copies_.size(); ++i) {
      const Copy& copy = copies_[i];
      s.Update(host_->Start({&copy.copied, copy.transfer.from, &others[i], copy.transfer.to,
                             sizeof(cudaEvent_t), sizeof(cudaEvent_t)}));
      if (copy.copied != nullptr) given_[copy.transfer.from].push_back(copy.copied);
    }
    s.Update(host_->Wait(what));
    for (size_t i = 0; i < copies_.size(); ++i) {
      if (others[i] != nullptr) s.Update(WaitFor(stream_, others[i]));
      if (s.ok()) free_.push_back(copies_[i].ready);
    }
    return s;
  }

  const int ordinal_;
  const std::shared_ptr<Events> events_;
  const std::unique_ptr<Communicator> host_;
  cudaStream_t stream_ = nullptr;  // of copies alone
  std::deque<Copy> copies_;        // started; a deque, since offers are received into it
  std::vector<cudaEvent_t> free_;  // of events_, that no other rank knows
  std::vector<std::vector<cudaEvent_t>> given_;  // to each rank, which may not have seen them yet
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
  const auto events = std::make_shared<Events>();
  std::vector<std::unique_ptr<Communicator>> all;
  for (std::unique_ptr<Communicator>& host :
       RanksInMemory(static_cast<int>(devices.size()), limit)) {
    auto rank = std::make_unique<PeerCommunicator>(devices[all.size()], events, std::move(host));
    if (s = rank->Begin(devices); !s.ok()) return s;
    all.push_back(std::move(rank));
  }
  return all;
}

}  // namespace attnlab::multi_gpu
