// Quantize() on a GPU. A block of threads has the rows of a block, so their scale is known before any of
// them is written, and each is read once. If more rows share a scale, they are read twice.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "attention/cuda/launch.h"
#include "attention/device/convert.cuh"
#include "attention/device/mma.cuh"
#include "attention/fp8/hadamard.h"
#include "attention/fp8/launch.h"
#include "attention/fp8/quantize_rows.h"
#include "attention/fp8/rotate.h"

namespace attnlab::fp8 {
namespace {

// Heads of a thread block if rows are rotated: all read the same angles.
constexpr int kHeadsTogether = 4;

enum class Pass {
  kAll,      // each block has a scale of its own
  kLargest,  // finds the largest size of what shares a scale, as the bits of a float
  kConvert,  // reads it
};

// 8 elements.
template <typename T>
__device__ void LoadPiece(const T* from, float* x) {
  const uint4 words = *reinterpret_cast<const uint4*>(from);
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
  // Thread blocks of a multiprocessor, as registers allow: one loads while another one computes.
  static constexpr int kBlocks = kDim <= 128 ? 2 : 1;

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

// As MultiplyByHadamard() does it, operation by operation. `negated`: bit c % 32 of word c / 32.
template <int kDim>
__device__ void Multiply(float (&x)[Layout<kDim>::kElements], int lane, const uint32_t* negated) {
  using L = Layout<kDim>;
  const float root = 1 / sqrtf(static_cast<float>(L::kBlock));
#pragma unroll
  for (int part = 0; part < L::kParts; ++part) {
    const int column = L::Column(lane, part);
    const uint32_t signs = negated[column / 32] >> column % 32;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float& e = x[16 * part + i];
      e = __fmul_rn(e, signs >> i & 1 ? -root : root);
    }
  }
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
      const bool second = (lane & other) != 0;
#pragma unroll
      for (int i = 0; i < L::kElements; ++i) {
        const float its = __shfl_xor_sync(0xFFFFFFFF, x[i], other);
        x[i] = second ? its - x[i] : x[i] + its;
      }
    }
  }
}

__device__ uint32_t LargestOfWarp(uint32_t bits) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) bits = max(bits, __shfl_xor_sync(0xFFFFFFFF, bits, i));
  return bits;
}

// The largest `bits` of the thread block. `memory`: a word per warp, not in use by the call before.
__device__ uint32_t LargestOfBlock(uint32_t bits, uint32_t* memory) {
  bits = LargestOfWarp(bits);
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) memory[threadIdx.x / 32] = bits;
  __syncthreads();
  return LargestOfWarp(lane < warps ? memory[lane] : 0);
}

__device__ float ScaleOfLargest(uint32_t bits) {
  const float largest = __uint_as_float(bits);
  return largest < kLargest * kLeastScale ? kLeastScale
                                          : __fdiv_rn(largest, kLargest);  // NaN stays
}

template <typename T, int kDim>
__global__ void __launch_bounds__(128 * Layout<kDim>::kLanes, Layout<kDim>::kBlocks)
    QuantizeKernel(const __grid_constant__ QuantizeRows a, Pass pass, int heads_together) {
  using L = Layout<kDim>;
  __shared__ uint32_t negated[kDim / 32], largest[2][32];
  const int lane = static_cast<int>(threadIdx.x) % L::kLanes;
  int64_t unit = blockIdx.x;
  const auto block = static_cast<int>(unit % a.blocks);
  unit /= a.blocks;
  const int heads_parts = (a.heads + heads_together - 1) / heads_together;
  const int first_head = static_cast<int>(unit % heads_parts) * heads_together;
  const int64_t sequence = unit / heads_parts;
  if (a.hadamard) {
    // Whole warps take part, also in the last ballot.
    for (int c = static_cast<int>(threadIdx.x); c < kDim; c += static_cast<int>(blockDim.x)) {
      const uint32_t word = __ballot_sync(0xFFFFFFFF, IsNegated(a.seed, c));
      if (c % 32 == 0) negated[c / 32] = word;
    }
    __syncthreads();
  }
  const device::Span span = a.sequences[sequence];
  if (int64_t{block} * a.block >= span.length) return;
  const int64_t row = int64_t{block} * a.block + threadIdx.x / L::kLanes;
  const bool exists = row < span.length;
  const float* cosines = nullptr;
  if (a.table != nullptr && exists) {
    const int64_t position = row + a.kv_sequences[sequence].length - span.length;
    cosines = a.table + max(int64_t{0}, min(position, a.positions - 1)) * a.position_stride;
  }
  for (int head = first_head; head < min(first_head + heads_together, a.heads); ++head) {
    float x[L::kElements];
    const T* const from = static_cast<const T*>(a.from.data) +
                          a.from.Offset(span.batch, span.begin + (exists ? row : 0), head);
#pragma unroll
    for (int i = 0; i < L::kParts; ++i) {
      LoadPiece(from + L::Column(lane, i), x + 16 * i);
      LoadPiece(from + L::Column(lane, i) + 8, x + 16 * i + 8);
    }
    if (cosines != nullptr) {
#pragma unroll
      for (int i = 0; i < L::kElements; i += 4) {
        Rotate(a, from, cosines, L::Column(lane, i / 16) + i % 16, x + i);
        // Or the loads of all take registers at once, and addresses those of all heads.
        asm volatile("" : "+l"(cosines)::"memory");
      }
    }
    if (a.hadamard) Multiply<kDim>(x, lane, negated);
    float* const scale = a.scales + sequence * a.scale_strides[0] + block * a.scale_strides[1] +
                         head * a.scale_strides[2];
    float divisor = 1;
    if (pass == Pass::kConvert) {
      divisor = ScaleOfLargest(__float_as_uint(*scale));
    } else {
      // Of floats without their signs, the order is that of their bits, and NaN is above all.
      uint32_t bits = 0;
#pragma unroll
      for (int i = 0; i < L::kElements; ++i) bits = max(bits, __float_as_uint(x[i]) & 0x7FFFFFFF);
      bits = LargestOfBlock(exists ? bits : 0, largest[head % 2]);
      if (pass == Pass::kLargest) {
        if (threadIdx.x == 0) atomicMax(reinterpret_cast<uint32_t*>(scale), bits);
        continue;
      }
      divisor = ScaleOfLargest(bits);
      if (threadIdx.x == 0) *scale = divisor;
    }
    if (!exists) continue;
    const float inverse = __frcp_rn(divisor);
    auto* const to =
        static_cast<uint8_t*>(a.to.data) + a.to.Offset(span.batch, span.begin + row, head);
#pragma unroll
    for (int i = 0; i < L::kParts; ++i) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* const e = x + 16 * i + 4 * j;
        words[j] = device::PackFp8(e[0] * inverse, e[1] * inverse, e[2] * inverse, e[3] * inverse);
      }
      *reinterpret_cast<uint4*>(to + L::Column(lane, i)) =
          make_uint4(words[0], words[1], words[2], words[3]);
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
  *scale = finish ? ScaleOfLargest(__float_as_uint(*scale)) : 0;
}

cudaError_t LaunchScales(const QuantizeRows& a, bool finish, cudaStream_t stream) {
  const int64_t count = (a.scale_strides[0] == 0 ? 1 : a.b) *
                        (a.scale_strides[1] == 0 ? 1 : a.blocks) *
                        (a.scale_strides[2] == 0 ? 1 : a.heads);
  return device::Launch(ScalesKernel, dim3(static_cast<uint32_t>((count + 255) / 256)), dim3(256),
                        0, stream, a, count, finish);
}

template <typename T, int kDim>
cudaError_t Launch(const QuantizeRows& a, cudaStream_t stream) {
  const int together = a.table == nullptr ? 1 : kHeadsTogether;
  const dim3 grid(static_cast<uint32_t>(a.b * a.blocks * ((a.heads + together - 1) / together))),
      threads(static_cast<uint32_t>(a.block * Layout<kDim>::kLanes));
  const auto run = [&](Pass pass) {
    return device::Launch(QuantizeKernel<T, kDim>, grid, threads, 0, stream, a, pass, together);
  };
  if (!a.one_scale) return run(Pass::kAll);
  cudaError_t error = LaunchScales(a, /*finish=*/false, stream);
  if (error == cudaSuccess) error = run(Pass::kLargest);
  if (error == cudaSuccess) error = run(Pass::kConvert);
  if (error == cudaSuccess) error = LaunchScales(a, /*finish=*/true, stream);
  return error;
}

template <typename T>
cudaError_t Launch(const QuantizeRows& a, cudaStream_t stream) {
  switch (a.d) {
    case 64:
      return Launch<T, 64>(a, stream);
    case 96:
      return Launch<T, 96>(a, stream);
    case 128:
      return Launch<T, 128>(a, stream);
    case 192:
      return Launch<T, 192>(a, stream);
    case 256:
      return Launch<T, 256>(a, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t LaunchQuantize(const QuantizeRows& a, device::Element element, cudaStream_t stream) {
  switch (element) {
    case device::Element::kFloat16:
      return Launch<__half>(a, stream);
    case device::Element::kBFloat16:
      return Launch<__nv_bfloat16>(a, stream);
    case device::Element::kFloat32:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::fp8
