// The few statistics of a benchmark row.
#ifndef ATTENTION_BENCH_STATISTICS_H_
#define ATTENTION_BENCH_STATISTICS_H_

#include <vector>

namespace attnlab::bench {

// The value below which `fraction` of the values lie, 0 to 1, linear between neighbours: 0.5 is
// the median, 0 the smallest. NaN without values.
double Quantile(std::vector<double> values, double fraction);

}  // namespace attnlab::bench

#endif  // ATTENTION_BENCH_STATISTICS_H_
