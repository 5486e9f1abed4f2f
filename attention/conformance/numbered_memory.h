// Tensors of billions of elements for tests. They are made on the GPU, and each element's value is
// a function of its index. The host can therefore compute the few rows that it checks.
//
// Plain C++ without Abseil, because device code includes it.
#ifndef ATTENTION_CONFORMANCE_NUMBERED_MEMORY_H_
#define ATTENTION_CONFORMANCE_NUMBERED_MEMORY_H_

#include <cstdint>

#include "attention/core/mix.h"
#include "attention/device/element.h"
#include "attention/device/host_device.h"
#include "cuda_runtime.h"

namespace attnlab::conformance {

// The value of element `index`: in [-2, 2), uniform, and exact in every dtype.
ATTNLAB_HOST_DEVICE inline float NumberAt(uint64_t seed, int64_t index) {
  const uint64_t x = Mix(seed * 0xD1342543DE82EF95 + static_cast<uint64_t>(index + 1) * kGolden);
  return static_cast<float>(static_cast<int>(x >> 56) - 128) * (1.0f / 64);
}

// Sets elements 0 to count - 1 of memory on the current device. Does not wait.
cudaError_t FillWithNumbers(void* data, device::Element element, int64_t count, uint64_t seed);

// Counts the elements whose bits are all ones, a NaN that no arithmetic gives. In memory that was
// filled with ones, these are the elements that nobody has written. Waits.
cudaError_t CountAllOnes(const void* data, device::Element element, int64_t count,
                         int64_t* all_ones);

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_NUMBERED_MEMORY_H_
