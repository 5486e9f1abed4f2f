#include "attention/testing/tolerance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"

namespace attnlab::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double ErrorOf(double value, double expected, DType dtype) {
  if (std::isnan(value) || std::isnan(expected)) {
    return std::isnan(value) && std::isnan(expected) ? 0 : kInfinity;
  }
  if (value == expected) return 0;  // infinities among them
  if (std::isinf(value)) {
    float rounded = 0;
    StoreElement(&rounded, dtype, 0, static_cast<float>(expected));
    return LoadElement(&rounded, dtype, 0) == value ? 0 : kInfinity;
  }
  return std::abs(value - expected);  // infinity if `expected` is
}

// The largest error of `got` against `expected`, [rows][width] each.
TensorError Largest(absl::Span<const reference::Row> rows, int64_t width, DType dtype,
                    const std::vector<double>& expected, const std::vector<double>& got) {
  TensorError largest;
  largest.max_error = -1;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = ErrorOf(got[i], expected[i], dtype);
    if (error <= largest.max_error) continue;
    largest.max_error = error;
    largest.row = rows[i / width];
    largest.dim = static_cast<int64_t>(i) % width;
    largest.value = got[i];
    largest.expected = expected[i];
  }
  largest.max_error = std::max(largest.max_error, 0.0);
  return largest;
}

double Bound(const TensorError& straightforward, double floor) {
  // Where even the straightforward implementation overflows, its error says nothing.
  return (std::isfinite(straightforward.max_error) ? 2 * straightforward.max_error : 0) + floor;
}

}  // namespace

std::string TensorError::ToString() const {
  return absl::StrFormat(
      "max error %.3g %s bound %.3g, at sequence %d, head %d, row %d, dim %d: %.9g where the "
      "oracle has %.9g",
      max_error, Passed() ? "<=" : ">", bound, row.sequence, row.head, row.row, dim, value,
      expected);
}

Errors Compare(DType dtype, absl::Span<const reference::Row> rows, const reference::Result& exact,
               const reference::Result& straightforward, const reference::Result& values) {
  double spread = 0, lse = 0;
  for (double x : exact.spread) spread = std::isfinite(x) ? std::max(spread, x) : spread;
  for (double x : exact.lse) lse = std::isfinite(x) ? std::max(lse, std::abs(x)) : lse;
  const double score_error = 8 * Epsilon(DType::kFloat32) * (1 + lse);

  Errors errors;
  errors.o = Largest(rows, exact.dv, dtype, exact.o, values.o);
  errors.o.bound = Bound(Largest(rows, exact.dv, dtype, exact.o, straightforward.o),
                         (Epsilon(dtype) + score_error) * spread);
  if (values.lse.empty()) return errors;
  errors.lse = Largest(rows, 1, DType::kFloat32, exact.lse, values.lse);
  errors.lse.bound =
      Bound(Largest(rows, 1, DType::kFloat32, exact.lse, straightforward.lse), score_error);
  return errors;
}

}  // namespace attnlab::testing
