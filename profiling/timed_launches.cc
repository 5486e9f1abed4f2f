#include "profiling/timed_launches.h"

#include <vector>

#include "attention/core/statistics.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/call.h"
#include "cuda_runtime_api.h"

namespace attnlab::profiling {

absl::StatusOr<double> MedianSeconds(int repetitions, absl::FunctionRef<absl::Status()> launch) {
  int ordinal = 0;
  absl::Status s = cuda_backend::ToStatus(cudaGetDevice(&ordinal), "cudaGetDevice");
  if (!s.ok()) return s;
  absl::StatusOr<cuda_backend::Timer> timer = cuda_backend::Timer::Create(ordinal);
  if (!timer.ok()) return timer.status();
  std::vector<double> seconds;
  for (int i = -1; i < repetitions; ++i) {
    if (s = timer->Start(nullptr); !s.ok()) return s;
    if (s = launch(); !s.ok()) return s;
    const absl::StatusOr<double> took = timer->StopSeconds(nullptr);
    if (!took.ok()) return took.status();
    if (i >= 0) seconds.push_back(*took);
  }
  return Quantile(std::move(seconds), 0.5);
}

}  // namespace attnlab::profiling
