// What is known of kernels before they run: registers, shared memory, spills, how many blocks a
// multiprocessor has room for, and with what grid they are launched.
//
//   absl::StatusOr<std::vector<LaunchFacts>> facts = FactsOf(0, [&](void* stream) {
//     return Forward(plan, tensors, workspace, stream);
//   });
//
// The launches are recorded as a CUDA graph, not run, and the driver is asked about each kernel in
// it, a library's kernels among them.
#ifndef PROFILING_LAUNCH_FACTS_H_
#define PROFILING_LAUNCH_FACTS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnlab::profiling {

struct LaunchFacts {
  std::string name;  // demangled, whole
  std::array<int64_t, 3> grid = {}, block = {};
  int registers = 0;                 // a thread
  int64_t static_shared_bytes = 0;   // a block
  int64_t dynamic_shared_bytes = 0;  // a block
  // A thread: registers that were spilled, and arrays that are not in registers.
  int64_t local_bytes = 0;
  int blocks_per_multiprocessor = 0;  // that there is room for
  // The warps of so many blocks, of those that a multiprocessor has room for: 0 to 1.
  double theoretical_occupancy = 0;
};

// Of so many blocks on a multiprocessor, each of so many threads: the threads of their warps, the
// last of which may not be full, of those that a multiprocessor has room for.
double OccupancyOf(int64_t blocks, int64_t threads, int64_t threads_per_multiprocessor);

// Of the kernels that `enqueue` puts into the stream (a cudaStream_t), in that order. Errors are
// those of `enqueue`, and of what it does that a graph cannot hold; Unavailable without a GPU,
// Unimplemented for a driver before CUDA 12.3.
absl::StatusOr<std::vector<LaunchFacts>> FactsOf(
    int ordinal, absl::FunctionRef<absl::Status(void* stream)> enqueue);

}  // namespace attnlab::profiling

#endif  // PROFILING_LAUNCH_FACTS_H_
