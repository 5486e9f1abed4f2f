// Memory on a device, owned, for tools and tests. Kernels own none: callers give them theirs.
#ifndef ATTENTION_CUDA_MEMORY_H_
#define ATTENTION_CUDA_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/device.h"

namespace attnlab {

// Every buffer begins at a multiple of this many bytes, and so must a kernel's workspace.
constexpr int64_t kMemoryAlignment = 256;

// `bytes` with what is missing to the next multiple of it: at most INT64_MAX - kMemoryAlignment.
constexpr int64_t AlignedBytes(int64_t bytes) {
  return (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
}

// Bytes that could be allocated on the device now: of a GPU what nobody has, on the host what the
// system can give without swapping. Others take and give back memory, too, so it is a guide.
// Unavailable and Unimplemented as CudaInfo(); NotFound where the host does not say.
absl::StatusOr<int64_t> FreeMemory(Device device);

// Bytes on the host or on a GPU, freed at the end of its life. Moves, does not copy.
class Buffer {
 public:
  // Uninitialised memory, aligned to kMemoryAlignment. Zero bytes are legal and give a non-null
  // address. InvalidArgument for a negative size, ResourceExhausted when there is not enough.
  static absl::StatusOr<Buffer> Allocate(Device device, int64_t bytes);

  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  void* data() { return data_; }
  const void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  // Copies of [offset, offset + bytes) that are done on return. OutOfRange beyond the buffer.
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
