// Ranks that are GPUs, over NCCL: of one process with a thread per GPU, or of a process per GPU.
//
// Memory of a transfer lies all on this rank's GPU, or all in host memory, and both of its ranks must have it in the
// same kind of memory.
//
//                                    ranks of one process             a process per GPU
//   host memory travels              from thread to thread            by way of the GPUs, as it is little
//   sizes in host memory             compared before data moves       compared before data moves
//   sizes on GPUs                    compared before data moves       not compared: agree on them before
//   a rank that has left             Unavailable, at once             DeadlineExceeded, or what NCCL says
//
// Start() begins a transfer on the GPU, after Transfer::after. In one process it waits until the other ranks
// call it too. The limit for a call includes the time for which the slowest rank computes between two transfers.
// After an error NCCL's kernels are stopped, so that nothing uses the memory of transfers any more, and this
// rank has left.
//
// Ranks of one process: between transfers that wait for each other, allocate device memory with
// cuda/stream_buffer.h or not at all. cudaMalloc() may wait for another GPU, on which NCCL waits for this one.
#ifndef ATTENTION_MULTI_GPU_NCCL_COMMUNICATOR_H_
#define ATTENTION_MULTI_GPU_NCCL_COMMUNICATOR_H_

#include <array>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attention/multi_gpu/communicator.h"

namespace attnlab::multi_gpu {

// Rank i of one process is on GPU devices[i]. Each thread uses its own alone. `limit`: how long a call waits.
// InvalidArgument for a GPU that does not exist or comes twice. Unavailable or DeadlineExceeded if ranks
// do not find each other.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> RanksOnGpus(
    const std::vector<int>& devices, absl::Duration limit = absl::Seconds(30));

// For a process per GPU: rank 0 makes an id, and the caller passes it on to the others.
using NcclId = std::array<char, 128>;
absl::StatusOr<NcclId> NewNcclId();
// This process' rank. Waits for all others to call it.
absl::StatusOr<std::unique_ptr<Communicator>> RankOnGpu(const NcclId& id, int ranks, int rank,
                                                        int device,
                                                        absl::Duration limit = absl::Seconds(30));

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_NCCL_COMMUNICATOR_H_
