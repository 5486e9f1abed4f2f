// Quantize() on a GPU. A block of threads has the rows of a block, so their scale is known before any of
// them is written, and each is read once. If more rows share a scale, they are read twice.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstdint>

#include "attention/cuda/launch.h"
#include "attention/device/convert.cuh"
#include "attention/device/cp_async.cuh"
#include "attention/fp8/hadamard.h"
#include "attention/fp8/launch.h"
#include "attention/fp8/quantize_rows.h"
#include "attention/fp8/rotate.h"

namespace attnlab::fp8 {
namespace {

// Heads of a thread block: while one is computed, the next one's elements come. All read the same angles.
constexpr int kHeadsTogether = 4;

enum class Pass {
  kAll,      // each block has a scale of its own
  kLargest,  // finds the largest size of what shares a scale, as the bits of a float
  kConvert,  // reads it
};

// Which rows are rotated, in this code.
enum class Turns {
  kNone,
  kHalves,  // whole rows, not interleaved
  kAny,
};

// What a launch makes fp8: some of Q, K and V.
struct Tensors {
  QuantizeRows rows[3];
  int count = 0;
};

// 8 elements.
template <typename T>
__device__ void Unpack(const uint4& words, float* x) {
  T elements[8];
  memcpy(elements, &words, sizeof(words));
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = device::ToFloat(elements[i]);
}

// A row of kDim elements has 2, 4 or 8 lanes. Lane i of n has columns 16 (n m + i) to 16 (n m + i) + 15, so
// that its loads and stores have 16 bytes, and those of a row lie side by side.
template <int kDim>
struct Layout {
  static constexpr int kLanes = kDim == 256 ? 8 : kDim % 64 == 0 ? 4 : 2;
  static constexpr int kParts = kDim / 16 / kLanes;
  static constexpr int kElements = 16 * kParts;
  static constexpr int kBlock = static_cast<int>(HadamardBlock(kDim));
  // Thread blocks of a multiprocessor, as registers allow.
  static constexpr int Blocks(Turns turns) {
    return kDim < 128 ? (turns == Turns::kNone ? 3 : 2) : kDim == 128 ? 2 : 1;
  }

  static __device__ int Column(int lane, int part) { return 16 * (kLanes * part + lane); }
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

// The same for all elements, if rows are rotated whole. With two parts, half of a row is as far as the second from
// the first, and a lane has both elements of each pair. Otherwise another lane has the second one, in the same
// part or one of the other two.
template <int kDim>
__device__ void RotateHalves(const float* cosines, int lane, float (&x)[Layout<kDim>::kElements]) {
  using L = Layout<kDim>;
  if constexpr (L::kParts == 2) {
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      const float* const at = cosines + 16 * lane + i;
      const float4 cosine = *reinterpret_cast<const float4*>(at),
                   sine = *reinterpret_cast<const float4*>(at + kDim / 2);
      Turn(x[i], x[16 + i], cosine.x, sine.x);
      Turn(x[i + 1], x[17 + i], cosine.y, sine.y);
      Turn(x[i + 2], x[18 + i], cosine.z, sine.z);
      Turn(x[i + 3], x[19 + i], cosine.w, sine.w);
    }
  } else {
    const bool low = lane < L::kLanes / 2;
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
      float its[L::kParts][2];
#pragma unroll
      for (int part = 0; part < L::kParts; ++part) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          // The partner of a low lane's element is one part on in the high lane, and so one back for that.
          const float given = low ? x[16 * ((part + 2) % L::kParts) + i + j]
                                  : x[16 * ((part + 1) % L::kParts) + i + j];
          its[part][j] = __shfl_xor_sync(0xFFFFFFFF, given, L::kLanes / 2);
        }
      }
#pragma unroll
      for (int part = 0; part < L::kParts; ++part) {
        const int column = L::Column(lane, part);
        const bool is_second = column >= kDim / 2;
        const float* const at = cosines + (is_second ? column - kDim / 2 : column) + i;
        const float2 cosine = *reinterpret_cast<const float2*>(at),
                     sine = *reinterpret_cast<const float2*>(at + kDim / 2);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& mine = x[16 * part + i + j];
          float first = is_second ? its[part][j] : mine, second = is_second ? mine : its[part][j];
          Turn(first, second, j == 0 ? cosine.x : cosine.y, j == 0 ? sine.x : sine.y);
          mine = is_second ? second : first;
        }
      }
    }
  }
}

// Changes the signs of 8 elements. `signs`: of each pair of columns, as those of two elements of 16 bits.
__device__ void ChangeSigns(const uint32_t* signs, uint4& words) {
  const uint4 sign = *reinterpret_cast<const uint4*>(signs);
  words = {words.x ^ sign.x, words.y ^ sign.y, words.z ^ sign.z, words.w ^ sign.w};
}
__device__ void ChangeSigns(const uint32_t* signs, float* x) {
  const uint4 sign = *reinterpret_cast<const uint4*>(signs);
  const uint32_t s[] = {sign.x, sign.y, sign.z, sign.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __uint_as_float(__float_as_uint(x[2 * i]) ^ s[i] << 16);
    x[2 * i + 1] = __uint_as_float(__float_as_uint(x[2 * i + 1]) ^ (s[i] & 0x80000000));
  }
}

// As MultiplyByHadamard() does it after the signs, operation by operation.
template <int kDim>
__device__ void Multiply(float (&x)[Layout<kDim>::kElements], int lane) {
  using L = Layout<kDim>;
#pragma unroll
  for (int bit = 0; 1 << bit < L::kBlock; ++bit) {
    const int step = 1 << bit;
    if (step < 16 || step >= 16 * L::kLanes) {  // within the lane
      const int distance = step < 16 ? step : step / L::kLanes;
#pragma unroll
      for (int i = 0; i < L::kElements; ++i) {
        if ((i & distance) != 0) continue;
        const float first = x[i], second = x[i + distance];
        x[i] = first + second;
        x[i + distance] = first - second;
      }
    } else {
      const int other = step / 16;
      const float sign = (lane & other) != 0 ? -1.0f : 1.0f;
#pragma unroll
      for (int i = 0; i < L::kElements; ++i) {
        x[i] = fmaf(x[i], sign, __shfl_xor_sync(0xFFFFFFFF, x[i], other));
      }
    }
  }
}

// The largest size of a lane's elements, as bits. Of floats without their signs, the order is that of their bits,
// and NaN is above all. As numbers with a sign, the largest is positive; without one, it is the most negative, if
// there is one.
template <int kCount>
__device__ uint32_t LargestOf(const float (&x)[kCount]) {
  int positive = 0;
  uint32_t negative = 0;
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    positive = max(positive, max(__float_as_int(x[i]), __float_as_int(x[i + 1])));
    negative = max(negative, max(__float_as_uint(x[i]), __float_as_uint(x[i + 1])));
  }
  return max(static_cast<uint32_t>(positive), negative & 0x7FFFFFFF);
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

// Stores a lane's elements, times `inverse`, to a row. What is too large becomes the largest number.
template <int kDim, __nv_fp8_interpretation_t kType>
__device__ void Store(const float (&x)[Layout<kDim>::kElements], float inverse, int lane,
                      uint8_t* to) {
  using L = Layout<kDim>;
#pragma unroll
  for (int i = 0; i < L::kParts; ++i) {
    uint32_t packed[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float* const e = x + 16 * i + 4 * j;
      const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(e[0] * inverse, e[1] * inverse),
                                                    __NV_SATFINITE, kType),
                     high = __nv_cvt_float2_to_fp8x2(make_float2(e[2] * inverse, e[3] * inverse),
                                                     __NV_SATFINITE, kType);
      packed[j] = low | high << 16;
    }
    *reinterpret_cast<uint4*>(to + L::Column(lane, i)) =
        make_uint4(packed[0], packed[1], packed[2], packed[3]);
  }
}

// The grid: blocks of rows, groups of heads, sequences of each tensor; those beyond a grid are of other launches.
// There are no divisions: they would take as many instructions as a thread's elements.
template <typename T, int kDim, Turns kTurns>
__global__ void __launch_bounds__(128 * Layout<kDim>::kLanes, Layout<kDim>::Blocks(kTurns))
    QuantizeKernel(const __grid_constant__ Tensors tensors, Pass pass, int32_t first_head,
                   int64_t first_sequence, uint32_t sequences) {
  using L = Layout<kDim>;
  extern __shared__ uint4
      coming[];  // the next head's elements; a thread's own are blockDim.x apart
  __shared__ __align__(16) uint32_t signs[kDim / 2];
  __shared__ uint32_t largest[2][32];
  const uint32_t tensor = blockIdx.z < sequences ? 0 : blockIdx.z < 2 * sequences ? 1 : 2;
  const QuantizeRows& a = tensors.rows[tensor];
  const int begin = first_head + static_cast<int>(blockIdx.y) * kHeadsTogether,
            end = min(begin + kHeadsTogether, a.heads);
  const int64_t sequence = first_sequence + blockIdx.z - tensor * sequences;
  const device::Span span = a.sequences[sequence];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % L::kLanes;
  const int64_t row = int64_t{blockIdx.x} * a.block + thread / L::kLanes;
  if (row - thread / L::kLanes >= span.length || begin >= end) return;
  const bool exists = row < span.length;
  const T* from = static_cast<const T*>(a.from.data) +
                  a.from.Offset(span.batch, span.begin + (exists ? row : 0), begin);
  const auto load = [&] {
#pragma unroll
    for (int i = 0; i < 2 * L::kParts; ++i) {
      device::CopyAsync<16>(coming + i * blockDim.x + thread,
                            from + L::Column(lane, i / 2) + i % 2 * 8);
    }
    device::CopyAsyncCommit();
  };
  load();
  if (a.hadamard) {
    for (int c = thread; c < kDim / 2; c += static_cast<int>(blockDim.x)) {
      signs[c] =
          (IsNegated(a.seed, 2 * c) ? 0x8000 : 0) | (IsNegated(a.seed, 2 * c + 1) ? 0x80000000 : 0);
    }
    __syncthreads();
  }
  const bool rotates = kTurns != Turns::kNone && a.table != nullptr;
  const float* cosines = nullptr;
  if (rotates) {
    const int64_t position = row + a.kv_sequences[sequence].length - span.length;
    cosines = a.table + max(int64_t{0}, min(position, a.positions - 1)) * a.position_stride;
  }
#pragma unroll 1
  for (int head = begin; head < end; ++head) {
    float x[L::kElements];
    device::CopyAsyncWait<0>();
#pragma unroll
    for (int i = 0; i < 2 * L::kParts; ++i) {
      uint4 words = coming[i * blockDim.x + thread];
      if (!rotates && a.hadamard) {
        ChangeSigns(signs + (L::Column(lane, i / 2) + i % 2 * 8) / 2, words);
      }
      Unpack<T>(words, x + 8 * i);
    }
    from += a.from.head_stride;
    if (head + 1 < end) load();
    if (rotates) {
      if constexpr (kTurns == Turns::kHalves) {
        RotateHalves<kDim>(cosines, lane, x);
      } else {
#pragma unroll
        for (int i = 0; i < L::kElements; i += 4) {
          Rotate(a, from - a.from.head_stride, cosines, L::Column(lane, i / 16) + i % 16, x + i);
          // Or the loads of all take registers at once, and addresses those of all heads.
          asm volatile("" : "+l"(cosines)::"memory");
        }
      }
      if (a.hadamard) {
#pragma unroll
        for (int i = 0; i < L::kElements; i += 8) {
          ChangeSigns(signs + (L::Column(lane, i / 16) + i % 16) / 2, x + i);
        }
      }
    }
    if (a.hadamard) Multiply<kDim>(x, lane);
    float* const scale = a.scales + sequence * a.scale_strides[0] +
                         int64_t{blockIdx.x} * a.scale_strides[1] + head * a.scale_strides[2];
    float divisor = 1;
    if (pass == Pass::kConvert) {
      divisor = DivisorOfLargest(a, __float_as_uint(*scale));
    } else {
      const uint32_t bits = LargestOfBlock(exists ? LargestOf(x) : 0, largest[head % 2]);
      if (pass == Pass::kLargest) {
        if (thread == 0) atomicMax(reinterpret_cast<uint32_t*>(scale), bits);
        continue;
      }
      divisor = DivisorOfLargest(a, bits);
      if (thread == 0) *scale = divisor * FactorOf(a);
    }
    if (!exists) continue;
    const float inverse = __frcp_rn(divisor);
    auto* const to =
        static_cast<uint8_t*>(a.to.data) + a.to.Offset(span.batch, span.begin + row, head);
    if (a.e5m2) {
      Store<kDim, __NV_E5M2>(x, inverse, lane, to);
    } else {
      Store<kDim, __NV_E4M3>(x, inverse, lane, to);
    }
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

template <typename T, int kDim, Turns kTurns>
cudaError_t Launch(const Tensors& tensors, Pass pass, cudaStream_t stream) {
  constexpr int64_t kMost = 65535;  // of a grid's second and third axis
  int64_t blocks = 0, groups = 0;
  for (int i = 0; i < tensors.count; ++i) {
    const QuantizeRows& a = tensors.rows[i];
    blocks = std::max<int64_t>(blocks, a.blocks);
    groups = std::max<int64_t>(groups, (a.heads + kHeadsTogether - 1) / kHeadsTogether);
  }
  const QuantizeRows& a = tensors.rows[0];
  const dim3 threads(static_cast<uint32_t>(a.block * Layout<kDim>::kLanes));
  for (int64_t sequence = 0; sequence < a.b; sequence += kMost / 3) {
    const auto sequences = static_cast<uint32_t>(std::min(a.b - sequence, kMost / 3));
    for (int64_t group = 0; group < groups; group += kMost) {
      const dim3 grid(static_cast<uint32_t>(blocks),
                      static_cast<uint32_t>(std::min(groups - group, kMost)),
                      sequences * static_cast<uint32_t>(tensors.count));
      const cudaError_t error =
          device::Launch(QuantizeKernel<T, kDim, kTurns>, grid, threads,
                         threads.x * Layout<kDim>::kElements * sizeof(T), stream, tensors, pass,
                         static_cast<int32_t>(group * kHeadsTogether), sequence, sequences);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

template <typename T, int kDim>
cudaError_t Launch(const Tensors& tensors, cudaStream_t stream) {
  Turns turns = Turns::kNone;
  for (int i = 0; i < tensors.count; ++i) {
    const QuantizeRows& a = tensors.rows[i];
    if (a.table == nullptr) continue;
    turns = a.rotary_dim == kDim && !a.interleaved ? Turns::kHalves : Turns::kAny;
  }
  const auto run = [&](Pass pass) {
    return turns == Turns::kNone     ? Launch<T, kDim, Turns::kNone>(tensors, pass, stream)
           : turns == Turns::kHalves ? Launch<T, kDim, Turns::kHalves>(tensors, pass, stream)
                                     : Launch<T, kDim, Turns::kAny>(tensors, pass, stream);
  };
  if (!tensors.rows[0].one_scale) return run(Pass::kAll);
  const auto scales = [&](bool finish) {
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < tensors.count && error == cudaSuccess; ++i) {
      error = LaunchScales(tensors.rows[i], finish, stream);
    }
    return error;
  };
  cudaError_t error = scales(/*finish=*/false);
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
