// Statistics of timed calls: the one median of this tree.
#ifndef ATTENTION_CORE_STATISTICS_H_
#define ATTENTION_CORE_STATISTICS_H_

#include <vector>

namespace attnlab {

// The value below which `fraction` of the values lie, 0 to 1, linear between neighbours: 0.5 is
// the median, 0 the smallest. NaN without values.
double Quantile(std::vector<double> values, double fraction);

}  // namespace attnlab

#endif  // ATTENTION_CORE_STATISTICS_H_
