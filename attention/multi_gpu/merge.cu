#include <algorithm>

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
  for (int64_t at = FirstWarp(); at < sum.b * sum.rows * sum.heads; at += Warps()) {
    if (Lane() == 0) sum.states[at] = {};
    for (int64_t i = Lane(); i < sum.dv; i += 32) sum.o[at * sum.dv + i] = 0;
  }
}

// A warp per query and head: its state belongs to this warp alone, so the order is that of the launches.
template <typename T>
__global__ void AddKernel(DeviceSum sum, int64_t first, int64_t rows, DeviceRows o,
                          DeviceRows lse) {
  for (int64_t n = FirstWarp(); n < sum.b * rows * sum.heads; n += Warps()) {
    const Place place(n, rows, sum.heads);
    const int64_t at = (place.b * sum.rows + first + place.row) * sum.heads + place.head;
    device::OnlineSoftmax state = sum.states[at];
    const float part = static_cast<const float*>(lse.data)[place.In(lse)];
    const auto f = state.Merge(device::OnlineSoftmax::OfLse(part));
    const T* const from = static_cast<const T*>(o.data) + place.In(o);
    float* const to = sum.o + at * sum.dv;
    for (int64_t i = Lane(); i < sum.dv; i += 32) {
      to[i] = f.mine * to[i] + f.parts * device::ToFloat(from[i]);
    }
    __syncwarp();  // all lanes have read the state
    if (Lane() == 0) sum.states[at] = state;
  }
}

template <typename T>
__global__ void StoreKernel(DeviceSum sum, DeviceRows o, DeviceRows lse) {
  for (int64_t at = FirstWarp(); at < sum.b * sum.rows * sum.heads; at += Warps()) {
    const Place place(at, sum.rows, sum.heads);
    const device::OnlineSoftmax state = sum.states[at];
    const float factor = state.Inverse();
    T* const to = static_cast<T*>(o.data) + place.In(o);
    for (int64_t i = Lane(); i < sum.dv; i += 32) {
      to[i] = device::FromFloat<T>(sum.o[at * sum.dv + i] * factor);
    }
    if (Lane() == 0 && lse.data != nullptr) {
      static_cast<float*>(lse.data)[place.In(lse)] = state.Lse();
    }
  }
}

// Strides and `dim` in units.
template <typename Unit>
__global__ void CopyKernel(int64_t count, int64_t rows, int64_t heads, int64_t dim, DeviceRows from,
                           DeviceRows to) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t n = int64_t{blockIdx.x} * kThreads + threadIdx.x; n < count; n += step) {
    const Place place(n / dim, rows, heads);
    static_cast<Unit*>(to.data)[place.In(to) + n % dim] =
        static_cast<const Unit*>(from.data)[place.In(from) + n % dim];
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

}  // namespace

cudaError_t StartReset(const DeviceSum& sum, cudaStream_t stream) {
  return Start(ResetKernel, sum.b * sum.rows * sum.heads, kWarps, stream, sum);
}

cudaError_t StartAdd(const DeviceSum& sum, int64_t first, int64_t rows, device::Element element,
                     const DeviceRows& o, const DeviceRows& lse, cudaStream_t stream) {
  const auto start = [&](auto* kernel) {
    return Start(kernel, sum.b * rows * sum.heads, kWarps, stream, sum, first, rows, o, lse);
  };
  switch (element) {
    case device::Element::kFloat16:
      return start(AddKernel<__half>);
    case device::Element::kBFloat16:
      return start(AddKernel<__nv_bfloat16>);
    default:
      return start(AddKernel<float>);
  }
}

cudaError_t StartStore(const DeviceSum& sum, device::Element element, const DeviceRows& o,
                       const DeviceRows& lse, cudaStream_t stream) {
  const auto start = [&](auto* kernel) {
    return Start(kernel, sum.b * sum.rows * sum.heads, kWarps, stream, sum, o, lse);
  };
  switch (element) {
    case device::Element::kFloat16:
      return start(StoreKernel<__half>);
    case device::Element::kBFloat16:
      return start(StoreKernel<__nv_bfloat16>);
    default:
      return start(StoreKernel<float>);
  }
}

cudaError_t StartCopy(int64_t b, int64_t rows, int64_t heads, int64_t dim, device::Element element,
                      const DeviceRows& from, const DeviceRows& to, cudaStream_t stream) {
  const int64_t size = SizeOf(element);
  // 16 bytes at a time if all addresses allow it.
  int64_t bits = dim * size;
  for (const DeviceRows* t : {&from, &to}) {
    bits |= static_cast<int64_t>(reinterpret_cast<uintptr_t>(t->data)) |
            (t->batch | t->row | t->head) * size;
  }
  const auto start = [&](auto* kernel, int64_t unit) {
    const int64_t units = dim * size / unit, count = b * rows * heads * units;
    return Start(kernel, count, kThreads, stream, count, rows, heads, units,
                 InUnits(from, size, unit), InUnits(to, size, unit));
  };
  if (bits % 16 == 0) return start(CopyKernel<uint4>, sizeof(uint4));
  return start(CopyKernel<uint16_t>, sizeof(uint16_t));
}

}  // namespace attnlab::multi_gpu
