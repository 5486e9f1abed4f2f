// Device memory that is allocated and freed in the order of a stream (cudaMallocAsync()).
//
// cudaMalloc() and cudaFree() may wait for kernels of other GPUs of the process. A kernel of NCCL waits
// for a rank on another GPU, so a rank that frees memory could wait for itself. These calls wait for
// nothing.
#ifndef ATTENTION_CUDA_STREAM_BUFFER_H_
#define ATTENTION_CUDA_STREAM_BUFFER_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace attnlab::cuda_backend {

// Uninitialised memory, aligned to kMemoryAlignment. Work on `stream` after Allocate() may use it until
// the end of its life. Other GPUs of the process may read and write it, as NCCL does. What is freed is kept for
// later calls of the process.
class StreamBuffer {
 public:
  // `stream`: a cudaStream_t of GPU `ordinal`. ResourceExhausted if there is not enough memory.
  static absl::StatusOr<StreamBuffer> Allocate(int ordinal, void* stream, int64_t bytes);

  StreamBuffer() = default;
  StreamBuffer(StreamBuffer&& other) noexcept;
  StreamBuffer& operator=(StreamBuffer&& other) noexcept;
  ~StreamBuffer();

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  void* stream_ = nullptr;
  int ordinal_ = 0;
};

}  // namespace attnlab::cuda_backend

#endif  // ATTENTION_CUDA_STREAM_BUFFER_H_
