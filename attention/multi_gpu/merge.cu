#include <algorithm>
#include <initializer_list>

#include "attention/cuda/launch.h"
#include "attention/device/convert.cuh"
#include "attention/multi_gpu/merge.h"

namespace attnlab::multi_gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kPiece = sizeof(uint4);     // what a thread loads at once
constexpr int64_t kMostBlocks = 1 << 16;  // each does several rows if there are more

// One of [b, rows, heads].
struct Place {
  int64_t b, row, head;
  __device__ int64_t In(const DeviceRows& t) const {
    return b * t.batch + row * t.row + head * t.head;
  }
};

__device__ Place PlaceOf(int64_t index, int64_t rows, int64_t heads) {
  // Divisions of 64 bits are a hundred instructions, and these kernels have little else to do.
  if ((index | rows | heads) >> 32 == 0) {
    const auto n = static_cast<uint32_t>(index), h = static_cast<uint32_t>(heads), row = n / h,
               r = static_cast<uint32_t>(rows);
    return {row / r, row % r, n % h};
  }
  return {index / heads / rows, index / heads % rows, index % heads};
}

// 2^log neighbouring threads, at most a warp, do a row together.
struct Group {
  int log;
  __host__ __device__ int Lanes() const { return 1 << log; }
  __device__ int Lane() const { return static_cast<int>(threadIdx.x) & (Lanes() - 1); }
  __device__ int64_t First() const { return (int64_t{blockIdx.x} * kThreads + threadIdx.x) >> log; }
  __device__ int64_t Step() const { return (int64_t{gridDim.x} * kThreads) >> log; }
  __device__ void Sync() const {
    const unsigned first = 0xffffffffu >> (32 - Lanes());
    __syncwarp(first << (threadIdx.x % 32 & ~(Lanes() - 1)));
  }
};

// kVector elements at once.
template <typename T, int kVector>
struct alignas(kVector * sizeof(T)) Vector {
  T x[kVector];
};

template <typename T, int kVector>
__device__ auto Load(const T* from) {
  return *reinterpret_cast<const Vector<T, kVector>*>(from);
}

// A group per query, of `count` from `first` on, and head. `o` without data: into the sum.
template <typename T, int kVector>
__global__ void MergeKernel(Group group, Merging m, int64_t first, int64_t count, DeviceRows o,
                            DeviceRows lse) {
  using device::OnlineSoftmax;
  for (int64_t n = group.First(); n < m.b * count * m.heads; n += group.Step()) {
    Place place = PlaceOf(n, count, m.heads);
    place.row += first;
    const int64_t at = (place.b * m.rows + place.row) * m.heads + place.head;
    const OnlineSoftmax before = m.has_sum ? m.states[at] : OnlineSoftmax();
    OnlineSoftmax state = before;
    const T* rows[Merging::kMost];
    float weights[Merging::kMost];              // first the LSE
    Vector<T, kVector> values[Merging::kMost];  // of O: loads start before anything waits for one
    const int64_t x0 = group.Lane() * kVector;
#pragma unroll
    for (int i = 0; i < Merging::kMost; ++i) {
      const DevicePart& part = m.parts[i];
      const Place there = {place.b, place.row - part.first, place.head};
      rows[i] = nullptr;
      if (i >= m.count || there.row < 0 || there.row >= part.rows) continue;
      rows[i] = static_cast<const T*>(part.o.data) + there.In(part.o);
      weights[i] = static_cast<const float*>(part.lse.data)[there.In(part.lse)];
      values[i] = Load<T, kVector>(rows[i] + x0);
    }
#pragma unroll
    for (int i = 0; i < Merging::kMost; ++i) {
      if (rows[i] != nullptr) state.Merge(OnlineSoftmax::OfLse(weights[i]));
    }
    if (o.data == nullptr && m.has_sum && rows[0] == nullptr && rows[1] == nullptr) continue;
    // What was summed is relative to the maximum of all, as are the weights.
    const bool adds = before.neg_max != OnlineSoftmax::kNoKey;
    const float of_sum = OnlineSoftmax(before).MoveTo(state.neg_max);
#pragma unroll
    for (int i = 0; i < Merging::kMost; ++i) {
      if (rows[i] == nullptr) continue;
      weights[i] = OnlineSoftmax(state).Merge(OnlineSoftmax::OfLse(weights[i])).parts;
    }
    const float factor = state.Inverse();
    const int64_t step = group.Lanes() * kVector;
    for (int64_t x = x0; x < m.dv; x += step) {
      Vector<float, kVector> sum = {};
      if (adds) {
        sum = Load<float, kVector>(m.sum + at * m.dv + x);
#pragma unroll
        for (int j = 0; j < kVector; ++j) sum.x[j] *= of_sum;
      }
#pragma unroll
      for (int i = 0; i < Merging::kMost; ++i) {
        if (rows[i] == nullptr) continue;
        const Vector<T, kVector> part = values[i];
        if (x + step < m.dv) values[i] = Load<T, kVector>(rows[i] + x + step);
#pragma unroll
        for (int j = 0; j < kVector; ++j) sum.x[j] += weights[i] * device::ToFloat(part.x[j]);
      }
      if (o.data == nullptr) {
        *reinterpret_cast<Vector<float, kVector>*>(m.sum + at * m.dv + x) = sum;
        continue;
      }
      Vector<T, kVector> stored;
#pragma unroll
      for (int j = 0; j < kVector; ++j) stored.x[j] = device::FromFloat<T>(sum.x[j] * factor);
      *reinterpret_cast<Vector<T, kVector>*>(static_cast<T*>(o.data) + place.In(o) + x) = stored;
    }
    group.Sync();  // all have read the state
    if (group.Lane() != 0) continue;
    if (o.data == nullptr) m.states[at] = state;
    if (lse.data != nullptr) static_cast<float*>(lse.data)[place.In(lse)] = state.Lse();
  }
}

// A group per row. Strides and `dim` in units.
template <typename Unit>
__global__ void CopyKernel(Group group, int64_t count, int64_t rows, int64_t heads, int64_t dim,
                           DeviceRows from, DeviceRows to) {
  for (int64_t n = group.First(); n < count; n += group.Step()) {
    const Place place = PlaceOf(n, rows, heads);
    const Unit* const source = static_cast<const Unit*>(from.data) + place.In(from);
    Unit* const target = static_cast<Unit*>(to.data) + place.In(to);
    for (int64_t i = group.Lane(); i < dim; i += group.Lanes()) target[i] = source[i];
  }
}

// A kernel for so many rows of `dim` units. A thread does about four: what it does once per row takes as many
// instructions as several units.
template <typename... Parameters, typename... Arguments>
cudaError_t Start(void (*kernel)(Group, Parameters...), int64_t rows, int64_t dim,
                  cudaStream_t stream, const Arguments&... arguments) {
  if (rows == 0 || dim == 0) return cudaSuccess;
  Group group = {0};
  while (group.log < 5 && 8 * group.Lanes() <= dim) ++group.log;
  const int64_t blocks = std::min(kMostBlocks, (rows * group.Lanes() + kThreads - 1) / kThreads);
  return device::Launch(kernel, dim3(static_cast<unsigned>(blocks)), kThreads, 0, stream, group,
                        arguments...);
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

// With vectors of 16 bytes if all can be accessed so, else of one element.
cudaError_t StartKernel(const Merging& m, device::Element element, const DeviceRows& o,
                        const DeviceRows& lse, cudaStream_t stream) {
  const int64_t size = SizeOf(element);
  // Rows that have their result stay: those of the sum, or of a first part that lies where O is stored.
  const DevicePart& part = m.parts[0];
  const bool in_sum = o.data == nullptr && m.has_sum,
             in_place = o.data != nullptr && m.count > 0 && part.o.data == o.data &&
                        part.rows == m.rows && (lse.data == nullptr || part.lse.data == lse.data);
  int64_t first = 0, end = m.rows;
  if (in_sum || in_place) {
    first = m.rows, end = 0;
    for (int i = in_place ? 1 : 0; i < m.count; ++i) {
      first = std::min(first, m.parts[i].first);
      end = std::max(end, m.parts[i].first + m.parts[i].rows);
    }
  }
  const int64_t count = std::max<int64_t>(0, end - first), rows = m.b * count * m.heads;
  bool in_pieces = InPieces(kPiece, size, m.dv, {&o});
  for (int i = 0; i < m.count; ++i) {
    in_pieces = in_pieces && InPieces(kPiece, size, m.dv, {&m.parts[i].o});
  }
  const auto with = [&](auto t) {
    using T = decltype(t);
    constexpr int kVector = kPiece / sizeof(T);
    return in_pieces ? Start(MergeKernel<T, kVector>, rows, m.dv / kVector, stream, m, first, count,
                             o, lse)
                     : Start(MergeKernel<T, 1>, rows, m.dv, stream, m, first, count, o, lse);
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

cudaError_t StartMerge(const Merging& merging, device::Element element, cudaStream_t stream) {
  return StartKernel(merging, element, {}, {}, stream);
}

cudaError_t StartStore(const Merging& merging, device::Element element, const DeviceRows& o,
                       const DeviceRows& lse, cudaStream_t stream) {
  return StartKernel(merging, element, o, lse, stream);
}

cudaError_t StartCopy(int64_t b, int64_t rows, int64_t heads, int64_t dim, device::Element element,
                      const DeviceRows& from, const DeviceRows& to, cudaStream_t stream) {
  const int64_t size = SizeOf(element), count = b * rows * heads;
  const auto start = [&](auto* kernel, int64_t unit) {
    return Start(kernel, count, dim * size / unit, stream, count, rows, heads, dim * size / unit,
                 InUnits(from, size, unit), InUnits(to, size, unit));
  };
  if (InPieces(kPiece, size, dim, {&from, &to})) return start(CopyKernel<uint4>, kPiece);
  return start(CopyKernel<uint16_t>, sizeof(uint16_t));
}

}  // namespace attnlab::multi_gpu
