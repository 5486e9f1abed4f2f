// Arrays in a GPU's memory, for lessons: owned, and shared by the closures of their variants.
#ifndef PROFILING_MICROBENCH_DEVICE_ARRAY_H_
#define PROFILING_MICROBENCH_DEVICE_ARRAY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/cuda_call.h"
#include "cuda_runtime_api.h"
#include "profiling/random_numbers.h"

namespace attnlab::profiling {

template <typename T>
class DeviceArray {
 public:
  static absl::StatusOr<std::shared_ptr<DeviceArray>> Make(int64_t count) {
    void* data = nullptr;
    const absl::Status s = cuda_backend::ToStatus(
        cudaMalloc(&data, static_cast<size_t>(count) * sizeof(T)), "memory of a lesson");
    if (!s.ok()) return s;
    // Known content, so that a kernel that writes nothing is seen: NaN, or numbers that no lesson
    // computes.
    const absl::Status filled = cuda_backend::ToStatus(
        cudaMemset(data, 0xff, static_cast<size_t>(count) * sizeof(T)), "memory of a lesson");
    std::shared_ptr<DeviceArray> array(new DeviceArray(static_cast<T*>(data), count));
    if (!filled.ok()) return filled;
    return array;
  }

  // Of random numbers in [-1, 1).
  static absl::StatusOr<std::shared_ptr<DeviceArray>> MakeRandom(int64_t count, NumberType type,
                                                                 uint32_t seed) {
    auto array = Make(count);
    if (!array.ok()) return array;
    const absl::Status s = cuda_backend::ToStatus(
        FillRandom((*array)->data(), count, type, seed, nullptr), "numbers of a lesson");
    if (!s.ok()) return s;
    return array;
  }

  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return data_; }
  int64_t count() const { return count_; }

  // Waits for the GPU.
  absl::StatusOr<std::vector<T>> ToHost(int64_t begin, int64_t end) const {
    std::vector<T> host(static_cast<size_t>(end - begin));
    const absl::Status s = cuda_backend::ToStatus(
        cudaMemcpy(host.data(), data_ + begin, host.size() * sizeof(T), cudaMemcpyDeviceToHost),
        "results of a lesson");
    if (!s.ok()) return s;
    return host;
  }
  absl::StatusOr<std::vector<T>> ToHost() const { return ToHost(0, count_); }

 private:
  DeviceArray(T* data, int64_t count) : data_(data), count_(count) {}
  T* data_;
  int64_t count_;
};

template <typename T>
using SharedArray = std::shared_ptr<DeviceArray<T>>;

}  // namespace attnlab::profiling

#endif  // PROFILING_MICROBENCH_DEVICE_ARRAY_H_
