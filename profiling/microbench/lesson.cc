#include "profiling/microbench/lesson.h"

#include <utility>

namespace attnlab::profiling {

Expectation About(std::string counted, double value, double part, double besides) {
  const double slack = part * value + besides;
  return {std::move(counted), value - slack, value + slack};
}

}  // namespace attnlab::profiling
