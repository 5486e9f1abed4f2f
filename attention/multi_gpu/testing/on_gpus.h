// For tests: a function on several ranks at once, each with a GPU.
#ifndef ATTENTION_MULTI_GPU_TESTING_ON_GPUS_H_
#define ATTENTION_MULTI_GPU_TESTING_ON_GPUS_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attention/cuda/backend.h"
#include "attention/multi_gpu/communicator.h"
#include "attention/multi_gpu/gpus/nccl_communicator.h"
#include "attention/multi_gpu/gpus/peer_communicator.h"
#include "attention/multi_gpu/on_threads.h"

namespace attnlab::multi_gpu {

// GPUs 0 and 1.
constexpr int kGpus = 2;

// Whether they exist.
inline bool HasTwoGpus() {
  const auto devices = cuda_backend::Devices();
  return devices.ok() && devices->size() >= kGpus;
}

using Ranks = std::vector<std::unique_ptr<Communicator>>;

// Calls `of_rank` on a thread per rank. No thread may allocate device memory with cudaMalloc(): see
// gpus/nccl_communicator.h.
inline std::vector<absl::Status> OnGpus(const Ranks& ranks,
                                        const std::function<absl::Status(Communicator&)>& of_rank) {
  return OnThreads(static_cast<int>(ranks.size()), [&](int i) { return of_rank(*ranks[i]); });
}

// The same, and a rank leaves when its call returns.
inline std::vector<absl::Status> OnGpusThatLeave(
    Ranks ranks, const std::function<absl::Status(Communicator&)>& of_rank) {
  return OnThreads(static_cast<int>(ranks.size()), [&](int i) {
    const std::unique_ptr<Communicator> c = std::move(ranks[i]);
    return of_rank(*c);
  });
}

// Ranks that know each other by NCCL alone, as those of several processes.
inline absl::StatusOr<Ranks> StartNccl(absl::Duration limit) {
  const absl::StatusOr<NcclId> id = NewNcclId();
  if (!id.ok()) return id.status();
  Ranks ranks(kGpus);
  const std::vector<absl::Status> statuses = OnThreads(kGpus, [&](int i) {
    auto c = RankOnGpu(*id, kGpus, i, i, limit);
    if (c.ok()) ranks[i] = *std::move(c);
    return c.status();
  });
  absl::Status s;
  for (const absl::Status& status : statuses) s.Update(status);
  if (!s.ok()) return s;
  return ranks;
}

// The same. The first call starts NCCL once before, since loading its code may take longer than a test's limit.
inline absl::StatusOr<Ranks> RanksById(absl::Duration limit) {
  static const absl::Status kLoaded = StartNccl(absl::Seconds(120)).status();
  return kLoaded.ok() ? StartNccl(limit) : kLoaded;
}

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_TESTING_ON_GPUS_H_
