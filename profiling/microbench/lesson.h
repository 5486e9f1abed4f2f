// Teaching kernels: sets of kernels that do the same work but differ in one thing, and what the
// GPU's counters must show for each. They also calibrate the counters: a lesson whose counts are
// outside the expected range fails its test.
//
//   for (const LessonEntry& entry : Lessons()) {
//     Lesson lesson;
//     const cudaError_t error = entry.make(gpu, &lesson); …
//     for (const Variant& variant : lesson.variants) variant.launch(stream); …
//   }
//
// Each lesson is one .cu file that can be read by itself; docs/microbench.md explains each, with
// figures. nvcc compiles this header, so it is plain C++; host code finds the lessons in
// lesson_list.h.
#ifndef PROFILING_MICROBENCH_LESSON_H_
#define PROFILING_MICROBENCH_LESSON_H_

#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"

namespace attnlab::profiling {

// A count of a variant, and the range in which it must lie.
struct Expectation {
  std::string counted;  // a quantity (quantities.h), or a CUPTI metric
  double least = 0, most = 0;
};

// The range `value` ± (`part` * `value` + `besides`).
Expectation About(std::string counted, double value, double part = 0.01, double besides = 0);

struct Variant {
  std::string name;
  // Does the same work each time. Asynchronous; the error is that of the launch.
  std::function<cudaError_t(cudaStream_t)> launch;
  std::vector<Expectation> expected;
  // Checks the results of a finished launch: "" if they are right, otherwise what is wrong.
  std::function<std::string()> check;
};

struct Lesson {
  std::vector<Variant> variants;
};

// What a lesson may know about the current GPU.
struct Gpu {
  int compute_capability = 0;  // 90; of the running code, which may be for an older GPU
  int multiprocessors = 0;
  int64_t l2_bytes = 0;
  int most_threads = 0;  // that fit on a multiprocessor
};

// Concatenates the parts as a stream prints them, for names and messages.
template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// Each is defined in its own file. After an error, for example too little memory, the lesson must
// not be used.
cudaError_t MakeCoalescing(const Gpu& gpu, Lesson* lesson);
cudaError_t MakeWideAccesses(const Gpu& gpu, Lesson* lesson);
cudaError_t MakeBankConflicts(const Gpu& gpu, Lesson* lesson);
cudaError_t MakeAsyncCopies(const Gpu& gpu, Lesson* lesson);
cudaError_t MakeOccupancy(const Gpu& gpu, Lesson* lesson);
cudaError_t MakeReductions(const Gpu& gpu, Lesson* lesson);
cudaError_t MakeUnrolling(const Gpu& gpu, Lesson* lesson);
cudaError_t MakeFusedSoftmax(const Gpu& gpu, Lesson* lesson);
cudaError_t MakeMatrixProduct(const Gpu& gpu, Lesson* lesson);
cudaError_t MakeExponential(const Gpu& gpu, Lesson* lesson);
cudaError_t MakeL2Capacity(const Gpu& gpu, Lesson* lesson);

}  // namespace attnlab::profiling

#endif  // PROFILING_MICROBENCH_LESSON_H_
