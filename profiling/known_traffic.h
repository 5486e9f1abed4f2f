// Kernels whose traffic is known, byte for byte: what counters are tried on, and what empties L2.
#ifndef PROFILING_KNOWN_TRAFFIC_H_
#define PROFILING_KNOWN_TRAFFIC_H_

#include <cstdint>

#include "cuda_runtime_api.h"

namespace attnlab::profiling {

// `bytes`: a multiple of 16; addresses are aligned to 16. Each byte is read or written once, 16 at
// a time, neighbours by neighbours. Asynchronous; the error is that of the launch.
cudaError_t CopyBytes(const void* from, void* to, int64_t bytes, cudaStream_t stream);
cudaError_t FillBytes(void* to, int64_t bytes, uint32_t pattern, cudaStream_t stream);
// What is read comes to nothing.
cudaError_t ReadBytes(const void* from, int64_t bytes, cudaStream_t stream);

}  // namespace attnlab::profiling

#endif  // PROFILING_KNOWN_TRAFFIC_H_
