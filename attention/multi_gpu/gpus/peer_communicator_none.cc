// A build without a CUDA toolkit.
#include "absl/status/status.h"
#include "attention/multi_gpu/gpus/peer_communicator.h"

namespace attnlab::multi_gpu {

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> RanksOnGpus(const std::vector<int>&,
                                                                       absl::Duration) {
  return absl::UnimplementedError("this program was built without a CUDA toolkit");
}

}  // namespace attnlab::multi_gpu
