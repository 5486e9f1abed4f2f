#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstdint>

#include "attention/cuda/launch.h"
#include "attention/device/convert.cuh"
#include "attention/device/early_start.cuh"
#include "paged/append_rows.h"
#include "paged/launch.h"

namespace attnlab::paged {
namespace {

// A block moves the rows of some tokens, of all heads of K, V or Q. It looks for their pages once, which
// takes as long as a row; so it has more tokens where there are enough for all multiprocessors, and
// where one alone has fewer pieces than there are threads.
constexpr int kThreads = 256;
constexpr int kMostTokens = 16;  // of a block
constexpr int64_t kBlocks = 512;

// The blocks of each stream, counted from `first`.
struct Blocks {
  uint32_t first[3] = {};
  int32_t tokens[3] = {};  // of a block
  uint32_t count = 0;

  explicit Blocks(const AppendArguments& a) {
    // Q first: its rows take longest, and the others fill the tail wave.
    for (int n = a.count - 1; n >= 0; --n) {
      const AppendStream& s = a.streams[n];
      const int64_t spread = (a.tokens + kBlocks - 1) / kBlocks,
                    fill = kThreads / (int64_t{s.heads} * s.by_pieces.Value());
      first[n] = count;
      tokens[n] = static_cast<int32_t>(std::clamp<int64_t>(std::max(spread, fill), 1, kMostTokens));
      count += static_cast<uint32_t>((a.tokens - 1) / tokens[n] + 1);
    }
  }
};

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

// The sequence that has row `token` of packed Q. All threads of the block take part.
__device__ int64_t PackedSequenceOf(const AppendArguments& a, int64_t token) {
  int before = 0;  // sequences that end at or before the token
  for (int64_t begin = 0; begin < a.b; begin += kThreads) {
    const int64_t i = begin + threadIdx.x;
    before += __syncthreads_count(i < a.b && a.q_sequences.offsets[i + 1] <= token);
  }
  return before;
}

// The same from the sequence `low` on, by one thread. Sequences without rows may be many.
__device__ int64_t PackedSequenceFrom(const AppendArguments& a, int64_t low, int64_t token) {
  for (int64_t high = a.b; low < high;) {
    const int64_t middle = low + (high - low) / 2;
    if (a.q_sequences.offsets[middle + 1] <= token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// The tokens of a block.
struct BlockTokens {
  AppendRow rows[kMostTokens];
  int64_t to[kMostTokens];  // below 0: nowhere
};

// Moves all pieces of `count` tokens. A thread loads kAhead of them before it stores one. Before the
// first store it calls `set_to`, which waits for the page table and sets BlockTokens::to.
template <int kAhead, bool kRotates, int kWidth, typename In, typename Out, typename SetTo>
__device__ void MoveTokens(const AppendArguments& a, const AppendStream& s,
                           const BlockTokens& tokens, int count, const SetTo& set_to) {
  const int rows = count * s.heads, per_row = static_cast<int>(s.by_pieces.Value());
  const int row_step = s.by_pieces.Divide(kThreads), piece_step = kThreads - row_step * per_row;
  int row = s.by_pieces.Divide(threadIdx.x), piece = static_cast<int>(threadIdx.x) - row * per_row;
  bool is_set = false;
  do {
    MovedPiece<kWidth, In, Out, Convert, kRotates> moved[kAhead];
    int token[kAhead] = {};
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (row < rows) {
        token[i] = static_cast<int>(s.by_heads.Divide(row));
        if (tokens.rows[token[i]].exists) {
          moved[i].Load(s, a.rotary, tokens.rows[token[i]], row - token[i] * s.heads,
                        piece < s.moved_with ? piece : piece + s.moved_with);
        }
      }
      row += row_step, piece += piece_step;
      if (piece >= per_row) ++row, piece -= per_row;
    }
    if (!is_set) set_to();
    is_set = true;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) moved[i].Store(tokens.to[token[i]]);
  } while (row < rows);
}

template <int kWidth, typename In, typename Out>
__global__ void __launch_bounds__(kThreads, 4)
    AppendKernel(const __grid_constant__ AppendArguments a, const __grid_constant__ Blocks blocks) {
  __shared__ BlockTokens tokens;
  int n = a.count - 1;
  while (n > 0 && blockIdx.x >= blocks.first[n - 1]) --n;
  const AppendStream& s = a.streams[n];
  const int tokens_of_block = blocks.tokens[n];
  const int64_t first = int64_t{blockIdx.x - blocks.first[n]} * tokens_of_block;
  const bool packed = a.q_sequences.offsets != nullptr;
  if (!a.q_sequences.AllLongest() || !a.kv_sequences.AllLongest()) device::WaitForKernelAhead();
  int64_t sequence = packed ? PackedSequenceOf(a, first) : 0;
  AppendPlace place;
  if (threadIdx.x < tokens_of_block) {
    const int64_t token = first + threadIdx.x;
    sequence = packed ? PackedSequenceFrom(a, sequence, token)
                      : a.by_sq.Divide(static_cast<uint32_t>(token));
    if (token < a.tokens && sequence < a.b) place = PlaceOf(a, sequence, token);
    tokens.rows[threadIdx.x] = RowOf(s, a.rotary, place);
  }
  __syncthreads();
  device::WaitForKernelAhead();
  const int32_t entry = EntryOf(a, place);
  const auto set_to = [&] {
    device::LetNextKernelStart();
    if (threadIdx.x < tokens_of_block) tokens.to[threadIdx.x] = ToOf(a, s, place, entry);
    __syncthreads();
  };
  // Rotated queries keep their dtype.
  if (!s.to_pages) {
    MoveTokens<1, true, kWidth, In, In>(a, s, tokens, tokens_of_block, set_to);
  } else if (s.rotates) {
    MoveTokens<1, true, kWidth, In, Out>(a, s, tokens, tokens_of_block, set_to);
  } else {
    if constexpr (sizeof(Out) < sizeof(In) && kWidth > 1) {  // stores of 16 bytes
      if (s.doubles)
        return MoveTokens<2, false, 2 * kWidth, In, Out>(a, s, tokens, tokens_of_block, set_to);
    }
    MoveTokens<4, false, kWidth, In, Out>(a, s, tokens, tokens_of_block, set_to);
  }
}

template <int kWidth, typename In, typename Out>
cudaError_t LaunchOf(const AppendArguments& a, cudaStream_t stream) {
  const Blocks blocks(a);
  device::LaunchRecord record;
  record.grid = dim3(blocks.count), record.block = dim3(kThreads);
  record.early = true, record.stream = stream;
  return device::Launch(AppendKernel<kWidth, In, Out>, record, a, blocks);
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
