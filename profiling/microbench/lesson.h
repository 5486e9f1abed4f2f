// Teaching kernels: pairs and rows of kernels that do the same work in ways that differ in one
// thing, and what the GPU's counters must say of each. They are the calibration of the counters as
// well: a lesson whose counts come out otherwise fails its test.
//
//   for (const LessonEntry& entry : Lessons()) {
//     absl::StatusOr<Lesson> lesson = entry.make(gpu);
//     for (const Variant& variant : lesson->variants) variant.launch(stream); …
//   }
//
// A lesson is one .cu file, to be read by itself; docs/microbench.md has a paragraph on each with
// figures.
#ifndef PROFILING_MICROBENCH_LESSON_H_
#define PROFILING_MICROBENCH_LESSON_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cuda_runtime_api.h"

namespace attnlab::profiling {

// What is counted of a variant, and the range that it must lie in.
struct Expectation {
  std::string counted;  // a quantity (quantities.h), or a metric of CUPTI
  double least = 0, most = 0;
};

// Within so much of a value: of itself, and besides.
Expectation About(std::string counted, double value, double part = 0.01, double besides = 0);

struct Variant {
  std::string name;
  // The same work each time; asynchronous, the error is that of the launch.
  std::function<cudaError_t(cudaStream_t)> launch;
  std::vector<Expectation> expected;
  // Whether what a launch left is right, once it is done.
  std::function<absl::Status()> check;
};

struct Lesson {
  std::vector<Variant> variants;
};

// What a lesson may ask about the current GPU.
struct Gpu {
  int compute_capability = 0;  // 90; of the code that runs, which may be for an older GPU
  int multiprocessors = 0;
  int64_t l2_bytes = 0;
  int most_threads = 0;  // that a multiprocessor has room for
};
absl::StatusOr<Gpu> CurrentGpu();

struct LessonEntry {
  const char* name;      // "coalescing"
  const char* question;  // one line
  absl::StatusOr<Lesson> (*make)(const Gpu& gpu);
};
absl::Span<const LessonEntry> Lessons();

// Each in a file of its own. Errors: ResourceExhausted without memory.
absl::StatusOr<Lesson> MakeCoalescing(const Gpu& gpu);
absl::StatusOr<Lesson> MakeWideAccesses(const Gpu& gpu);
absl::StatusOr<Lesson> MakeBankConflicts(const Gpu& gpu);
absl::StatusOr<Lesson> MakeAsyncCopies(const Gpu& gpu);
absl::StatusOr<Lesson> MakeOccupancy(const Gpu& gpu);
absl::StatusOr<Lesson> MakeReductions(const Gpu& gpu);
absl::StatusOr<Lesson> MakeUnrolling(const Gpu& gpu);
absl::StatusOr<Lesson> MakeFusedSoftmax(const Gpu& gpu);
absl::StatusOr<Lesson> MakeMatrixProduct(const Gpu& gpu);
absl::StatusOr<Lesson> MakeExponential(const Gpu& gpu);
absl::StatusOr<Lesson> MakeL2Capacity(const Gpu& gpu);

}  // namespace attnlab::profiling

#endif  // PROFILING_MICROBENCH_LESSON_H_
