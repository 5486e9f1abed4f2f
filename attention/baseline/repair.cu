#include <algorithm>
#include <cstdint>

#include "attention/baseline/repair.h"
#include "attention/device/convert.cuh"
#include "attention/device/launch.h"
#include "attention/device/reduce.cuh"

namespace attnlab::baseline {
namespace {

using device::FromFloat;
using device::ToFloat;

constexpr int kWarp = device::kWarpThreads;
constexpr int64_t kBlocks = 2048;

template <typename T, typename V>
__global__ void RepairKernel(const RepairTask task) {
  const ScoreRows& rows = task.rows;
  const int64_t warps = blockDim.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  for (int64_t index = blockIdx.x * warps + threadIdx.x / kWarp; index < rows.count * rows.sq;
       index += gridDim.x * warps) {
    const int64_t pair = index / rows.sq, row = index % rows.sq;
    const int64_t matrix = pair / task.group;
    const bool finite = task.nonfinite[matrix] == 0;
    if (finite && !task.some_see_nothing) continue;
    const int64_t sequence = (rows.first + pair) / rows.hq;
    const int64_t kv_head = (rows.first + pair) % rows.hq / task.group;
    const device::Span q = rows.q[sequence], kv = rows.kv[sequence];
    if (row >= q.length) continue;
    const KvRange visible = VisibleKv(rows.mask, row, q.length, kv.length);

    const int64_t row_of_matrix = pair % task.group * rows.sq + row;
    T* const o =
        static_cast<T*>(task.o.data) + matrix * task.o.stride + row_of_matrix * task.o.row_stride;
    if (visible.begin == visible.end) {
      for (int64_t c = lane; c < task.dv; c += kWarp) o[c] = FromFloat<T>(0);
      continue;
    }
    if (finite) continue;

    const T* const p = static_cast<const T*>(task.p.data) + matrix * task.p.stride +
                       row_of_matrix * task.p.row_stride;
    const V* const v = static_cast<const V*>(task.v.data) + kv.batch * task.v.batch_stride +
                       kv.begin * task.v.row_stride + kv_head * task.v.head_stride;
    for (int64_t c = lane; c < task.dv; c += kWarp) {
      bool any = false;
      float sum = ToFloat(o[c]);
      for (int64_t key = visible.begin; key < visible.end; ++key) {
        const float value = ToFloat(v[key * task.v.row_stride + c]);
        if (isfinite(value)) continue;
        any = true;
        sum += ToFloat(p[key]) * value;
      }
      if (any) o[c] = FromFloat<T>(sum);
    }
  }
}

}  // namespace

cudaError_t Repair(const RepairTask& task, int block, cudaStream_t stream) {
  const int64_t warps = block / kWarp;
  const int64_t total = task.rows.count * task.rows.sq;
  if (total == 0 || task.dv == 0) return cudaSuccess;
  using device::Element;
  void (*kernel)(RepairTask) = nullptr;
  if (task.element == task.v.element) {
    kernel = task.element == Element::kFloat32   ? RepairKernel<float, float>
             : task.element == Element::kFloat16 ? RepairKernel<__half, __half>
                                                 : RepairKernel<__nv_bfloat16, __nv_bfloat16>;
  } else if (task.element == Element::kFloat32 && task.v.element == Element::kBFloat16) {
    kernel = RepairKernel<float, __nv_bfloat16>;
  } else {
    return cudaErrorInvalidValue;
  }
  // Few blocks that go on from row to row: most calls have nothing to repair, and a block a row
  // would take longer to start than to find that out.
  const int64_t grid = std::min<int64_t>((total + warps - 1) / warps, kBlocks);
  return device::Launch(kernel, dim3(static_cast<unsigned>(grid)), dim3(block), 0, stream, task);
}

}  // namespace attnlab::baseline
