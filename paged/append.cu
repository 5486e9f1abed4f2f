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

// A block moves the rows of a few tokens, of all heads. So it looks for their pages once.
constexpr int kThreads = 256;
constexpr int kTokens = 4;

template <typename T>
struct As {
  static __device__ T Of(float x) { return device::FromFloat<T>(x); }
};
template <>
struct As<__nv_fp8_storage_t> {
  static __device__ __nv_fp8_storage_t Of(float x) {
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  }
};

struct Convert {
  template <typename T>
  static __device__ float ToFloat(T x) {
    return device::ToFloat(x);
  }
  template <typename T>
  static __device__ T FromFloat(float x) {
    return As<T>::Of(x);
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

template <int kWidth, typename In, typename Out>
__global__ void __launch_bounds__(kThreads)
    AppendKernel(const __grid_constant__ AppendArguments a) {
  __shared__ AppendPlace places[kTokens];
  const int64_t first = int64_t{blockIdx.x} * kTokens;
  const int64_t first_sequence = SequenceOf(a, first);
  const AppendStream& s = a.streams[blockIdx.y];
  if (threadIdx.x < kTokens) {
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
    places[threadIdx.x] = place;
  }
  __syncthreads();
  const int pieces = static_cast<int>(s.pieces.Value());
  const int per_token = s.heads * pieces;
  for (int t = 0; t < kTokens; ++t) {
    const AppendPlace place = places[t];
    if (place.page < 0) continue;
#pragma unroll 2
    for (int item = threadIdx.x; item < per_token; item += kThreads) {
      const int head = static_cast<int>(s.pieces.Divide(item));
      const int piece = item - head * pieces;
      // Rotated queries keep their dtype.
      if (s.to_pages) {
        MovePiece<kWidth, In, Out, Convert>(s, a.rotary, place, head, piece);
      } else {
        MovePiece<kWidth, In, In, Convert>(s, a.rotary, place, head, piece);
      }
    }
  }
}

template <int kWidth, typename In, typename Out>
cudaError_t LaunchOf(const AppendArguments& a, cudaStream_t stream) {
  const int64_t blocks = (a.tokens + kTokens - 1) / kTokens;
  return device::Launch(AppendKernel<kWidth, In, Out>,
                        dim3(static_cast<uint32_t>(blocks), static_cast<uint32_t>(a.count)),
                        dim3(kThreads), 0, stream, a);
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
