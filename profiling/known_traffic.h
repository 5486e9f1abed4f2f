// Kernels whose traffic is known, byte for byte: what counters are tried on, and what empties L2.
#ifndef PROFILING_KNOWN_TRAFFIC_H_
#define PROFILING_KNOWN_TRAFFIC_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"

namespace attnlab::profiling {

// `bytes`: a multiple of 16; addresses are aligned to 16. Each byte is read or written once, 16 at
// a time, neighbours by neighbours. Asynchronous; the error is that of the launch.
cudaError_t CopyBytes(const void* from, void* to, int64_t bytes, cudaStream_t stream);
cudaError_t FillBytes(void* to, int64_t bytes, uint32_t pattern, cudaStream_t stream);
// What is read comes to nothing.
cudaError_t ReadBytes(const void* from, int64_t bytes, cudaStream_t stream);

// Empties the L2 cache of a GPU: fills twice its size and reads that again, so that what was there
// has gone to memory, and nothing that is there is still to go.
class L2Flush {
 public:
  // Of a GPU by its CUDA ordinal. ResourceExhausted without memory for it.
  static absl::StatusOr<std::unique_ptr<L2Flush>> Create(int ordinal);
  ~L2Flush();
  L2Flush(const L2Flush&) = delete;
  L2Flush& operator=(const L2Flush&) = delete;

  int64_t l2_bytes() const { return l2_bytes_; }

  // Asynchronous; the GPU is current.
  absl::Status Flush(cudaStream_t stream);

 private:
  L2Flush(int64_t l2_bytes, void* scratch) : l2_bytes_(l2_bytes), scratch_(scratch) {}

  int64_t l2_bytes_;
  void* scratch_;
};

}  // namespace attnlab::profiling

#endif  // PROFILING_KNOWN_TRAFFIC_H_
