// The lessons by name, and the GPU description that they take. For host code: includes Abseil,
// which the lessons do not.
#ifndef PROFILING_MICROBENCH_LESSON_LIST_H_
#define PROFILING_MICROBENCH_LESSON_LIST_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "profiling/microbench/lesson.h"

namespace attnlab::profiling {

absl::StatusOr<Gpu> CurrentGpu();

struct LessonEntry {
  const char* name;      // "coalescing"
  const char* question;  // one line
  cudaError_t (*make)(const Gpu& gpu, Lesson* lesson);
};
absl::Span<const LessonEntry> Lessons();

}  // namespace attnlab::profiling

#endif  // PROFILING_MICROBENCH_LESSON_LIST_H_
