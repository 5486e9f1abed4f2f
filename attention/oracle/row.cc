#include "attention/oracle/row.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnlab::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Eight partial sums, because a compiler may not reorder the additions of a single sum.
double Dot(const double* a, const double* b, int64_t padded) {
  double partial[kLanes] = {};
  for (int64_t i = 0; i < padded; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) partial[lane] += a[i + lane] * b[i + lane];
  }
  double sum = 0;
  for (double p : partial) sum += p;
  return sum;
}

double SumOfTerms(const double* a, const double* b, int64_t padded) {
  double sum = 0;
  for (int64_t i = 0; i < padded; ++i) sum += std::abs(a[i] * b[i]);
  return sum;
}

// How large the dot product would be if the signs of its terms were random.
double SpreadOfTerms(const double* a, const double* b, int64_t padded) {
  double sum = 0;
  for (int64_t i = 0; i < padded; ++i) sum += (a[i] * b[i]) * (a[i] * b[i]);
  return std::sqrt(sum);
}

// Among more keys than this, some score is likely as large as its terms allow.
constexpr int64_t kFewKeys = 8;

float Round(float value, DType dtype) {
  float stored = 0;
  StoreElement(&stored, dtype, 0, value);
  return LoadElement(&stored, dtype, 0);
}

// A factor of a product, truncated to TF32 if `kTf32`.
template <bool kTf32>
float Factor(float value) {
  if constexpr (!kTf32) return value;
  return internal::FloatFromBits(internal::FloatBits(value) & ~uint32_t{0x1FFF});
}

template <bool kTf32>
void StraightforwardRowOf(const RowInput<float>& in, DType dtype, DType o_dtype, float* scores,
                          float* o, float* lse) {
  std::fill(o, o + in.dv, 0.0f);
  *lse = -std::numeric_limits<float>::infinity();
  if (in.keys == 0) return;

  const int64_t padded = Padded(in.d);
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < in.keys; ++j) {
    const float* k = in.k + j * padded;
    float s = 0;
    for (int64_t i = 0; i < in.d; ++i) s += Factor<kTf32>(in.q[i]) * Factor<kTf32>(k[i]);
    s *= in.scale;
    if (in.softcap != 0) s = in.softcap * std::tanh(s / in.softcap);
    scores[j] = s;
    max = std::max(max, s);
  }
  float sum = 0;
  for (int64_t j = 0; j < in.keys; ++j) {
    scores[j] = std::exp(scores[j] - max);
    sum += scores[j];
  }
  // P, or in fp8 what is divided by the sum only at the end.
  const bool fp8 = dtype == DType::kFloat8E4M3;
  const float divisor = fp8 ? 1 / kFp8Weight : sum, factor = fp8 ? 1 / (kFp8Weight * sum) : 1;
  for (int64_t j = 0; j < in.keys; ++j) {
    const float p = Factor<kTf32>(Round(scores[j] / divisor, dtype));
    const float* v = in.v + j * in.dv;
    for (int64_t c = 0; c < in.dv; ++c) o[c] += p * Factor<kTf32>(v[c]);
  }
  for (int64_t c = 0; c < in.dv; ++c) o[c] = Round(o[c] * factor, o_dtype);
  *lse = max + std::log(sum);
}

template <typename Real, typename Element>
void LoadRowOf(const Element* in, int64_t dim, int64_t width, Real* out, Real scale) {
  for (int64_t i = 0; i < dim; ++i) out[i] = scale * static_cast<Real>(static_cast<float>(in[i]));
  std::fill(out + dim, out + width, Real{0});
}

}  // namespace

void ExactRow(const RowInput<double>& in, double* scores, double* o, double* lse, RowSizes* sizes) {
  std::fill(o, o + in.dv, 0.0);
  if (sizes != nullptr) std::fill(sizes->spread, sizes->spread + in.dv, 0.0);
  *lse = -kInfinity;
  if (in.keys == 0) return;

  const int64_t padded = Padded(in.d);
  double max = -kInfinity;
  for (int64_t j = 0; j < in.keys; ++j) {
    double s = double{in.scale} * Dot(in.q, in.k + j * padded, padded);
    double size = std::abs(s);
    // With few keys all scores may be small because their terms cancel, as in O.
    if (sizes != nullptr && in.softcap == 0 && (j < kFewKeys || sizes->all_keys)) {
      size = std::max(size, double{in.scale} * SpreadOfTerms(in.q, in.k + j * padded, padded));
    }
    if (in.softcap != 0) {
      const double tanh = std::tanh(s / double{in.softcap});
      // What the cap leaves of an error of s. The error is proportional to the terms of s.
      size = sizes == nullptr ? 0
                              : (1 - tanh * tanh) * double{in.scale} *
                                    SumOfTerms(in.q, in.k + j * padded, padded);
      s = double{in.softcap} * tanh;
      size += std::abs(s);
    }
    if (sizes != nullptr) sizes->score = std::max(sizes->score, size);
    scores[j] = s;
    max = std::max(max, s);
  }
  double sum = 0;
  for (int64_t j = 0; j < in.keys; ++j) {
    scores[j] = std::exp(scores[j] - max);
    sum += scores[j];
  }
  for (int64_t j = 0; j < in.keys; ++j) {
    const double p = scores[j] / sum;
    const double* v = in.v + j * in.dv;
    for (int64_t c = 0; c < in.dv; ++c) o[c] += p * v[c];
    if (sizes == nullptr) continue;
    for (int64_t c = 0; c < in.dv; ++c) sizes->spread[c] += (p * v[c]) * (p * v[c]);
  }
  *lse = max + std::log(sum);
}

void StraightforwardRow(const RowInput<float>& in, DType dtype, DType o_dtype, bool tf32,
                        float* scores, float* o, float* lse) {
  const auto row = tf32 ? StraightforwardRowOf<true> : StraightforwardRowOf<false>;
  row(in, dtype, o_dtype, scores, o, lse);
}

template <typename Real>
void LoadRow(const ConstTensorView& view, int64_t batch, int64_t head, int64_t row, int64_t width,
             Real* out, float scale) {
  const int64_t at = view.Offset(batch, row, head, 0);
  const auto load = [&](const auto* data) {
    LoadRowOf(data + at, view.shape[3], width, out, Real{scale});
  };
  switch (view.dtype) {
    case DType::kFloat32:
      return load(static_cast<const float*>(view.data));
    case DType::kFloat16:
      return load(static_cast<const Float16*>(view.data));
    case DType::kBFloat16:
      return load(static_cast<const BFloat16*>(view.data));
    case DType::kFloat8E4M3:
      return load(static_cast<const Float8E4M3*>(view.data));
    case DType::kFloat8E5M2:
      return load(static_cast<const Float8E5M2*>(view.data));
  }
}

template void LoadRow<double>(const ConstTensorView&, int64_t, int64_t, int64_t, int64_t, double*,
                              float);
template void LoadRow<float>(const ConstTensorView&, int64_t, int64_t, int64_t, int64_t, float*,
                             float);

}  // namespace attnlab::oracle
