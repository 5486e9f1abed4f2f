#include "attention/cuda/stream_buffer.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/cuda/call.h"

namespace attnlab::cuda_backend {
namespace {

// A pool of this file's own: the default pool of the GPU belongs to the caller.
absl::StatusOr<cudaMemPool_t> MakePool(int ordinal) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = ordinal;
  cudaMemPool_t pool = nullptr;
  absl::Status s = ToStatus(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
  if (!s.ok()) return s;
  // Giving memory back to the system would wait for the GPU, and the next call would wait for new memory.
  uint64_t keep = UINT64_MAX;
  s = ToStatus(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
               "cudaMemPoolSetAttribute");
  // Memory that another stream is still to free would make this stream wait for it.
  int depend = 0;
  if (s.ok()) {
    s = ToStatus(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &depend),
                 "cudaMemPoolSetAttribute");
  }
  int count = 0;
  if (s.ok()) s = ToStatus(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  std::vector<cudaMemAccessDesc> peers;
  for (int peer = 0; s.ok() && peer < count; ++peer) {
    int can = 0;
    if (peer == ordinal) continue;
    s = ToStatus(cudaDeviceCanAccessPeer(&can, peer, ordinal), "cudaDeviceCanAccessPeer");
    if (can == 0) continue;
    cudaMemAccessDesc access = {};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = peer;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    peers.push_back(access);
  }
  if (s.ok() && !peers.empty()) {
    s = ToStatus(cudaMemPoolSetAccess(pool, peers.data(), peers.size()), "cudaMemPoolSetAccess");
  }
  if (s.ok()) return pool;
  cudaMemPoolDestroy(pool);
  return s;
}

// One per GPU, for the life of the process.
absl::StatusOr<cudaMemPool_t> PoolOf(int ordinal) {
  static std::mutex* const kMutex = new std::mutex;
  static auto* const kPools = new std::map<int, cudaMemPool_t>;
  const std::lock_guard<std::mutex> lock(*kMutex);
  const auto it = kPools->find(ordinal);
  if (it != kPools->end()) return it->second;
  absl::StatusOr<cudaMemPool_t> pool = MakePool(ordinal);
  if (pool.ok()) kPools->emplace(ordinal, *pool);
  return pool;
}

}  // namespace

absl::StatusOr<StreamBuffer> StreamBuffer::Allocate(int ordinal, void* stream, int64_t bytes) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("bytes: ", bytes, " is negative"));
  }
  const ScopedDevice device(ordinal);
  if (!device.status().ok()) return device.status();
  const absl::StatusOr<cudaMemPool_t> pool = PoolOf(ordinal);
  if (!pool.ok()) return pool.status();
  StreamBuffer buffer;
  buffer.stream_ = stream, buffer.ordinal_ = ordinal;
  const cudaError_t error = cudaMallocFromPoolAsync(&buffer.data_, std::max<int64_t>(1, bytes),
                                                    *pool, static_cast<cudaStream_t>(stream));
  if (error != cudaSuccess) {
    buffer.data_ = nullptr;
    return ToStatus(error, absl::StrCat(bytes, " bytes on cuda:", ordinal));
  }
  return buffer;
}

StreamBuffer::StreamBuffer(StreamBuffer&& other) noexcept { *this = std::move(other); }

StreamBuffer& StreamBuffer::operator=(StreamBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(stream_, other.stream_);
  std::swap(ordinal_, other.ordinal_);
  return *this;
}

StreamBuffer::~StreamBuffer() {
  if (data_ == nullptr) return;
  const ScopedDevice device(ordinal_);
  // Ignores errors: the next call to the device repeats them.
  cudaFreeAsync(data_, static_cast<cudaStream_t>(stream_));
}

}  // namespace attnlab::cuda_backend
