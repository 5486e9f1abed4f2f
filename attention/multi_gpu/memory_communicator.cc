#include "attention/multi_gpu/memory_communicator.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attnlab::multi_gpu {
namespace {

// What all ranks share: messages on their way, each a copy.
struct Hub {
  Hub(int n, absl::Duration d) : ranks(n), limit(d), left(n) {}

  const int ranks;
  const absl::Duration limit;
  std::mutex mutex;
  std::condition_variable changed;
  // By sender and receiver. The mutex guards these.
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> messages;
  std::vector<bool> left;
};

class MemoryCommunicator : public Communicator {
 public:
  MemoryCommunicator(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~MemoryCommunicator() override {
    const std::lock_guard<std::mutex> lock(hub_->mutex);
    hub_->left[rank_] = true;
    hub_->changed.notify_all();
  }

  int rank() const override { return rank_; }
  int ranks() const override { return hub_->ranks; }

  absl::Status Start(const Transfer& t) override {
    if (absl::Status s = CheckTransfer(t, ranks()); !s.ok()) return s;
    const char* const from = static_cast<const char*>(t.send);
    std::vector<char> copy(from, from + t.send_bytes);
    expected_.push_back(t);
    const std::lock_guard<std::mutex> lock(hub_->mutex);
    hub_->messages[{rank_, t.to}].push_back(std::move(copy));
    hub_->changed.notify_all();
    return absl::OkStatus();
  }

  // All of them also after an error, so that no message is left for the next call.
  absl::Status Wait(absl::string_view what) override {
    const auto deadline = Clock::now() + absl::ToChronoNanoseconds(hub_->limit);
    absl::Status s;
    for (const Transfer& t : std::exchange(expected_, {})) s.Update(Receive(what, t, deadline));
    return s;
  }

 private:
  using Clock = std::chrono::steady_clock;

  absl::Status Receive(absl::string_view what, const Transfer& t, Clock::time_point deadline) {
    std::unique_lock<std::mutex> lock(hub_->mutex);
    std::deque<std::vector<char>>& queue = hub_->messages[{t.from, rank_}];
    hub_->changed.wait_until(lock, deadline, [&] { return !queue.empty() || hub_->left[t.from]; });
    if (queue.empty()) {
      const std::string of = absl::StrCat(what, ": rank ", rank_, " waited for rank ", t.from);
      if (hub_->left[t.from]) return absl::UnavailableError(absl::StrCat(of, ", which has left"));
      return absl::DeadlineExceededError(
          absl::StrCat(of, " for ", absl::FormatDuration(hub_->limit)));
    }
    const std::vector<char> message = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    if (static_cast<int64_t>(message.size()) != t.receive_bytes) {
      return OtherSize(what, t, rank_, static_cast<int64_t>(message.size()));
    }
    if (!message.empty()) std::memcpy(t.receive, message.data(), message.size());
    return absl::OkStatus();
  }

  const std::shared_ptr<Hub> hub_;
  const int rank_;
  std::vector<Transfer> expected_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> RanksInMemory(int ranks, absl::Duration limit) {
  const auto hub = std::make_shared<Hub>(ranks, limit);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int i = 0; i < ranks; ++i) all.push_back(std::make_unique<MemoryCommunicator>(hub, i));
  return all;
}

}  // namespace attnlab::multi_gpu
