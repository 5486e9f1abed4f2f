#include "profiling/l2_flush.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "attention/cuda/call.h"
#include "profiling/known_traffic.h"

namespace attnlab::profiling {

absl::StatusOr<std::unique_ptr<L2Flush>> L2Flush::Create(int ordinal) {
  const cuda_backend::ScopedDevice current(ordinal);
  if (!current.status().ok()) return current.status();
  int bytes = 0;
  const absl::Status known = cuda_backend::ToStatus(
      cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, ordinal), "L2 cache");
  if (!known.ok()) return known;
  bytes = std::max(bytes, 1 << 20);
  void* scratch = nullptr;
  const absl::Status allocated =
      cuda_backend::ToStatus(cudaMalloc(&scratch, 2 * static_cast<size_t>(bytes)), "L2 flush");
  if (!allocated.ok()) return allocated;
  return absl::WrapUnique(new L2Flush(ordinal, bytes, scratch));
}

L2Flush::~L2Flush() {
  const cuda_backend::ScopedDevice current(ordinal_);
  cudaFree(scratch_);
}

absl::Status L2Flush::Flush(cudaStream_t stream) {
  const cuda_backend::ScopedDevice current(ordinal_);
  if (!current.status().ok()) return current.status();
  absl::Status s =
      cuda_backend::ToStatus(FillBytes(scratch_, 2 * l2_bytes_, 1, stream), "L2 flush");
  if (!s.ok()) return s;
  return cuda_backend::ToStatus(ReadBytes(scratch_, 2 * l2_bytes_, stream), "L2 flush");
}

}  // namespace attnlab::profiling
