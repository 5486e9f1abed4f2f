// What is known of kernels before they run: registers, shared memory, spills, how many blocks fit
// on a multiprocessor, and the grid.
//
//   absl::StatusOr<std::vector<LaunchFacts>> facts = FactsOf(0, [&](void* stream) {
//     return Forward(plan, tensors, workspace, stream);
//   });
//
// The launches are captured in a CUDA graph, not run. The driver then describes each kernel in the
// graph, including kernels of libraries.
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
  std::string name;  // demangled, in full
  std::array<int64_t, 3> grid = {}, block = {};
  int registers = 0;                 // per thread
  int64_t static_shared_bytes = 0;   // per block
  int64_t dynamic_shared_bytes = 0;  // per block
  // Per thread: spilled registers, and arrays that are not in registers.
  int64_t local_bytes = 0;
  int blocks_per_multiprocessor = 0;  // how many fit
  // The warps of those blocks, divided by the most warps that fit on a multiprocessor: 0 to 1.
  double theoretical_occupancy = 0;
};

// Occupancy of `blocks` blocks of `threads` threads on a multiprocessor. The last warp of a block
// may be partly full, but counts in full.
double OccupancyOf(int64_t blocks, int64_t threads, int64_t threads_per_multiprocessor);

// The kernels that `enqueue` puts into the stream (a cudaStream_t), in that order. Errors are those
// of `enqueue`, and of operations that a graph cannot hold; Unavailable without a GPU,
// Unimplemented for a driver before CUDA 12.3.
absl::StatusOr<std::vector<LaunchFacts>> FactsOf(
    int ordinal, absl::FunctionRef<absl::Status(void* stream)> enqueue);

}  // namespace attnlab::profiling

#endif  // PROFILING_LAUNCH_FACTS_H_
