#include "attention/core/mask.h"
#include "attention/cuda/launch.h"
#include "attention/device/online_softmax.h"
#include "row_a_thread.h"

namespace downstream {
namespace {

namespace device = attnlab::device;

__global__ void RowAThreadKernel(device::Arguments a) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t row = index % a.q_sequences.longest;
  const int64_t head = index / a.q_sequences.longest % a.hq;
  const int64_t sequence = index / a.q_sequences.longest / a.hq;
  if (sequence >= a.b) return;
  // Works for every `lens`: sequences of one length, packed, or padded.
  const device::Span queries = a.q_sequences[sequence];
  const device::Span keys = a.kv_sequences[sequence];
  if (row >= queries.length) return;

  const int64_t kv_head = a.group.Divide(static_cast<uint32_t>(head));
  const int64_t token = queries.begin + row;
  const float* q = static_cast<const float*>(a.q.data) + a.q.Offset(queries.batch, token, head);
  float* o = static_cast<float*>(a.o.data) + a.o.Offset(queries.batch, token, head);
  for (int c = 0; c < a.dv; ++c) o[c] = 0;

  device::OnlineSoftmax softmax;
  const attnlab::KvRange seen = attnlab::VisibleKv(a.mask, row, queries.length, keys.length);
  for (int64_t j = seen.begin; j < seen.end; ++j) {
    const int64_t key = keys.begin + j;
    const float* k = static_cast<const float*>(a.k.data) + a.k.Offset(keys.batch, key, kv_head);
    const float* v = static_cast<const float*>(a.v.data) + a.v.Offset(keys.batch, key, kv_head);
    constexpr float kLog2e = 1.44269504f;  // OnlineSoftmax uses base 2
    float score = 0;
    for (int c = 0; c < a.d; ++c) score += a.scale * kLog2e * q[c] * k[c];
    const float factor = softmax.Grow(score);
    const float p = softmax.Weight(score);
    softmax.sum += p;
    for (int c = 0; c < a.dv; ++c) o[c] = factor * o[c] + p * v[c];
  }
  for (int c = 0; c < a.dv; ++c) o[c] *= softmax.Inverse();  // 0 for a row that saw no key
  if (a.lse.data == nullptr) return;
  static_cast<float*>(a.lse.data)[a.lse.Offset(queries.batch, token, head)] = softmax.Lse();
}

}  // namespace

cudaError_t RowAThread(const device::Arguments& a, int threads, cudaStream_t stream) {
  const int64_t rows = a.b * a.hq * a.q_sequences.longest;
  const dim3 grid(static_cast<unsigned>((rows + threads - 1) / threads));
  return device::Launch(RowAThreadKernel, grid, dim3(threads), 0, stream, a);
}

}  // namespace downstream
