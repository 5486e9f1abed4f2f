// For tests: a function on several ranks at once.
#ifndef ATTENTION_MULTI_GPU_ON_RANKS_H_
#define ATTENTION_MULTI_GPU_ON_RANKS_H_

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "attention/multi_gpu/communicator.h"
#include "attention/multi_gpu/memory_communicator.h"

namespace attnlab::multi_gpu {

// Calls `of_rank` on a thread per rank. A rank leaves when its call returns.
inline std::vector<absl::Status> OnRanks(
    int ranks, absl::Duration limit, const std::function<absl::Status(Communicator&)>& of_rank) {
  std::vector<std::unique_ptr<Communicator>> all = RanksInMemory(ranks, limit);
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Communicator> c = std::move(all[rank]);
      statuses[rank] = of_rank(*c);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_ON_RANKS_H_
