// Statistics of timed calls. All code in this tree takes medians with it.
#ifndef ATTENTION_CORE_STATISTICS_H_
#define ATTENTION_CORE_STATISTICS_H_

#include <vector>

namespace attnlab {

// The value below which a `fraction` (0 to 1) of the values lie, interpolated linearly: 0.5 is the
// median, 0 the smallest. NaN if there are no values.
double Quantile(std::vector<double> values, double fraction);

}  // namespace attnlab

#endif  // ATTENTION_CORE_STATISTICS_H_
