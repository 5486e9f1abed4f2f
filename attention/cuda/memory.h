// Owned memory on a device, for tools and tests. Kernels own none: callers pass it in.
#ifndef ATTENTION_CUDA_MEMORY_H_
#define ATTENTION_CUDA_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/device.h"

namespace attnlab {

// Every buffer begins at a multiple of this many bytes, and so must a kernel's workspace.
constexpr int64_t kMemoryAlignment = 256;

// Rounds `bytes`, at most INT64_MAX - kMemoryAlignment, up to a multiple of kMemoryAlignment.
constexpr int64_t AlignedBytes(int64_t bytes) {
  return (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
}

// Bytes that could be allocated on the device now: on a GPU what is free, on the host what the
// system can give without swapping. Other programs allocate and free memory too, so it is a guide.
// Unavailable and Unimplemented as for CudaInfo(); NotFound if the host does not say.
absl::StatusOr<int64_t> FreeMemory(Device device);

// Memory on the host or on a GPU, freed at the end of its life. It can be moved, not copied.
class Buffer {
 public:
  // Uninitialised memory, aligned to kMemoryAlignment. Zero bytes are allowed and give a non-null
  // address. InvalidArgument for a negative size, ResourceExhausted if there is not enough memory.
  static absl::StatusOr<Buffer> Allocate(Device device, int64_t bytes);

  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  void* data() { return data_; }
  const void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  // Copies bytes [offset, offset + bytes) of the buffer and waits. OutOfRange beyond the buffer.
  absl::Status CopyFromHost(const void* from, int64_t bytes, int64_t offset = 0);
  absl::Status CopyToHost(void* to, int64_t bytes, int64_t offset = 0) const;

  // Sets every byte.
  absl::Status Fill(uint8_t value);

 private:
  absl::Status CheckRange(int64_t bytes, int64_t offset) const;

  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Device device_;
};

}  // namespace attnlab

#endif  // ATTENTION_CUDA_MEMORY_H_
