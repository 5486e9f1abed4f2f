#include "attention/oracle/tolerance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"

namespace attnlab::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Smaller numbers of the dtype have a fixed spacing: Epsilon(dtype) times this.
double SmallestNormal(DType dtype) { return dtype == DType::kFloat16 ? 0x1p-14 : 0x1p-126; }

double ErrorOf(double value, double expected, DType dtype) {
  if (std::isnan(value) || std::isnan(expected)) {
    return std::isnan(value) && std::isnan(expected) ? 0 : kInfinity;
  }
  if (value == expected) return 0;  // also for equal infinities
  if (std::isinf(value)) {
    float rounded = 0;
    StoreElement(&rounded, dtype, 0, static_cast<float>(expected));
    return LoadElement(&rounded, dtype, 0) == value ? 0 : kInfinity;
  }
  return std::abs(value - expected);  // infinity if `expected` is infinite
}

// TF32 has 10 explicit bits of mantissa. Tensor cores add products of fp8 with about 14 bits: a score of
// hundreds of terms loses as many times what the largest leaves to them, of either sign.
constexpr double kEpsilonOfTf32 = 0x1p-10, kEpsilonOfFp8Sums = 0x1p-9;

// The unit and floor of each row's errors, and the straightforward implementation's error in that
// unit.
struct Scale {
  std::vector<double> unit;   // one per row
  std::vector<double> floor;  // one per row, absolute
  double fair = 0;            // the straightforward implementation's largest error, in units
};

double FairError(const Scale& scale, int64_t width, DType dtype, const std::vector<double>& exact,
                 const std::vector<double>& straightforward) {
  double fair = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double unit = scale.unit[i / width];
    const double error = ErrorOf(straightforward[i], exact[i], dtype);
    // If even the straightforward implementation overflows, its error says nothing.
    if (unit > 0 && std::isfinite(unit) && std::isfinite(error))
      fair = std::max(fair, error / unit);
  }
  return fair;
}

// The error of `got` that is largest in proportion to its row's bound; [rows][width] values.
TensorError Worst(absl::Span<const Row> rows, int64_t width, DType dtype, const Scale& scale,
                  const std::vector<double>& exact, const std::vector<double>& got) {
  TensorError worst;
  double worst_part = -1;
  for (size_t i = 0; i < exact.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / width;
    const double error = ErrorOf(got[i], exact[i], dtype);
    const double bound = 2 * scale.fair * scale.unit[row] + scale.floor[row];
    const double part = std::isinf(error) ? kInfinity : error == 0 ? 0 : error / bound;
    if (part <= worst_part) continue;
    worst_part = part;
    worst = {error, bound, rows[row], static_cast<int64_t>(i) % width, got[i], exact[i]};
  }
  return worst;
}

}  // namespace

std::string TensorError::ToString() const {
  return absl::StrFormat(
      "error %.3g %s bound %.3g at sequence %d, head %d, row %d, dim %d: %.9g where the "
      "oracle has %.9g",
      max_error, Passed() ? "<=" : ">", bound, row.sequence, row.head, row.row, dim, value,
      expected);
}

Errors Compare(DType dtype, DType o_dtype, absl::Span<const Row> rows, const Result& exact,
               const Result& straightforward, const Result& values, Factors factors) {
  const double e = Epsilon(dtype), e32 = Epsilon(DType::kFloat32);
  // The error of a score, in proportion to its size.
  const double e_score = dtype == DType::kFloat8E4M3 ? kEpsilonOfFp8Sums
                         : factors == Factors::kTf32 ? kEpsilonOfTf32
                                                     : 8 * e32;
  Scale o, lse;
  for (size_t row = 0; row < rows.size(); ++row) {
    // NaN and infinity have no size; ErrorOf() requires them to be in the same place.
    const auto at_least = [](double size, double x) {
      return std::isfinite(x) ? std::max(size, std::abs(x)) : size;
    };
    double size = at_least(0, exact.spread[row]);
    for (int64_t c = 0; c < exact.dv; ++c) {
      size = at_least(size, exact.O(static_cast<int64_t>(row), c));
    }
    const double score = 1 + at_least(at_least(0, exact.lse[row]), exact.score[row]);
    o.unit.push_back(size);
    const double of_rounding = dtype == DType::kFloat8E4M3 ? e : e / 2;
    o.floor.push_back((of_rounding + e_score * score) * size +
                      SmallestNormal(o_dtype) * Epsilon(o_dtype));
    lse.unit.push_back(score);
    lse.floor.push_back(e_score * score);
  }
  Errors errors;
  o.fair = FairError(o, exact.dv, o_dtype, exact.o, straightforward.o);
  errors.o = Worst(rows, exact.dv, o_dtype, o, exact.o, values.o);
  if (values.lse.empty()) return errors;
  lse.fair = FairError(lse, 1, DType::kFloat32, exact.lse, straightforward.lse);
  errors.lse = Worst(rows, 1, DType::kFloat32, lse, exact.lse, values.lse);
  return errors;
}

}  // namespace attnlab::oracle
