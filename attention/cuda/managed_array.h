// For tests: an array that host and device code can both access.
#ifndef ATTENTION_CUDA_MANAGED_ARRAY_H_
#define ATTENTION_CUDA_MANAGED_ARRAY_H_

#include <cstddef>

#include "cuda_runtime.h"

namespace attnlab::device {

// The data is null if the allocation failed. The host must wait for the device before reading.
template <typename T>
class ManagedArray {
 public:
  explicit ManagedArray(size_t size) : size_(size) {
    if (cudaMallocManaged(&data_, (size > 0 ? size : 1) * sizeof(T)) != cudaSuccess) {
      data_ = nullptr;
    }
  }
  ~ManagedArray() { cudaFree(data_); }
  ManagedArray(const ManagedArray&) = delete;
  ManagedArray& operator=(const ManagedArray&) = delete;

  T* data() { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }

 private:
  T* data_ = nullptr;
  size_t size_;
};

}  // namespace attnlab::device

#endif  // ATTENTION_CUDA_MANAGED_ARRAY_H_
