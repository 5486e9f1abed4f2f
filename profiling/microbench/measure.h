// Measures lessons with the counters.
#ifndef PROFILING_MICROBENCH_MEASURE_H_
#define PROFILING_MICROBENCH_MEASURE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "profiling/microbench/lesson_list.h"

namespace attnlab::profiling {

struct Measured {
  Expectation expectation;
  double value = 0;
  bool AsExpected() const { return expectation.least <= value && value <= expectation.most; }
};

struct MeasuredVariant {
  std::string name;
  double seconds = 0;  // of a launch without counters, with empty L2: median of five
  std::vector<Measured> measured;
};

// Runs, checks, times and counts every variant of a lesson on the current GPU. Errors are those of
// making the lesson (ResourceExhausted if memory is short), of Counters::Open() and of launches;
// Internal if a result is wrong.
absl::StatusOr<std::vector<MeasuredVariant>> MeasureLesson(const LessonEntry& entry);

}  // namespace attnlab::profiling

#endif  // PROFILING_MICROBENCH_MEASURE_H_
