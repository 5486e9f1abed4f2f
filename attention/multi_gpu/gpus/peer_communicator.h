// Ranks that are GPUs of one process, with a thread each: memory is copied from GPU to GPU by their copy engines,
// which takes no multiprocessor from attention. GPUs of several processes: nccl_communicator.h.
#ifndef ATTENTION_MULTI_GPU_GPUS_PEER_COMMUNICATOR_H_
#define ATTENTION_MULTI_GPU_GPUS_PEER_COMMUNICATOR_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attention/multi_gpu/communicator.h"

namespace attnlab::multi_gpu {

// Rank i is on GPU devices[i]. Each thread uses its own alone. Memory of a transfer lies all on this rank's GPU,
// or all in host memory, and both of its ranks must have it in the same kind of memory.
//
// `limit`: how long a thread waits for another one's message, of which a transfer has two. Threads do not wait for
// GPUs, which wait for each other by events, so all steps of a call can be enqueued at once, up to what CUDA's queue
// holds. After an error a copy may still come: keep the memory of transfers until all communicators are destroyed, or
// take it from a pool that stays mapped (cuda/stream_buffer.h).
//
// InvalidArgument for a GPU that does not exist or comes twice. Unavailable without a driver, Unimplemented in a build
// without a CUDA toolkit.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> RanksOnGpus(
    const std::vector<int>& devices, absl::Duration limit = absl::Seconds(30));

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_GPUS_PEER_COMMUNICATOR_H_
