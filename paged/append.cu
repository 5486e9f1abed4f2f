#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "attention/cuda/launch.h"
#include "attention/device/convert.cuh"
#include "paged/append_rows.h"
#include "paged/launch.h"

namespace attnlab::paged {
namespace {

// A block moves the rows of some tokens, of all heads. It looks for their pages once, which takes as
// long as a row; so it has more tokens where there are enough for all multiprocessors.
constexpr int kThreads = 256;
constexpr int kMostTokens = 16;  // of a block
constexpr int64_t kBlocks = 512;

struct Convert {
  template <typename T>
  static __device__ float ToFloat(T x) {
    return device::ToFloat(x);
  }
  template <typename T, int kWidth>
  static __device__ void FromFloats(const float (&x)[kWidth], T (&to)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) to[i] = device::FromFloat<T>(x[i]);
  }
  template <int kWidth>
  static __device__ void FromFloats(const float (&x)[kWidth], __nv_fp8_storage_t (&to)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; i += 2) {
      const float second = i + 1 < kWidth ? x[i + 1] : 0;
      const __nv_fp8x2_storage_t pair =
          __nv_cvt_float2_to_fp8x2(make_float2(x[i], second), __NV_SATFINITE, __NV_E4M3);
      to[i] = static_cast<__nv_fp8_storage_t>(pair);
      if (i + 1 < kWidth) to[i + 1] = static_cast<__nv_fp8_storage_t>(pair >> 8);
    }
  }
};

// The sequence that has row `token` of Q. All threads of the block take part.
__device__ int64_t SequenceOf(const AppendArguments& a, int64_t token) {
  if (a.q_sequences.offsets == nullptr) return token / a.sq;
  int before = 0;  // sequences that end at or before the token
  for (int64_t begin = 0; begin < a.b; begin += kThreads) {
    const int64_t i = begin + threadIdx.x;
    before += __syncthreads_count(i < a.b && a.q_sequences.offsets[i + 1] <= token);
  }
  return before;
}

// Moves all pieces of `tokens` tokens. A thread loads kAhead of them before it stores one.
template <int kAhead, bool kRotates, int kWidth, typename In, typename Out>
__device__ void MoveTokens(const AppendArguments& a, const AppendStream& s,
                           const AppendRow* row_of_token, int tokens) {
  const int pieces = s.dim / kWidth, rows = tokens * s.heads;
  // Of rows that are rotated by halves, the second half moves with the first.
  const bool by_halves = s.rotates && !a.rotary.interleaved;
  const int moved_with = by_halves ? a.rotary.dim / 2 / kWidth : 0;
  const int per_row = pieces - moved_with;
  const int row_step = kThreads / per_row, piece_step = kThreads - row_step * per_row;
  int row = static_cast<int>(threadIdx.x) / per_row,
      piece = static_cast<int>(threadIdx.x) - row * per_row;
  while (row < rows) {
    MovedPiece<kWidth, In, Out, Convert, kRotates> moved[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (row < rows) {
        const int token = static_cast<int>(s.by_heads.Divide(row));
        if (row_of_token[token].exists) {
          moved[i].Load(s, a.rotary, row_of_token[token], row - token * s.heads,
                        piece < moved_with ? piece : piece + moved_with);
        }
      }
      row += row_step, piece += piece_step;
      if (piece >= per_row) ++row, piece -= per_row;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) moved[i].Store();
  }
}

template <int kWidth, typename In, typename Out>
__global__ void __launch_bounds__(kThreads, 4)
    AppendKernel(const __grid_constant__ AppendArguments a, int tokens_of_block) {
  __shared__ AppendRow rows[kMostTokens];
  const int64_t first = int64_t{blockIdx.x} * tokens_of_block;
  const int64_t first_sequence = SequenceOf(a, first);
  // Q first: its rows take longest, and the others fill the tail wave.
  const AppendStream& s = a.streams[gridDim.y - 1 - blockIdx.y];
  if (threadIdx.x < tokens_of_block) {
    const int64_t token = first + threadIdx.x;
    int64_t sequence = first_sequence;
    AppendPlace place;
    if (token < a.tokens) {
      if (a.q_sequences.offsets == nullptr) {
        sequence = token / a.sq;
      } else {
        while (sequence < a.b && a.q_sequences.offsets[sequence + 1] <= token) ++sequence;
      }
      if (sequence < a.b) place = PlaceOf(a, sequence, token);
    }
    rows[threadIdx.x] = RowOf(s, a.rotary, place);
  }
  __syncthreads();
  // Rotated queries keep their dtype.
  if (!s.to_pages) {
    MoveTokens<1, true, kWidth, In, In>(a, s, rows, tokens_of_block);
  } else if (s.rotates) {
    MoveTokens<1, true, kWidth, In, Out>(a, s, rows, tokens_of_block);
  } else {
    if constexpr (sizeof(Out) < sizeof(In) && kWidth > 1) {  // stores of 16 bytes
      if (s.doubles) return MoveTokens<2, false, 2 * kWidth, In, Out>(a, s, rows, tokens_of_block);
    }
    MoveTokens<4, false, kWidth, In, Out>(a, s, rows, tokens_of_block);
  }
}

template <int kWidth, typename In, typename Out>
cudaError_t LaunchOf(const AppendArguments& a, cudaStream_t stream) {
  const int64_t wanted = (a.tokens + kBlocks - 1) / kBlocks;
  const int tokens_of_block = static_cast<int>(wanted < kMostTokens ? wanted : kMostTokens);
  const int64_t blocks = (a.tokens + tokens_of_block - 1) / tokens_of_block;
  return device::Launch(AppendKernel<kWidth, In, Out>,
                        dim3(static_cast<uint32_t>(blocks), static_cast<uint32_t>(a.count)),
                        dim3(kThreads), 0, stream, a, tokens_of_block);
}

template <typename In, typename Out>
cudaError_t LaunchOf(const AppendArguments& a, bool wide, cudaStream_t stream) {
  return wide ? LaunchOf<16 / sizeof(In), In, Out>(a, stream) : LaunchOf<1, In, Out>(a, stream);
}

}  // namespace

cudaError_t LaunchAppend(const AppendArguments& a, AppendElement from, AppendElement to, bool wide,
                         cudaStream_t stream) {
  const bool fp8 = to == AppendElement::kFloat8E4M3;
  switch (from) {
    case AppendElement::kFloat32:
      return LaunchOf<float, float>(a, wide, stream);
    case AppendElement::kFloat16:
      return fp8 ? LaunchOf<__half, __nv_fp8_storage_t>(a, wide, stream)
                 : LaunchOf<__half, __half>(a, wide, stream);
    case AppendElement::kBFloat16:
      return fp8 ? LaunchOf<__nv_bfloat16, __nv_fp8_storage_t>(a, wide, stream)
                 : LaunchOf<__nv_bfloat16, __nv_bfloat16>(a, wide, stream);
    case AppendElement::kFloat8E4M3:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::paged
