#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "attention/baseline/repair.h"
#include "attention/device/launch.h"

namespace attnlab::baseline {
namespace {

constexpr int kWarp = 32;

__device__ float ToFloat(float x) { return x; }
__device__ float ToFloat(__half x) { return __half2float(x); }
__device__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void Assign(float* to, float x) { *to = x; }
__device__ void Assign(__half* to, float x) { *to = __float2half_rn(x); }
__device__ void Assign(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }

template <typename T>
__device__ const T* Row(const Matrices& m, int64_t matrix, int64_t row) {
  return static_cast<const T*>(m.data) + matrix * m.stride + row * m.row_stride;
}

template <typename T>
__global__ void RepairKernel(const RepairTask task) {
  const ScoreRows& rows = task.rows;
  const int64_t warps = blockDim.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  for (int64_t index = blockIdx.x * warps + threadIdx.x / kWarp; index < rows.count * rows.sq;
       index += gridDim.x * warps) {
    const int64_t pair = index / rows.sq;  // of the pass
    const int64_t matrix = pair / task.group;
    const int64_t row = pair % task.group * rows.sq + index % rows.sq;
    T* const o = const_cast<T*>(Row<T>(task.o, matrix, row));
    bool finite = true;
    for (int64_t c = lane; c < task.dv; c += kWarp) finite = finite && isfinite(ToFloat(o[c]));
    if (__all_sync(0xFFFFFFFF, finite)) continue;

    const int64_t sequence = (rows.first + pair) / rows.hq;
    const int64_t q_row = index % rows.sq;
    const int64_t q_len = rows.q[sequence].length, kv_len = rows.kv[sequence].length;
    if (q_row >= q_len) continue;
    const KvRange visible = VisibleKv(rows.mask, q_row, q_len, kv_len);
    const T* const p = Row<T>(task.p, matrix, row);
    for (int64_t c = lane; c < task.dv; c += kWarp) {
      float sum = 0;
      for (int64_t key = visible.begin; key < visible.end; ++key) {
        sum += ToFloat(p[key]) * ToFloat(Row<T>(task.v, matrix, key)[c]);
      }
      Assign(o + c, sum);
    }
  }
}

}  // namespace

cudaError_t Repair(const RepairTask& task, int block, cudaStream_t stream) {
  const int64_t warps = block / kWarp;
  const int64_t total = task.rows.count * task.rows.sq;
  if (total == 0 || task.dv == 0) return cudaSuccess;
  void (*kernel)(RepairTask) = RepairKernel<float>;
  if (task.element == device::Element::kFloat16) kernel = RepairKernel<__half>;
  if (task.element == device::Element::kBFloat16) kernel = RepairKernel<__nv_bfloat16>;
  const int64_t grid = std::min<int64_t>((total + warps - 1) / warps, INT32_MAX);
  return device::Launch(kernel, dim3(static_cast<unsigned>(grid)), dim3(block), 0, stream, task);
}

}  // namespace attnlab::baseline
