// A number that was counted.
#ifndef PROFILING_VALUE_H_
#define PROFILING_VALUE_H_

#include <string>

namespace attnlab::profiling {

struct Value {
  std::string name;  // of a quantity or a metric
  std::string unit;  // of a quantity
  double value = 0;  // NaN if the GPU returned none
};

}  // namespace attnlab::profiling

#endif  // PROFILING_VALUE_H_
