// Kernels whose traffic is known to the byte, to test counters and to empty L2.
#ifndef PROFILING_KNOWN_TRAFFIC_H_
#define PROFILING_KNOWN_TRAFFIC_H_

#include <cstdint>

#include "cuda_runtime_api.h"

namespace attnlab::profiling {

// `bytes` is a multiple of 16, and addresses are aligned to 16. Each byte is read or written once,
// 16 per thread, coalesced. Asynchronous; the error is that of the launch.
cudaError_t CopyBytes(const void* from, void* to, int64_t bytes, cudaStream_t stream);
cudaError_t FillBytes(void* to, int64_t bytes, uint32_t pattern, cudaStream_t stream);
// Discards what it reads.
cudaError_t ReadBytes(const void* from, int64_t bytes, cudaStream_t stream);

}  // namespace attnlab::profiling

#endif  // PROFILING_KNOWN_TRAFFIC_H_
