#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "attention/cuda/launch.h"
#include "attention/device/convert.cuh"
#include "attention/multi_gpu/merge.h"

namespace attnlab::multi_gpu {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int64_t kMostBlocks = 1 << 16;  // each does several rows if there are more

// One of [b, rows, heads].
struct Place {
  int64_t b, row, head;
  __device__ Place(int64_t index, int64_t rows, int64_t heads)
      : b(index / heads / rows), row(index / heads % rows), head(index % heads) {}
  __device__ int64_t In(const DeviceRows& t) const {
    return b * t.batch + row * t.row + head * t.head;
  }
};

__device__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }
__device__ int64_t FirstWarp() { return int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; }
__device__ int64_t Warps() { return int64_t{gridDim.x} * kWarps; }

__global__ void ResetKernel(DeviceSum sum) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x; at < sum.b * sum.rows * sum.heads;
       at += step) {
    sum.states[at] = {};
  }
}

// kVector elements at once.
template <typename T, int kVector>
struct alignas(kVector * sizeof(T)) Vector {
  T x[kVector];
};

// A warp per query and head: its state belongs to this warp alone, so the order is that of the launches.
template <typename T, int kVector>
__global__ void AddKernel(DeviceSum sum, int64_t first, int64_t rows, DeviceRows o,
                          DeviceRows lse) {
  for (int64_t n = FirstWarp(); n < sum.b * rows * sum.heads; n += Warps()) {
    const Place place(n, rows, sum.heads);
    const int64_t at = (place.b * sum.rows + first + place.row) * sum.heads + place.head;
    device::OnlineSoftmax state = sum.states[at];
    const bool is_first = state.neg_max == device::OnlineSoftmax::kNoKey;
    const float part = static_cast<const float*>(lse.data)[place.In(lse)];
    const auto f = state.Merge(device::OnlineSoftmax::OfLse(part));
    const T* const from = static_cast<const T*>(o.data) + place.In(o);
    float* const to = sum.o + at * sum.dv;
    for (int64_t i = Lane() * kVector; i < sum.dv; i += 32 * kVector) {
      const auto parts = *reinterpret_cast<const Vector<T, kVector>*>(from + i);
      // O is not there yet before the first part.
      Vector<float, kVector> sums = {};
      if (!is_first) sums = *reinterpret_cast<const Vector<float, kVector>*>(to + i);
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        sums.x[j] = f.mine * sums.x[j] + f.parts * device::ToFloat(parts.x[j]);
      }
      *reinterpret_cast<Vector<float, kVector>*>(to + i) = sums;
    }
    __syncwarp();  // all lanes have read the state
    if (Lane() == 0) sum.states[at] = state;
  }
}

template <typename T, int kVector>
__global__ void StoreKernel(DeviceSum sum, DeviceRows o, DeviceRows lse) {
  for (int64_t at = FirstWarp(); at < sum.b * sum.rows * sum.heads; at += Warps()) {
    const Place place(at, sum.rows, sum.heads);
    const device::OnlineSoftmax state = sum.states[at];
    const bool is_empty = state.neg_max == device::OnlineSoftmax::kNoKey;
    const float factor = state.Inverse();
    T* const to = static_cast<T*>(o.data) + place.In(o);
    for (int64_t i = Lane() * kVector; i < sum.dv; i += 32 * kVector) {
      Vector<float, kVector> sums = {};
      if (!is_empty) {
        sums = *reinterpret_cast<const Vector<float, kVector>*>(sum.o + at * sum.dv + i);
      }
      Vector<T, kVector> stored;
#pragma unroll
      for (int j = 0; j < kVector; ++j) stored.x[j] = device::FromFloat<T>(sums.x[j] * factor);
      *reinterpret_cast<Vector<T, kVector>*>(to + i) = stored;
    }
    if (Lane() == 0 && lse.data != nullptr) {
      static_cast<float*>(lse.data)[place.In(lse)] = state.Lse();
    }
  }
}

// A warp per row. Strides and `dim` in units.
template <typename Unit>
__global__ void CopyKernel(int64_t count, int64_t rows, int64_t heads, int64_t dim, DeviceRows from,
                           DeviceRows to) {
  for (int64_t n = FirstWarp(); n < count; n += Warps()) {
    const Place place(n, rows, heads);
    const Unit* const source = static_cast<const Unit*>(from.data) + place.In(from);
    Unit* const target = static_cast<Unit*>(to.data) + place.In(to);
    for (int64_t i = Lane(); i < dim; i += 32) target[i] = source[i];
  }
}

dim3 Blocks(int64_t work, int per_block) {
  return dim3(static_cast<unsigned>(std::min(kMostBlocks, (work + per_block - 1) / per_block)));
}

template <typename... Parameters, typename... Arguments>
cudaError_t Start(void (*kernel)(Parameters...), int64_t work, int per_block, cudaStream_t stream,
                  const Arguments&... arguments) {
  if (work == 0) return cudaSuccess;
  return device::Launch(kernel, Blocks(work, per_block), kThreads, 0, stream, arguments...);
}

// The tensor in units of `size` / `unit` elements.
DeviceRows InUnits(const DeviceRows& t, int64_t size, int64_t unit) {
  return {t.data, t.batch * size / unit, t.row * size / unit, t.head * size / unit};
}

// Whether all of these are multiples of `bytes`, and the dim as well: then rows can be read in such pieces.
bool InPieces(int64_t bytes, int64_t size, int64_t dim,
              std::initializer_list<const DeviceRows*> of) {
  int64_t bits = dim * size;
  for (const DeviceRows* t : of) {
    bits |= static_cast<int64_t>(reinterpret_cast<uintptr_t>(t->data)) |
            (t->batch | t->row | t->head) * size;
  }
  return bits % bytes == 0;
}

// Calls f(T(), vector) with a vector of 4 elements if they can be accessed at once, else of 1.
template <typename F>
cudaError_t WithVector(device::Element element, int64_t dv, const DeviceRows& o, F f) {
  const int64_t size = SizeOf(element);
  const auto with = [&](auto t) {
    return InPieces(4 * size, size, dv, {&o}) ? f(t, std::integral_constant<int, 4>())
                                              : f(t, std::integral_constant<int, 1>());
  };
  switch (element) {
    case device::Element::kFloat16:
      return with(__half());
    case device::Element::kBFloat16:
      return with(__nv_bfloat16());
    default:
      return with(float());
  }
}

}  // namespace

cudaError_t StartReset(const DeviceSum& sum, cudaStream_t stream) {
  return Start(ResetKernel, sum.b * sum.rows * sum.heads, kThreads, stream, sum);
}

cudaError_t StartAdd(const DeviceSum& sum, int64_t first, int64_t rows, device::Element element,
                     const DeviceRows& o, const DeviceRows& lse, cudaStream_t stream) {
  return WithVector(element, sum.dv, o, [&](auto t, auto vector) {
    return Start(AddKernel<decltype(t), vector()>, sum.b * rows * sum.heads, kWarps, stream, sum,
                 first, rows, o, lse);
  });
}

cudaError_t StartStore(const DeviceSum& sum, device::Element element, const DeviceRows& o,
                       const DeviceRows& lse, cudaStream_t stream) {
  return WithVector(element, sum.dv, o, [&](auto t, auto vector) {
    return Start(StoreKernel<decltype(t), vector()>, sum.b * sum.rows * sum.heads, kWarps, stream,
                 sum, o, lse);
  });
}

cudaError_t StartCopy(int64_t b, int64_t rows, int64_t heads, int64_t dim, device::Element element,
                      const DeviceRows& from, const DeviceRows& to, cudaStream_t stream) {
  const int64_t size = SizeOf(element), count = b * rows * heads;
  const auto start = [&](auto* kernel, int64_t unit) {
    return Start(kernel, count, kWarps, stream, count, rows, heads, dim * size / unit,
                 InUnits(from, size, unit), InUnits(to, size, unit));
  };
  if (InPieces(sizeof(uint4), size, dim, {&from, &to})) {
    return start(CopyKernel<uint4>, sizeof(uint4));
  }
  return start(CopyKernel<uint16_t>, sizeof(uint16_t));
}

}  // namespace attnlab::multi_gpu
