#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "attention/cuda/launch.h"
#include "attention/device/convert.cuh"
#include "attention/device/early_start.cuh"
#include "paged/append_rows.h"
#include "paged/launch.h"

namespace attnlab::paged {
namespace {

constexpr int kThreads = 128;

// A thread moves a piece of one token's rows of so many heads: they have one address and one set of angles,
// and their loads do not wait for each other. Rows that are rotated have a second piece.
constexpr int kHeads = 4, kRotatedHeads = 2;

// The work of a stream.
struct StreamWork {
  uint32_t first_block = 0;
  int32_t tokens = 1;        // of a block
  int32_t groups = 1;        // of heads: a thread has one head of each `groups`
  device::Divisor by_token;  // threads of a token
  device::Divisor by_parts;  // blocks of a token, if it has more than kThreads
};

struct Work {
  StreamWork streams[3];
  int64_t blocks = 0;

  explicit Work(const AppendArguments& a) {
    // Q first: its rows take longest, and the others fill the tail wave.
    for (int n = a.count - 1; n >= 0; --n) {
      const AppendStream& s = a.streams[n];
      StreamWork& w = streams[n];
      const int64_t heads = s.rotates ? kRotatedHeads : kHeads;
      w.first_block = static_cast<uint32_t>(blocks);
      w.groups = static_cast<int32_t>(std::max<int64_t>(1, (s.heads + heads - 1) / heads));
      const uint32_t threads = w.groups * s.by_pieces.Value();
      w.by_token = device::Divisor(threads);
      w.by_parts = device::Divisor((threads - 1) / kThreads + 1);
      w.tokens = std::max(1, kThreads / static_cast<int>(threads));
      blocks += ((a.tokens - 1) / w.tokens + 1) * w.by_parts.Value();
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

// The sequence that has row `token` of packed Q; b if none has. Sequences without rows may be many.
__device__ int64_t PackedSequenceOf(const AppendArguments& a, int64_t token) {
  int64_t low = 0;
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

// A sequence, and what memory says of it.
struct Found {
  int64_t sequence = 0;
  int32_t begin = 0, end = 0;  // packed: its rows
  int64_t length = 0;          // of keys
};

// Only loads: nothing here waits for what is read.
__device__ Found Read(const AppendArguments& a, int64_t sequence) {
  Found found = {sequence};
  if (a.q_sequences.offsets != nullptr) {
    found.begin = a.q_sequences.offsets[sequence];
    found.end = a.q_sequences.offsets[sequence + 1];
  }
  found.length = a.kv_lengths == nullptr ? a.skv : a.kv_lengths[sequence];
  return found;
}

// Reads of the sequence that has the token. Packed, this is a guess: often each one has one new token.
__device__ Found Guess(const AppendArguments& a, int64_t token) {
  const bool packed = a.q_sequences.offsets != nullptr;
  return Read(a, packed ? min(token, a.b - 1) : a.by_sq.Divide(static_cast<uint32_t>(token)));
}

__device__ AppendPlace FindPlace(const AppendArguments& a, int64_t token, Found found) {
  if (a.q_sequences.offsets == nullptr) {
    const int64_t j = token - found.sequence * a.by_sq.Value();
    return PlaceOf(a, found.sequence, found.length, a.q_sequences[found.sequence].length - j);
  }
  if (token < found.begin || token >= found.end) {
    const int64_t sequence = PackedSequenceOf(a, token);
    if (sequence == a.b) return {};
    found = Read(a, sequence);
    if (token < found.begin) return {};
  }
  return PlaceOf(a, found.sequence, found.length, found.end - token);
}

// Many rows of a padded Q may be unused. Those of a packed one are used, but for some at its end.
__device__ bool IsUnused(const AppendArguments& a, int64_t token) {
  if (a.q_sequences.lengths == nullptr) return false;
  const int64_t sequence = a.by_sq.Divide(static_cast<uint32_t>(token));
  return token - sequence * a.by_sq.Value() >= a.q_sequences.lengths[sequence];
}

// Moves piece `index` of the rows of a token, of the heads group, group + groups, ... Rows are loaded before
// their place is known, and it before their page: what comes from memory waits for as little as it can.
template <int kMostHeads, bool kRotates, int kWidth, typename In, typename Out>
__device__ void Move(const AppendArguments& a, const AppendStream& s, int groups, int64_t token,
                     int group, int index) {
  using Mover = PieceMover<kWidth, In, Out, Convert, kRotates>;
  Mover piece(s, a.rotary, index);
  if (piece.IsSecond() || IsUnused(a, token)) return;
  const Found guess = Guess(a, token);
  typename Mover::Words words[kMostHeads];
  int64_t from = OffsetOf(a, token, s.from_batch, s.from_token) + group * s.from_head;
#pragma unroll
  for (int i = 0; i < kMostHeads; ++i, from += groups * s.from_head) {
    if (group + i * groups < s.heads) words[i] = piece.Load(static_cast<const In*>(s.from) + from);
  }
  const AppendPlace place = FindPlace(a, token, guess);
  if (place.position < 0) return;
  const int32_t entry = EntryOf(a, place);
  float scales[kMostHeads];
#pragma unroll
  for (int i = 0; i < kMostHeads; ++i) {
    const int head = group + i * groups;
    scales[i] = head < s.heads && !std::is_same_v<In, Out> ? ScaleOf(s, place, head) : 1;
  }
  piece.LoadAngles(a.rotary, place.position);
  device::LetNextKernelStart();
  int64_t to = ToOf(a, s, token, place, entry);
  if (to < 0) return;
  to += group * s.to_head;
#pragma unroll
  for (int i = 0; i < kMostHeads; ++i, to += groups * s.to_head) {
    if (group + i * groups < s.heads)
      piece.Store(words[i], scales[i], static_cast<Out*>(s.to) + to);
  }
}

// Blocks per multiprocessor as measured in docs/paged.md: by itself ptxas takes ten registers less.
template <int kWidth, typename In, typename Out>
__global__ void __launch_bounds__(kThreads, 5)
    AppendKernel(const __grid_constant__ AppendArguments a, const __grid_constant__ Work work) {
  // Without Q, `first_block` of V is 0.
  const int n = blockIdx.x < work.streams[1].first_block   ? 2
                : blockIdx.x < work.streams[0].first_block ? 1
                                                           : 0;
  const AppendStream& s = a.streams[n];
  const StreamWork& w = work.streams[n];
  const uint32_t block = blockIdx.x - w.first_block,
                 step = w.by_parts.Divide(block);  // of w.tokens
  const uint32_t thread = threadIdx.x + (block - step * w.by_parts.Value()) * kThreads;
  const int token_of_block = static_cast<int>(w.by_token.Divide(thread)),
            of_token = static_cast<int>(thread - token_of_block * w.by_token.Value()),
            group = static_cast<int>(s.by_pieces.Divide(of_token));
  int index = of_token - group * static_cast<int>(s.by_pieces.Value());
  if (index >= s.moved_with) index += s.moved_with;
  const int64_t token = int64_t{step} * w.tokens + token_of_block;
  if (token_of_block >= w.tokens || token >= a.tokens) return;
  device::WaitForKernelAhead();
  // Rotated queries keep their dtype.
  if (!s.to_pages) {
    Move<kRotatedHeads, true, kWidth, In, In>(a, s, w.groups, token, group, index);
  } else if (s.rotates) {
    Move<kRotatedHeads, true, kWidth, In, Out>(a, s, w.groups, token, group, index);
  } else {
    if constexpr (sizeof(Out) < sizeof(In) && kWidth > 1) {  // stores of 16 bytes
      if (s.doubles) {
        Move<kHeads, false, 2 * kWidth, In, Out>(a, s, w.groups, token, group, index);
        return;
      }
    }
    Move<kHeads, false, kWidth, In, Out>(a, s, w.groups, token, group, index);
  }
}

template <int kWidth, typename In, typename Out>
cudaError_t LaunchOf(const AppendArguments& a, cudaStream_t stream) {
  const Work work(a);
  if (work.blocks > std::numeric_limits<int32_t>::max()) return cudaErrorInvalidConfiguration;
  device::LaunchRecord record;
  record.grid = dim3(static_cast<uint32_t>(work.blocks)), record.block = dim3(kThreads);
  record.early = true, record.stream = stream;
  return device::Launch(AppendKernel<kWidth, In, Out>, record, a, work);
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
