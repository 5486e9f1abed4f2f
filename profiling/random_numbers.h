// Pseudo-random numbers on a GPU, because kernels run faster on zeros than on data.
#ifndef PROFILING_RANDOM_NUMBERS_H_
#define PROFILING_RANDOM_NUMBERS_H_

#include <cstdint>

#include "cuda_runtime_api.h"

namespace attnlab::profiling {

enum class NumberType { kFloat, kHalf, kBFloat16, kFp8E4M3 };

// Writes `count` numbers in [-1, 1), the same for the same seed. Asynchronous; the error is that of
// the launch.
cudaError_t FillRandom(void* to, int64_t count, NumberType type, uint32_t seed,
                       cudaStream_t stream);

}  // namespace attnlab::profiling

#endif  // PROFILING_RANDOM_NUMBERS_H_
