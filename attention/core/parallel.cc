#include "attention/core/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>

#include "attention/core/stop.h"

namespace attnlab {
namespace {

std::atomic<int> g_most_threads = 0;

}  // namespace

void ParallelFor(int64_t count, int threads, absl::FunctionRef<void(int64_t, int)> fn) {
  // OpenMP ends the process if it cannot start as many threads as requested.
  const int most = std::min(std::max(threads, 1), std::max(8, 4 * omp_get_num_procs()));
  const int workers = static_cast<int>(std::clamp<int64_t>(count, 1, most));
  if (workers > g_most_threads.load(std::memory_order_relaxed)) g_most_threads = workers;
#pragma omp parallel for num_threads(workers) schedule(dynamic, 1)
  for (int64_t i = 0; i < count; ++i) {
    if (!Stopping()) fn(i, omp_get_thread_num());
  }
}

int TakeMostThreads() { return g_most_threads.exchange(0); }

}  // namespace attnlab
