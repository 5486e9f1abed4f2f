// Quantize() on a GPU. A block of threads has the rows of a block, so their scale is known before any of
// them is written, and each is read once. If more rows share a scale, they are read twice.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "attention/cuda/launch.h"
#include "attention/device/convert.cuh"
#include "attention/device/cp_async.cuh"
#include "attention/fp8/hadamard.h"
#include "attention/fp8/launch.h"
#include "attention/fp8/quantize_rows.h"
#include "attention/fp8/rotate.h"

namespace attnlab::fp8 {
namespace {

enum class Pass {
  kAll,      // each block has a scale of its own
  kLargest,  // finds the largest size of what shares a scale, as the bits of a float
  kConvert,  // reads it
};

// Which rows are rotated, in this code.
enum class Turns {
  kNone,
  kHalves,  // whole rows, not interleaved: a lane has both elements of a pair, and angles in shared memory
  kAny,  // the other element and the angles come from memory
};

// Most heads of a thread block: while one is computed, the next one's elements come. More, where all read the same
// angles, which a block copies when it begins.
constexpr int MostTogether(Turns turns) { return turns == Turns::kHalves ? 16 : 4; }

// What a launch makes fp8: some of Q, K and V.
struct Tensors {
  QuantizeRows rows[3];
  int count = 0;
};

// 8 elements.
template <typename T>
__device__ void Unpack(const uint4& words, float* x) {
  const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = device::UnpackPair<T>(pairs[i]);
    x[2 * i] = pair.x, x[2 * i + 1] = pair.y;
  }
}

// A row of kDim elements has 2 or 4 lanes. Of its chunks of 8 elements, lane i of n has every n-th, from i
// on: those of lanes side by side lie side by side, and half of a row is a whole number of chunks of a lane.
template <int kDim>
struct Layout {
  static constexpr int kLanes = kDim > 96 ? 4 : 2;
  static constexpr int kElements = kDim / kLanes, kParts = kElements / 8;
  static constexpr int kBlock = static_cast<int>(HadamardBlock(kDim));
  // Thread blocks of a multiprocessor, as registers allow.
  static constexpr int Blocks(Turns turns) {
    return kDim == 64 ? 4 : kDim == 96 ? (turns == Turns::kNone ? 3 : 2) : kDim == 128 ? 2 : 1;
  }

  static __device__ int Column(int lane, int part) { return 8 * (kLanes * part + lane); }

  // The rows of a warp in shared memory: where chunks of 16 bytes are, of elements or of angles. 8 lanes that
  // read theirs take all banks.
  static constexpr int kRows = 32 / kLanes, kChunks = kDim / 8;
  static __device__ int Place(int row, int chunk) {
    const int moved = kLanes == 4 ? (row & 1) * 4 : kDim == 64 ? (row & 3) * 2 : (row >> 1 & 1) * 2;
    return row * kChunks + (chunk ^ moved);
  }
  static constexpr int kAngleChunks = kDim / 4;
  static __device__ int AnglePlace(int row, int chunk) {
    const int moved = kLanes == 4 ? row & 1 : (row & 1) | (row >> 1 & 1) * 4;
    return row * kAngleChunks + (chunk ^ moved);
  }
};

// Turns the pairs of 4 elements, from `column` on, by the angles of a position. `row`: all elements.
template <typename T>
__device__ void Rotate(const QuantizeRows& a, const T* row, const float* cosines, int column,
                       float* x) {
  if (column >= a.rotary_dim) return;
  const int half = a.rotary_dim / 2;
  if (a.interleaved) {
    const float2 cosine = *reinterpret_cast<const float2*>(cosines + column / 2),
                 sine = *reinterpret_cast<const float2*>(cosines + half + column / 2);
    Turn(x[0], x[1], cosine.x, sine.x);
    Turn(x[2], x[3], cosine.y, sine.y);
    return;
  }
  const bool is_second = column >= half;
  const int angle = is_second ? column - half : column;
  const float4 cosine = *reinterpret_cast<const float4*>(cosines + angle),
               sine = *reinterpret_cast<const float4*>(cosines + half + angle);
  const T* const others = row + (is_second ? angle : column + half);
  const uint2 words = *reinterpret_cast<const uint2*>(others);
  T other[4];
  memcpy(other, &words, sizeof(words));
  const float c[] = {cosine.x, cosine.y, cosine.z, cosine.w},
              s[] = {sine.x, sine.y, sine.z, sine.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float its = device::ToFloat(other[i]);
    float first = is_second ? its : x[i], second = is_second ? x[i] : its;
    Turn(first, second, c[i], s[i]);
    x[i] = is_second ? second : first;
  }
}

// The same for all elements. `angles`: of the warp's rows.
template <int kDim>
__device__ void RotateHalves(const float4* angles, int row, int lane,
                             float (&x)[Layout<kDim>::kElements]) {
  using L = Layout<kDim>;
#pragma unroll
  for (int i = 0; i < L::kElements / 2; i += 4) {
    const int chunk = L::Column(lane, i / 8) / 4 + i % 8 / 4;
    const float4 cosine = angles[L::AnglePlace(row, chunk)],
                 sine = angles[L::AnglePlace(row, L::kAngleChunks / 2 + chunk)];
    float* const second = x + L::kElements / 2;
    Turn(x[i], second[i], cosine.x, sine.x);
    Turn(x[i + 1], second[i + 1], cosine.y, sine.y);
    Turn(x[i + 2], second[i + 2], cosine.z, sine.z);
    Turn(x[i + 3], second[i + 3], cosine.w, sine.w);
  }
}

// Changes the signs of 8 elements. `signs`: of each pair of columns, as those of two elements of 16 bits.
__device__ void ChangeSigns(const uint32_t* signs, uint4& words) {
  const uint4 sign = *reinterpret_cast<const uint4*>(signs);
  words = {words.x ^ sign.x, words.y ^ sign.y, words.z ^ sign.z, words.w ^ sign.w};
}

// Signs, and the first step of Multiply(): sums and differences of neighbours. `signs`: of all columns, as factors. Of
// fp32, that takes fewer instructions than to change signs before.
template <int kDim>
__device__ void SignAndAddPairs(const uint32_t* signs, float (&x)[Layout<kDim>::kElements],
                                int lane) {
  using L = Layout<kDim>;
  const auto add = [](float& first, float sign, float& second, float its_sign) {
    const float signed_second = second * its_sign;
    second = fmaf(first, sign, -signed_second);
    first = fmaf(first, sign, signed_second);
  };
#pragma unroll
  for (int i = 0; i < L::kElements; i += 4) {
    const float4 sign = *reinterpret_cast<const float4*>(signs + L::Column(lane, i / 8) + i % 8);
    add(x[i], sign.x, x[i + 1], sign.y);
    add(x[i + 2], sign.z, x[i + 3], sign.w);
  }
}

// As MultiplyByHadamard() does it after the signs, operation by operation, from this step on.
template <int kDim, int kFirstBit>
__device__ void Multiply(float (&x)[Layout<kDim>::kElements], int lane) {
  using L = Layout<kDim>;
#pragma unroll
  for (int bit = kFirstBit; 1 << bit < L::kBlock; ++bit) {
    const int step = 1 << bit;
    if (step < 8 || step >= 8 * L::kLanes) {  // within the lane
      const int distance = step < 8 ? step : step / L::kLanes;
#pragma unroll
      for (int i = 0; i < L::kElements; ++i) {
        if ((i & distance) != 0) continue;
        const float first = x[i], second = x[i + distance];
        x[i] = first + second;
        x[i + distance] = first - second;
      }
    } else {
      const int other = step / 8;
      const float sign = (lane & other) != 0 ? -1.0f : 1.0f;
#pragma unroll
      for (int i = 0; i < L::kElements; ++i) {
        x[i] = fmaf(x[i], sign, __shfl_xor_sync(0xFFFFFFFF, x[i], other));
      }
    }
  }
}

// The larger size, or NaN if there is one.
__device__ float Larger(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(fabsf(a)), "f"(fabsf(b)));
  return larger;
#else
  // Of floats without their signs, the order is that of their bits, and NaN is above all.
  return __int_as_float(max(__float_as_int(fabsf(a)), __float_as_int(fabsf(b))));
#endif
}

// The largest size of a lane's elements, as bits.
template <int kCount>
__device__ uint32_t LargestOf(const float (&x)[kCount]) {
  float largest[4] = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) largest[i % 4] = Larger(largest[i % 4], x[i]);
  return __float_as_uint(Larger(Larger(largest[0], largest[1]), Larger(largest[2], largest[3])));
}

__device__ uint32_t LargestOfWarp(uint32_t bits) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xFFFFFFFF, bits);
#else
#pragma unroll
  for (int i = 16; i > 0; i /= 2) bits = max(bits, __shfl_xor_sync(0xFFFFFFFF, bits, i));
  return bits;
#endif
}

// The largest `bits` of the thread block. `memory`: a word per warp, not in use by the call before.
__device__ uint32_t LargestOfBlock(uint32_t bits, uint32_t* memory) {
  bits = LargestOfWarp(bits);
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) memory[threadIdx.x / 32] = bits;
  __syncthreads();
  return LargestOfWarp(lane < warps ? memory[lane] : 0);
}

// What elements are divided by. Their scale is that times FactorOf().
__device__ float DivisorOfLargest(const QuantizeRows& a, uint32_t bits) {
  const float largest = __uint_as_float(bits), least = a.hadamard ? kLeastOfProducts : kLeastScale,
              most = a.e5m2 ? kLargestE5m2 : kLargest;
  return largest < most * least ? least : __fdiv_rn(largest, most);  // NaN stays
}
__device__ float FactorOf(const QuantizeRows& a) { return a.hadamard ? HadamardFactor(a.d) : 1; }

// Stores a lane's elements, times `inverse`, to a row if it `exists`. What is too large becomes the largest number.
template <int kDim, __nv_fp8_interpretation_t kType>
__device__ void Store(const float (&x)[Layout<kDim>::kElements], float inverse, int lane,
                      bool exists, uint8_t* to) {
  using L = Layout<kDim>;
  static_assert(L::kParts % 2 == 0);
  [[maybe_unused]] uint32_t before[2];
#pragma unroll
  for (int i = 0; i < L::kParts; ++i) {
    uint32_t packed[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float* const e = x + 8 * i + 4 * j;
      const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(e[0] * inverse, e[1] * inverse),
                                                    __NV_SATFINITE, kType),
                     high = __nv_cvt_float2_to_fp8x2(make_float2(e[2] * inverse, e[3] * inverse),
                                                     __NV_SATFINITE, kType);
      packed[j] = low | high << 16;
    }
    if constexpr (L::kLanes > 2) {
      if (exists)
        *reinterpret_cast<uint2*>(to + L::Column(lane, i)) = make_uint2(packed[0], packed[1]);
    } else if (i % 2 == 0) {
      before[0] = packed[0], before[1] = packed[1];
    } else {
      // Two lanes have 16 bytes side by side, half of a sector. Of two parts, each stores one whole.
      uint32_t given[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        given[j] = __shfl_xor_sync(0xFFFFFFFF, lane == 0 ? packed[j] : before[j], 1);
      }
      if (!exists) continue;
      *reinterpret_cast<uint4*>(to + L::Column(0, i - 1 + lane)) =
          lane == 0 ? make_uint4(before[0], before[1], given[0], given[1])
                    : make_uint4(given[0], given[1], packed[0], packed[1]);
    }
  }
}

// The thread, such that what follows from it is computed where it is used: kept from one head to the next,
// it would take registers that elements need.
__device__ int ThisThread() {
  int thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));
  return thread;
}

// The grid: blocks of rows, groups of heads, sequences of each tensor; those beyond a grid are of other launches.
// There are no divisions: they would take as many instructions as a thread's elements.
template <typename T, int kDim, Turns kTurns>
__global__ void __launch_bounds__(128 * Layout<kDim>::kLanes, Layout<kDim>::Blocks(kTurns))
    QuantizeKernel(const __grid_constant__ Tensors tensors, Pass pass, int32_t first_head,
                   int32_t together, int64_t first_sequence, uint32_t sequences) {
  using L = Layout<kDim>;
  extern __shared__ uint4 shared[];  // the next head's elements, then angles
  constexpr bool kRotates = kTurns != Turns::kNone;
  // Of columns: of fp32 when they come, 1 or -1; else the signs of two elements of 16 bits.
  __shared__ __align__(16) uint32_t signs[kRotates ? kDim : kDim / 2];
  __shared__ uint32_t largest[2][32];
  const uint32_t tensor = blockIdx.z < sequences ? 0 : blockIdx.z < 2 * sequences ? 1 : 2;
  const QuantizeRows& a = tensors.rows[tensor];
  int head = first_head + static_cast<int>(blockIdx.y) * together;
  const int end = min(head + together, a.heads);
  const int64_t sequence = first_sequence + blockIdx.z - tensor * sequences;
  const device::Span span = a.sequences[sequence];
  const int thread = static_cast<int>(threadIdx.x), warp_row = thread % 32 / L::kLanes;
  // The warp's rows, of which it copies each itself, and the thread's.
  const int64_t block_row = int64_t{blockIdx.x} * a.block,
                first_row = block_row + thread / 32 * L::kRows, row = first_row + warp_row;
  if (block_row >= span.length || head >= end) return;
  const int rows = static_cast<int>(min(int64_t{L::kRows}, span.length - first_row));  // may be < 0
  const bool exists = warp_row < rows;
  const T* from =
      static_cast<const T*>(a.from.data) + a.from.Offset(span.batch, span.begin + first_row, head);
  const auto load = [&] {
    constexpr int kAtOnce = 32 / L::kChunks;  // rows
    const int at = ThisThread(), first = at % 32 / L::kChunks, chunk = at % 32 % L::kChunks;
    uint4* const coming = shared + at / 32 * (L::kRows * L::kChunks);
    const T* chunk_from = from + first * a.from.token_stride + 8 * chunk;
    const auto copy = [&](int i) {
      device::CopyAsync<16>(coming + L::Place(first + i, chunk), chunk_from);
      chunk_from += kAtOnce * a.from.token_stride;
    };
    if (first < kAtOnce && rows == L::kRows) {  // without a branch for each
#pragma unroll
      for (int i = 0; i < L::kRows; i += kAtOnce) copy(i);
    } else if (first < kAtOnce) {
#pragma unroll 1
      for (int i = 0; first + i < rows; i += kAtOnce) copy(i);
    }
    device::CopyAsyncCommit();
  };
  load();
  const bool rotates = kRotates && a.table != nullptr;
  const auto angles_of = [&](int64_t of) {
    const int64_t position = of + a.kv_sequences[sequence].length - span.length;
    return a.table + max(int64_t{0}, min(position, a.positions - 1)) * a.position_stride;
  };
  const auto angles_at = [&](int at) {
    return reinterpret_cast<float4*>(shared + blockDim.x * (L::kElements / 8)) +
           at / 32 * (L::kRows * L::kAngleChunks);
  };
  if (kTurns == Turns::kHalves && rotates) {
#pragma unroll 1
    for (int i = thread % 32; i < L::kRows * L::kAngleChunks; i += 32) {
      const int of = i / L::kAngleChunks, chunk = i % L::kAngleChunks;
      device::CopyAsync<16>(angles_at(thread) + L::AnglePlace(of, chunk),
                            angles_of(first_row + of) + 4 * chunk);
    }
    device::CopyAsyncCommit();
  }
  if (a.hadamard) {
    for (int c = thread; c < static_cast<int>(std::size(signs));
         c += static_cast<int>(blockDim.x)) {
      if constexpr (kRotates) {
        signs[c] = __float_as_uint(IsNegated(a.seed, c) ? -1 : 1);
      } else {
        signs[c] = (IsNegated(a.seed, 2 * c) ? 0x8000 : 0) |
                   (IsNegated(a.seed, 2 * c + 1) ? 0x80000000 : 0);
      }
    }
    __syncthreads();
  }
  auto* to = static_cast<uint8_t*>(a.to.data) + a.to.Offset(span.batch, span.begin + row, head);
#pragma unroll 1
  for (; head < end; ++head) {
    float x[L::kElements];
    const int at = ThisThread(), lane = at % L::kLanes, at_row = at % 32 / L::kLanes;
    const uint4* const coming = shared + at / 32 * (L::kRows * L::kChunks);
    device::CopyAsyncWait<0>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < L::kParts; ++i) {
      uint4 words = coming[L::Place(at_row, L::Column(lane, i) / 8)];
      if (!kRotates && a.hadamard) ChangeSigns(signs + L::Column(lane, i) / 2, words);
      Unpack<T>(words, x + 8 * i);
    }
    __syncwarp();
    from += a.from.head_stride;
    if (head + 1 < end) load();
    if (rotates) {
      if constexpr (kTurns == Turns::kHalves) {
        RotateHalves<kDim>(angles_at(at), at_row, lane, x);
      } else {
        const float* cosines = angles_of(row);
        const T* const mine =
            from - a.from.head_stride + (exists ? warp_row : rows - 1) * a.from.token_stride;
#pragma unroll
        for (int i = 0; i < L::kElements; i += 4) {
          Rotate(a, mine, cosines, L::Column(lane, i / 8) + i % 8, x + i);
          // Or the loads of all take registers at once, and addresses those of all heads.
          asm volatile("" : "+l"(cosines)::"memory");
        }
      }
    }
    if (a.hadamard) {
      if constexpr (kRotates) SignAndAddPairs<kDim>(signs, x, lane);
      Multiply<kDim, kRotates ? 1 : 0>(x, lane);
    }
    const auto scale = [&] {
      return a.scales + sequence * a.scale_strides[0] + int64_t{blockIdx.x} * a.scale_strides[1] +
             head * a.scale_strides[2];
    };
    float divisor = 1;
    if (pass == Pass::kConvert) {
      divisor = DivisorOfLargest(a, __float_as_uint(*scale()));
    } else {
      const uint32_t bits = LargestOfBlock(exists ? LargestOf(x) : 0, largest[head % 2]);
      if (pass == Pass::kLargest) {
        if (thread == 0) atomicMax(reinterpret_cast<uint32_t*>(scale()), bits);
        continue;
      }
      divisor = DivisorOfLargest(a, bits);
      if (thread == 0) *scale() = divisor * FactorOf(a);
    }
    const float inverse = __frcp_rn(divisor);
    if (a.e5m2) {
      Store<kDim, __NV_E5M2>(x, inverse, lane, exists, to);
    } else {
      Store<kDim, __NV_E4M3>(x, inverse, lane, exists, to);
    }
    to += a.to.head_stride;
  }
}

// Before the passes with shared scales they become 0; after them, what was the largest size becomes a
// scale.
__global__ void ScalesKernel(const __grid_constant__ QuantizeRows a, int64_t count, bool finish) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  // Each scale once: along an axis of stride 0 there is one.
  const int64_t heads = a.scale_strides[2] == 0 ? 1 : a.heads,
                blocks = a.scale_strides[1] == 0 ? 1 : a.blocks;
  const int64_t head = i % heads, block = i / heads % blocks, sequence = i / heads / blocks;
  float* const scale = a.scales + sequence * a.scale_strides[0] + block * a.scale_strides[1] +
                       head * a.scale_strides[2];
  *scale = finish ? DivisorOfLargest(a, __float_as_uint(*scale)) * FactorOf(a) : 0;
}

cudaError_t LaunchScales(const QuantizeRows& a, bool finish, cudaStream_t stream) {
  const int64_t count = (a.scale_strides[0] == 0 ? 1 : a.b) *
                        (a.scale_strides[1] == 0 ? 1 : a.blocks) *
                        (a.scale_strides[2] == 0 ? 1 : a.heads);
  return device::Launch(ScalesKernel, dim3(static_cast<uint32_t>((count + 255) / 256)), dim3(256),
                        0, stream, a, count, finish);
}

// Of dynamic shared memory: elements of 16 bits and, of rows that are rotated whole, angles.
template <int kDim>
constexpr size_t SharedBytes(int block, bool angles) {
  return static_cast<size_t>(block) * kDim * (angles ? 2 + sizeof(float) : 2);
}
// At most, beside it: signs and the largest sizes of warps.
constexpr size_t kMoreShared = 2048;

template <typename T, int kDim, Turns kTurns>
cudaError_t Launch(const Tensors& tensors, Pass pass, int processors, cudaStream_t stream) {
  constexpr int64_t kMost = 65535;  // of a grid's second and third axis
  int64_t blocks = 0, heads = 0;
  for (int i = 0; i < tensors.count; ++i) {
    blocks = std::max<int64_t>(blocks, tensors.rows[i].blocks);
    heads = std::max<int64_t>(heads, tensors.rows[i].heads);
  }
  const QuantizeRows& a = tensors.rows[0];
  // So many heads together that multiprocessors still have two rounds of blocks, if all sequences are as long as the
  // longest one.
  int64_t together = MostTogether(kTurns);
  const auto all = [&] {
    int64_t sum = 0;
    for (int i = 0; i < tensors.count; ++i) {
      sum += tensors.rows[i].blocks * ((tensors.rows[i].heads + together - 1) / together);
    }
    return a.b * sum;
  };
  while (together > 1 && all() < int64_t{2} * processors * Layout<kDim>::Blocks(kTurns)) {
    together /= 2;
  }
  const int64_t groups = (heads + together - 1) / together;
  together = (heads + groups - 1) / groups;  // equal groups
  const dim3 threads(static_cast<uint32_t>(a.block * Layout<kDim>::kLanes));
  const size_t shared_bytes = SharedBytes<kDim>(a.block, kTurns == Turns::kHalves);
  for (int64_t sequence = 0; sequence < a.b; sequence += kMost / 3) {
    const auto sequences = static_cast<uint32_t>(std::min(a.b - sequence, kMost / 3));
    for (int64_t group = 0; group < groups; group += kMost) {
      const dim3 grid(static_cast<uint32_t>(blocks),
                      static_cast<uint32_t>(std::min(groups - group, kMost)),
                      sequences * static_cast<uint32_t>(tensors.count));
      const cudaError_t error =
          device::Launch(QuantizeKernel<T, kDim, kTurns>, grid, threads, shared_bytes, stream,
                         tensors, pass, static_cast<int32_t>(group * together),
                         static_cast<int32_t>(together), sequence, sequences);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

template <typename T, int kDim>
cudaError_t Launch(const Tensors& tensors, cudaStream_t stream) {
  int device = 0, most_shared = 0, processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error != cudaSuccess) return error;
  Turns turns = Turns::kNone;
  for (int i = 0; i < tensors.count; ++i) {
    const QuantizeRows& a = tensors.rows[i];
    if (a.table == nullptr) continue;
    const bool fits =
        SharedBytes<kDim>(a.block, true) + kMoreShared <= static_cast<size_t>(most_shared);
    turns = a.rotary_dim == kDim && !a.interleaved && fits ? Turns::kHalves : Turns::kAny;
  }
  const auto run = [&](Pass pass) {
    return turns == Turns::kNone ? Launch<T, kDim, Turns::kNone>(tensors, pass, processors, stream)
           : turns == Turns::kHalves
               ? Launch<T, kDim, Turns::kHalves>(tensors, pass, processors, stream)
               : Launch<T, kDim, Turns::kAny>(tensors, pass, processors, stream);
  };
  if (!tensors.rows[0].one_scale) return run(Pass::kAll);
  const auto scales = [&](bool finish) {
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < tensors.count && error == cudaSuccess; ++i) {
      error = LaunchScales(tensors.rows[i], finish, stream);
    }
    return error;
  };
  error = scales(/*finish=*/false);
  if (error == cudaSuccess) error = run(Pass::kLargest);
  if (error == cudaSuccess) error = run(Pass::kConvert);
  if (error == cudaSuccess) error = scales(/*finish=*/true);
  return error;
}

template <typename T>
cudaError_t Launch(const Tensors& tensors, cudaStream_t stream) {
  switch (tensors.rows[0].d) {
    case 64:
      return Launch<T, 64>(tensors, stream);
    case 96:
      return Launch<T, 96>(tensors, stream);
    case 128:
      return Launch<T, 128>(tensors, stream);
    case 192:
      return Launch<T, 192>(tensors, stream);
    case 256:
      return Launch<T, 256>(tensors, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t LaunchQuantize(const QuantizeRows* rows, int count, device::Element element,
                           cudaStream_t stream) {
  // Those of one head dim together: each launch begins and ends with a GPU that is partly idle.
  for (int first = 0; first < count;) {
    Tensors tensors;
    const auto fits = [&](const QuantizeRows& a) {
      return tensors.count == 0 ||
             (a.d == tensors.rows[0].d && a.one_scale == tensors.rows[0].one_scale);
    };
    for (; first < count && fits(rows[first]); ++first) {
      tensors.rows[tensors.count++] = rows[first];
    }
    const cudaError_t error = element == device::Element::kFloat16 ? Launch<__half>(tensors, stream)
                              : element == device::Element::kBFloat16
                                  ? Launch<__nv_bfloat16>(tensors, stream)
                                  : cudaErrorInvalidValue;
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace attnlab::fp8
