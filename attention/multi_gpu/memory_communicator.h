// Ranks that are threads of one process, with tensors in host memory. With it, schedules, merges and faults
// are tested without a GPU.
#ifndef ATTENTION_MULTI_GPU_MEMORY_COMMUNICATOR_H_
#define ATTENTION_MULTI_GPU_MEMORY_COMMUNICATOR_H_

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "attention/multi_gpu/communicator.h"

namespace attnlab::multi_gpu {

// One for each of `ranks` threads; each may use its own alone. A rank leaves when its Communicator is
// destroyed: others that wait for it then get an error at once. `limit`: how long a call waits.
std::vector<std::unique_ptr<Communicator>> RanksInMemory(int ranks,
                                                         absl::Duration limit = absl::Seconds(30));

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_MEMORY_COMMUNICATOR_H_
