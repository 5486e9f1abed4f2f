#include <cuda_fp8.h>

#include "attention/device/convert.cuh"
#include "attention/oracle/gpu_rows.h"

namespace attnlab::oracle {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kFewKeys = 8;  // as in row.cc

__device__ double Infinity() { return __longlong_as_double(0x7FF0000000000000); }

struct Sum {
  __device__ double operator()(double a, double b) const { return a + b; }
};
struct Max {  // ignores NaN, as std::max(max, NaN) does
  __device__ double operator()(double a, double b) const { return fmax(a, b); }
};

// Threads whose indices are equal modulo `width`, a power of two, combine their values. All of them
// get the result.
template <typename Op>
__device__ double Reduce(double value, int width, const Op& op) {
  __shared__ double values[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  values[thread] = value;
  __syncthreads();
  for (int half = kThreads / 2; half >= width; half /= 2) {
    if (thread < half) values[thread] = op(values[thread], values[thread + half]);
    __syncthreads();
  }
  const double result = values[thread % width];
  __syncthreads();  // before the next call writes `values`
  return result;
}

__device__ float ToFloat(__nv_fp8_e4m3 x) { return static_cast<float>(x); }
template <typename T>
__device__ float ToFloat(T x) {
  return device::ToFloat(x);
}

// The `values` of a tensor times their scale, in double.
template <typename T>
struct Elements {
  const T* values;
  double scale = 1;
  __device__ double operator[](int64_t i) const { return scale * double{ToFloat(values[i])}; }
};

// Elements from the row's `k` or `v` to key j of those that it sees. The strides are those of K or V.
__device__ int64_t KeyOffset(const GpuRows& in, const GpuRow& row, int64_t j, int64_t stride,
                             int64_t page_stride) {
  if (in.page == 0) return j * stride;
  const int64_t key = row.first + j;
  return in.page_table[row.table + key / in.page] * page_stride + key % in.page * stride;
}

// Key j of those that the row sees, and its value.
template <typename Kv>
__device__ const Kv* KeyOf(const GpuRows& in, const GpuRow& row, int64_t j) {
  return static_cast<const Kv*>(in.k) + row.k +
         KeyOffset(in, row, j, in.k_stride, in.k_page_stride);
}
template <typename Kv>
__device__ const Kv* ValueOf(const GpuRows& in, const GpuRow& row, int64_t j) {
  return static_cast<const Kv*>(in.v) + row.v +
         KeyOffset(in, row, j, in.v_stride, in.v_page_stride);
}

// A score of ExactRow(). Writes to *size the value of which Result::score is the maximum.
template <typename T, typename Kv>
__device__ double ExactScore(const GpuRows& in, Elements<T> q, Elements<Kv> k, bool few,
                             double* size) {
  double sum = 0, sum_of_sizes = 0, sum_of_squares = 0;
  for (int64_t i = 0; i < in.d; ++i) {
    const double term = q[i] * k[i];
    sum += term;
    sum_of_sizes += fabs(term);
    sum_of_squares += term * term;
  }
  const double scale = in.scale, cap = in.softcap;
  const double s = scale * sum;
  if (cap != 0) {
    const double tanh_s = tanh(s / cap);
    const double capped = cap * tanh_s;
    *size = (1 - tanh_s * tanh_s) * scale * sum_of_sizes + fabs(capped);
    return capped;
  }
  *size = few ? fmax(fabs(s), scale * sqrt(sum_of_squares)) : fabs(s);
  return s;
}

template <typename T, typename Kv>
__global__ void __launch_bounds__(kThreads) ExactRows(GpuRows in) {
  const int thread = static_cast<int>(threadIdx.x);
  double* const scores = in.scratch + blockIdx.x * in.scratch_stride;
  // Neighbouring threads take columns of V. The remaining threads split the keys of each column.
  int width = 1;
  while (width < kThreads && width < in.dv) width *= 2;
  for (int64_t r = blockIdx.x; r < in.count; r += gridDim.x) {
    const GpuRow row = in.rows[r];
    const Elements<T> q{static_cast<const T*>(in.q) + row.q};
    double* const o = in.exact + r * (in.dv + 3);
    double max = -Infinity(), score = 0;
    for (int64_t j = thread; j < row.keys; j += kThreads) {
      const Elements<Kv> k{KeyOf<Kv>(in, row, j), row.k_scale};
      double size = 0;
      scores[j] = ExactScore(in, q, k, j < kFewKeys, &size);
      score = fmax(score, size);
      max = fmax(max, scores[j]);
    }
    max = Reduce(max, 1, Max());
    score = Reduce(score, 1, Max());
    double sum = 0;
    for (int64_t j = thread; j < row.keys; j += kThreads) {
      scores[j] = exp(scores[j] - max);
      sum += scores[j];
    }
    sum = Reduce(sum, 1, Sum());
    for (int64_t j = thread; j < row.keys; j += kThreads) scores[j] /= sum;
    __syncthreads();
    double spread = 0;
    for (int64_t first = 0; first < in.dv; first += width) {
      const int64_t c = first + thread % width;
      double value = 0, squares = 0;
      for (int64_t j = thread / width; c < in.dv && j < row.keys; j += kThreads / width) {
        const Elements<Kv> v{ValueOf<Kv>(in, row, j), row.v_scale};
        const double term = scores[j] * v[c];
        value += term;
        squares += term * term;
      }
      value = Reduce(value, width, Sum());
      squares = Reduce(squares, width, Sum());
      if (thread < width && c < in.dv) o[c] = value;
      spread = fmax(spread, squares);
    }
    spread = sqrt(Reduce(spread, 1, Max()));
    if (thread == 0) {
      o[in.dv] = row.keys == 0 ? -Infinity() : max + log(sum);
      o[in.dv + 1] = spread;
      o[in.dv + 2] = score;
    }
  }
}

// A factor of a product, truncated to TF32 if `kTf32`.
template <bool kTf32>
__device__ float Factor(float value) {
  return kTf32 ? __uint_as_float(__float_as_uint(value) & ~0x1FFFu) : value;
}

// The intrinsics round each product and each sum, so nothing is fused.
template <bool kTf32>
__device__ float AddProduct(float sum, float a, float b) {
  return __fadd_rn(sum, __fmul_rn(Factor<kTf32>(a), Factor<kTf32>(b)));
}

// Sums numbers in order. Only the threads of the first warp get the result.
__device__ float SumInOrder(const float* values, int64_t count) {
  constexpr int kWarp = 32;
  const int lane = static_cast<int>(threadIdx.x);
  float sum = 0;
  if (lane >= kWarp) return sum;
  for (int64_t first = 0; first < count; first += kWarp) {
    // Lanes beyond the last number add 0, which changes no bit.
    const float mine = first + lane < count ? values[first + lane] : 0;
#pragma unroll
    for (int i = 0; i < kWarp; ++i) sum = __fadd_rn(sum, __shfl_sync(0xFFFFFFFFu, mine, i));
  }
  return sum;
}

template <typename T, typename Kv, bool kTf32>
__global__ void __launch_bounds__(kThreads) StraightforwardRows(GpuRows in) {
  const int thread = static_cast<int>(threadIdx.x);
  __shared__ float shared_sum;
  float* const scores = reinterpret_cast<float*>(in.scratch + blockIdx.x * in.scratch_stride);
  for (int64_t r = blockIdx.x; r < in.count; r += gridDim.x) {
    const GpuRow row = in.rows[r];
    const T* const q = static_cast<const T*>(in.q) + row.q;
    float* const o = in.straightforward + r * (in.dv + 1);
    double max_of_mine = -Infinity();
    for (int64_t j = thread; j < row.keys; j += kThreads) {
      const Kv* const k = KeyOf<Kv>(in, row, j);
      float s = 0;
      for (int64_t i = 0; i < in.d; ++i) {
        s = AddProduct<kTf32>(s, ToFloat(q[i]), __fmul_rn(row.k_scale, ToFloat(k[i])));
      }
      s = __fmul_rn(s, in.scale);
      if (in.softcap != 0) {
        const double ratio = __fdiv_rn(s, in.softcap);
        s = __fmul_rn(in.softcap, static_cast<float>(tanh(ratio)));
      }
      scores[j] = s;
      max_of_mine = fmax(max_of_mine, static_cast<double>(s));
    }
    const float max = static_cast<float>(Reduce(max_of_mine, 1, Max()));
    for (int64_t j = thread; j < row.keys; j += kThreads) {
      const double difference = __fsub_rn(scores[j], max);
      scores[j] = static_cast<float>(exp(difference));
    }
    __syncthreads();
    const float sum_of_warp = SumInOrder(scores, row.keys);
    if (thread == 0) shared_sum = sum_of_warp;
    __syncthreads();
    const float sum = shared_sum;
    for (int64_t j = thread; j < row.keys; j += kThreads) {
      scores[j] = device::ToFloat(device::FromFloat<T>(__fdiv_rn(scores[j], sum)));
    }
    __syncthreads();
    for (int64_t c = thread; c < in.dv; c += kThreads) {
      float value = 0;
#pragma unroll 8
      for (int64_t j = 0; j < row.keys; ++j) {
        const float v = __fmul_rn(row.v_scale, ToFloat(ValueOf<Kv>(in, row, j)[c]));
        value = AddProduct<kTf32>(value, scores[j], v);
      }
      o[c] = device::ToFloat(device::FromFloat<T>(value));
    }
    if (thread == 0) {
      const float log_of_sum = static_cast<float>(log(static_cast<double>(sum)));
      o[in.dv] = row.keys == 0 ? -static_cast<float>(Infinity()) : __fadd_rn(max, log_of_sum);
    }
    __syncthreads();  // before the next row's scores
  }
}

template <typename T, typename Kv, bool kTf32>
void Start(const GpuRows& rows) {
  ExactRows<T, Kv><<<rows.blocks, kThreads>>>(rows);
  StraightforwardRows<T, Kv, kTf32><<<rows.blocks, kThreads>>>(rows);
}

template <typename T>
void Start16(const GpuRows& rows) {
  if (rows.fp8_cache) {
    Start<T, __nv_fp8_e4m3, false>(rows);
  } else {
    Start<T, T, false>(rows);
  }
}

}  // namespace

cudaError_t StartGpuRows(const GpuRows& rows) {
  switch (rows.element) {
    case device::Element::kFloat32:
      if (rows.tf32) {
        Start<float, float, true>(rows);
      } else {
        Start<float, float, false>(rows);
      }
      break;
    case device::Element::kFloat16:
      Start16<__half>(rows);
      break;
    case device::Element::kBFloat16:
      Start16<__nv_bfloat16>(rows);
      break;
  }
  return cudaGetLastError();
}

}  // namespace attnlab::oracle
