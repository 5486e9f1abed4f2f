#include "attention/core/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace attnlab {

double Quantile(std::vector<double> values, double fraction) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  const double position = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(position);
  if (below + 1 >= values.size()) return values.back();
  const double weight = position - static_cast<double>(below);
  return values[below] + weight * (values[below + 1] - values[below]);
}

}  // namespace attnlab
