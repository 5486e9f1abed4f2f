// For tests: a function on several ranks at once.
#ifndef ATTENTION_MULTI_GPU_ON_RANKS_H_
#define ATTENTION_MULTI_GPU_ON_RANKS_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "attention/multi_gpu/communicator.h"
#include "attention/multi_gpu/memory_communicator.h"
#include "attention/multi_gpu/on_threads.h"

namespace attnlab::multi_gpu {

// Calls `of_rank` on a thread per rank. A rank leaves when its call returns.
inline std::vector<absl::Status> OnRanks(
    int ranks, absl::Duration limit, const std::function<absl::Status(Communicator&)>& of_rank) {
  std::vector<std::unique_ptr<Communicator>> all = RanksInMemory(ranks, limit);
  return OnThreads(ranks, [&](int rank) {
    const std::unique_ptr<Communicator> c = std::move(all[rank]);
    return of_rank(*c);
  });
}

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_ON_RANKS_H_
