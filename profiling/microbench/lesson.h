// Teaching kernels: pairs and rows of kernels that do the same work in ways that differ in one
// thing, and what the GPU's counters must say of each. They are the calibration of the counters as
// well: a lesson whose counts come out otherwise fails its test.
//
//   for (const LessonEntry& entry : Lessons()) {
//     Lesson lesson;
//     const cudaError_t error = entry.make(gpu, &lesson); …
//     for (const Variant& variant : lesson.variants) variant.launch(stream); …
//   }
//
// A lesson is one .cu file, to be read by itself; docs/microbench.md has a paragraph on each with
// figures. This header is plain C++, as it is compiled by nvcc; host code finds the lessons in
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
  // "" where what a launch left is right, once it is done; otherwise what is wrong.
  std::function<std::string()> check;
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

// The parts, one after the other, as a stream prints them: for names and for what is wrong.
template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// Each in a file of its own. After an error, such as that of too little memory, the lesson is not
// to be used.
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
