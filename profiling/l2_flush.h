// Empties the L2 cache of a GPU, so that the next measurement finds nothing in it.
#ifndef PROFILING_L2_FLUSH_H_
#define PROFILING_L2_FLUSH_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"

namespace attnlab::profiling {

// Fills a buffer of twice the size of L2, then reads it. After that, all earlier data has been
// written back, and L2 holds no dirty lines.
class L2Flush {
 public:
  // For a GPU by its CUDA ordinal. ResourceExhausted if the buffer cannot be allocated.
  static absl::StatusOr<std::unique_ptr<L2Flush>> Create(int ordinal);
  ~L2Flush();
  L2Flush(const L2Flush&) = delete;
  L2Flush& operator=(const L2Flush&) = delete;

  int64_t l2_bytes() const { return l2_bytes_; }

  // Asynchronous: two kernels in a stream of that GPU.
  static constexpr int kLaunches = 2;
  absl::Status Flush(cudaStream_t stream);

 private:
  L2Flush(int ordinal, int64_t l2_bytes, void* scratch)
      : ordinal_(ordinal), l2_bytes_(l2_bytes), scratch_(scratch) {}

  int ordinal_;
  int64_t l2_bytes_;
  void* scratch_;
};

}  // namespace attnlab::profiling

#endif  // PROFILING_L2_FLUSH_H_
