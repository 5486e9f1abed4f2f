// Ranks that are GPUs over NCCL, a process each. GPUs of one process: peer_communicator.h.
//
// Memory of a transfer lies all on this rank's GPU, or all in host memory, and both of its ranks must have it in the
// same kind of memory. Host memory travels by way of the GPUs, as it is little; its sizes are compared before. Sizes
// on GPUs are not: agree on them before. A rank that has left is noticed at the limit, or when NCCL says so.
//
// Wait() waits until transfers are done, so that it can stop NCCL's kernels where a rank does not come. The limit
// includes the time for which the slowest rank computes between two transfers. After an error NCCL's kernels are stopped, so that nothing uses the
// memory of transfers any more, and this rank has left.
//
// Where a test has several ranks in one process: between transfers that wait for each other, allocate device memory
// with cuda/stream_buffer.h or not at all. cudaMalloc() may wait for another GPU, on which NCCL waits for this one.
#ifndef ATTENTION_MULTI_GPU_GPUS_NCCL_COMMUNICATOR_H_
#define ATTENTION_MULTI_GPU_GPUS_NCCL_COMMUNICATOR_H_

#include <array>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attention/multi_gpu/communicator.h"

namespace attnlab::multi_gpu {

// Rank 0 makes an id, and the caller passes it on to the others.
using NcclId = std::array<char, 128>;
absl::StatusOr<NcclId> NewNcclId();
// This process' rank. Waits for all others to call it.
absl::StatusOr<std::unique_ptr<Communicator>> RankOnGpu(const NcclId& id, int ranks, int rank,
                                                        int device,
                                                        absl::Duration limit = absl::Seconds(30));

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_GPUS_NCCL_COMMUNICATOR_H_
