#include "profiling/microbench/lesson_list.h"

#include <utility>

#include "attention/cuda/call.h"
#include "attention/cuda/code_capability.h"

namespace attnlab::profiling {

absl::StatusOr<Gpu> CurrentGpu() {
  using cuda_backend::ToStatus;
  Gpu gpu;
  int ordinal = 0, l2_bytes = 0;
  absl::Status s = ToStatus(cudaGetDevice(&ordinal), "cudaGetDevice");
  if (!s.ok()) return s;
  const std::pair<cudaDeviceAttr, int*> attributes[] = {
      {cudaDevAttrMultiProcessorCount, &gpu.multiprocessors},
      {cudaDevAttrL2CacheSize, &l2_bytes},
      {cudaDevAttrMaxThreadsPerMultiProcessor, &gpu.most_threads}};
  for (const auto& [attribute, value] : attributes) {
    s = ToStatus(cudaDeviceGetAttribute(value, attribute, ordinal), "cudaDeviceGetAttribute");
    if (!s.ok()) return s;
  }
  gpu.l2_bytes = l2_bytes;
  s = ToStatus(device::CodeCapability(&gpu.compute_capability), "CodeCapability");
  if (!s.ok()) return s;
  return gpu;
}

absl::Span<const LessonEntry> Lessons() {
  static constexpr LessonEntry kLessons[] = {
      {"coalescing", "What does it cost if neighbouring threads read far-apart numbers?",
       MakeCoalescing},
      {"wide_accesses", "What do 16 bytes per thread save over 4?", MakeWideAccesses},
      {"bank_conflicts", "How is a column of shared memory read?", MakeBankConflicts},
      {"async_copies", "Which path do bytes take to shared memory?", MakeAsyncCopies},
      {"occupancy", "How many warps does it take to hide the memory's latency?", MakeOccupancy},
      {"reductions", "How do the threads of a block compute a sum?", MakeReductions},
      {"unrolling", "What does a loop cost besides its work?", MakeUnrolling},
      {"fused_softmax", "What does it save to keep a row in registers?", MakeFusedSoftmax},
      {"matrix_product", "Where are factors read from, and which units multiply?",
       MakeMatrixProduct},
      {"exponential", "Which units compute exponentials?", MakeExponential},
      {"l2_capacity", "How much can all multiprocessors read again from L2?", MakeL2Capacity},
  };
  return kLessons;
}

}  // namespace attnlab::profiling
