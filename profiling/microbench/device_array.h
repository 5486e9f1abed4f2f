// Arrays in GPU memory, for lessons. Each call that can fail takes the first error so far, and does
// nothing after one. So it is enough to check once, at the end:
//
//   cudaError_t error = cudaSuccess;
//   const auto from = DeviceArray<float>::MakeRandom(count, NumberType::kFloat, seed, &error);
//   const auto to = DeviceArray<float>::Make(count, &error);
//   return error;
#ifndef PROFILING_MICROBENCH_DEVICE_ARRAY_H_
#define PROFILING_MICROBENCH_DEVICE_ARRAY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cuda_runtime_api.h"
#include "profiling/random_numbers.h"

namespace attnlab::profiling {

// Copies, such as those in the closures of a variant, share the memory; the last one frees it.
template <typename T>
class DeviceArray {
 public:
  static DeviceArray Make(int64_t count, cudaError_t* error) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    void* data = nullptr;
    if (*error == cudaSuccess) *error = cudaMalloc(&data, bytes);
    const DeviceArray array(static_cast<T*>(data), count);
    // NaN as floats, and no result of any lesson as integers: a kernel that writes nothing is
    // noticed.
    if (*error == cudaSuccess) *error = cudaMemset(data, 0xff, bytes);
    return array;
  }

  // Random numbers in [-1, 1).
  static DeviceArray MakeRandom(int64_t count, NumberType type, uint32_t seed, cudaError_t* error) {
    const DeviceArray array = Make(count, error);
    if (*error == cudaSuccess) *error = FillRandom(array.data(), count, type, seed, nullptr);
    return array;
  }

  T* data() const { return data_.get(); }
  int64_t count() const { return count_; }

  // Waits for the GPU. After an error, returns as many zeros.
  std::vector<T> ToHost(int64_t begin, int64_t end, cudaError_t* error) const {
    std::vector<T> host(static_cast<size_t>(end - begin));
    if (*error == cudaSuccess) {
      *error =
          cudaMemcpy(host.data(), data() + begin, host.size() * sizeof(T), cudaMemcpyDeviceToHost);
    }
    return host;
  }
  std::vector<T> ToHost(cudaError_t* error) const { return ToHost(0, count_, error); }

 private:
  DeviceArray(T* data, int64_t count) : data_(data, cudaFree), count_(count) {}
  std::shared_ptr<T> data_;
  int64_t count_;
};

}  // namespace attnlab::profiling

#endif  // PROFILING_MICROBENCH_DEVICE_ARRAY_H_
