#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "attention/baseline/permute.h"
#include "attention/cuda/launch.h"
#include "attention/device/convert.cuh"

namespace attnlab::baseline {
namespace {

using Direction = PermuteTask::Direction;

// Units that a thread has in flight at once: enough loads to keep the memory busy.
constexpr int kUnroll = 4;

// Units of the same type are copied as they are.
template <typename To, typename From>
__device__ To Converted(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else {
    return device::FromFloat<To>(device::ToFloat(x));
  }
}

// A task counted in units: one element, or 16 bytes.
struct Work {
  PermuteTask task;
  int64_t tiles;      // of rows, per sequence and head
  int32_t tile_rows;  // at most
  int32_t units;      // per row
};

// A block copies tiles of up to tile_rows rows of one sequence and head. Divisions are done once
// per tile. Within a tile, indices have 32 bits, and kUnroll loads come before the first store.
template <typename From, typename To, bool kToTensor>
__global__ void PermuteKernel(const Work work) {
  const PermuteTask& task = work.task;
  const int64_t from_stride = kToTensor ? task.matrices.row_stride : task.tensor.row_stride;
  const int64_t to_stride = kToTensor ? task.tensor.row_stride : task.matrices.row_stride;
  for (int64_t tile = blockIdx.x; tile < task.count * work.tiles; tile += gridDim.x) {
    const int64_t matrix = tile / work.tiles;
    const int64_t first_row = tile % work.tiles * work.tile_rows;
    const int64_t sequence = (task.first + matrix) / task.heads;
    const int64_t head = (task.first + matrix) % task.heads;
    const device::Span span = task.sequences[sequence];
    const int64_t in_tensor = span.batch * task.tensor.batch_stride +
                              (span.begin + first_row) * task.tensor.row_stride +
                              head * task.tensor.head_stride;
    const int64_t in_matrices =
        matrix * task.matrices.stride + first_row * task.matrices.row_stride;
    const void* const from = kToTensor ? task.matrices.data : task.tensor.data;
    void* const to = kToTensor ? task.tensor.data : task.matrices.data;
    const From* const source =
        static_cast<const From*>(from) + (kToTensor ? in_matrices : in_tensor);
    To* const target = static_cast<To*>(to) + (kToTensor ? in_tensor : in_matrices);

    const int64_t left = task.length - first_row;
    const int rows = static_cast<int>(left < work.tile_rows ? left : work.tile_rows);
    const int64_t used_left = span.length - first_row;
    const int used = static_cast<int>(used_left < 0 ? 0 : (used_left < rows ? used_left : rows));
    // A tile beyond the sequence's end has no place in the tensor.
    const int total = (kToTensor ? used : rows) * work.units;
    for (int base = threadIdx.x; base < total; base += kUnroll * blockDim.x) {
      From values[kUnroll];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        const int unit = base + i * blockDim.x;
        const int row = unit / work.units, column = unit - row * work.units;
        values[i] = From{};
        if (unit < total && row < used) values[i] = source[row * from_stride + column];
      }
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        const int unit = base + i * blockDim.x;
        const int row = unit / work.units, column = unit - row * work.units;
        if (unit >= total) continue;
        target[row * to_stride + column] = Converted<To>(values[i]);
      }
    }
  }
}

template <typename From, typename To>
cudaError_t Launch(const PermuteTask& task, int block, cudaStream_t stream) {
  Work work{task, 0, 0, static_cast<int32_t>(task.columns)};
  // A tile has kUnroll units per thread, or one row if that is more.
  work.tile_rows =
      static_cast<int32_t>(std::clamp<int64_t>(kUnroll * block / task.columns, 1, task.length));
  work.tiles = (task.length + work.tile_rows - 1) / work.tile_rows;
  const int64_t grid = std::min<int64_t>(task.count * work.tiles, INT32_MAX);
  void (*kernel)(Work) = task.direction == Direction::kToTensor ? PermuteKernel<From, To, true>
                                                                : PermuteKernel<From, To, false>;
  return device::Launch(kernel, dim3(static_cast<unsigned>(grid)), dim3(block), 0, stream, work);
}

bool IsMultiple(int64_t elements, int64_t size) { return elements * size % 16 == 0; }

// Whether all rows begin at multiples of 16 bytes.
bool Aligned(const PermuteTask& task, int64_t size) {
  const Rows& t = task.tensor;
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && IsMultiple(t.batch_stride, size) &&
         IsMultiple(t.row_stride, size) && IsMultiple(t.head_stride, size) &&
         reinterpret_cast<uintptr_t>(task.matrices.data) % 16 == 0 &&
         IsMultiple(task.matrices.stride, size) && IsMultiple(task.matrices.row_stride, size) &&
         IsMultiple(task.columns, size);
}

// The same task in units of 16 bytes.
PermuteTask InVectors(PermuteTask task, int64_t size) {
  for (int64_t* elements :
       {&task.tensor.batch_stride, &task.tensor.row_stride, &task.tensor.head_stride,
        &task.matrices.stride, &task.matrices.row_stride, &task.columns}) {
    *elements = *elements * size / 16;
  }
  return task;
}

}  // namespace

cudaError_t Permute(const PermuteTask& task, int block, cudaStream_t stream) {
  using device::Element;
  if (task.count == 0 || task.length == 0 || task.columns == 0) return cudaSuccess;
  if (task.columns > INT32_MAX / 4) return cudaErrorInvalidValue;
  const bool to_tensor = task.direction == Direction::kToTensor;
  const Element from = to_tensor ? task.matrix_element : task.tensor.element;
  const Element to = to_tensor ? task.tensor.element : task.matrix_element;
  if (from == to) {
    const int64_t size = device::SizeOf(from);
    if (Aligned(task, size)) return Launch<uint4, uint4>(InVectors(task, size), block, stream);
    return from == Element::kFloat32 ? Launch<uint32_t, uint32_t>(task, block, stream)
                                     : Launch<uint16_t, uint16_t>(task, block, stream);
  }
  if (to == Element::kFloat32) {
    return from == Element::kFloat16 ? Launch<__half, float>(task, block, stream)
                                     : Launch<__nv_bfloat16, float>(task, block, stream);
  }
  if (from == Element::kFloat32 && to == Element::kBFloat16) {
    return Launch<float, __nv_bfloat16>(task, block, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::baseline
