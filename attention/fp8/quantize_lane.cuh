// What Quantize()'s kernel does with a lane's elements of a row: turns them, multiplies them by the Hadamard
// matrix, and makes them fp8. They are words of two elements of 16 bits: as they came or, once they are turned
// or multiplied, in fp16 (quantize_rows.h).
#ifndef ATTENTION_FP8_QUANTIZE_LANE_CUH_
#define ATTENTION_FP8_QUANTIZE_LANE_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <cstring>

#include "attention/device/convert.cuh"
#include "attention/fp8/hadamard.h"
#include "attention/fp8/quantize_rows.h"
#include "attention/fp8/rotate.h"

namespace attnlab::fp8 {

// Which rows are rotated, in this code.
enum class Turns {
  kNone,
  kHalves,  // whole rows, not interleaved: a lane has both elements of a pair, and angles in shared memory
  kAny,  // the other element and the angles come from memory
};

// Two elements of 16 bits are a word.
__device__ inline __half2 Halves(uint32_t word) { return *reinterpret_cast<const __half2*>(&word); }
__device__ inline uint32_t Word(__half2 halves) {
  return *reinterpret_cast<const uint32_t*>(&halves);
}

__device__ inline void SetPart(uint4 from, uint32_t* words) {
  words[0] = from.x, words[1] = from.y, words[2] = from.z, words[3] = from.w;
}

// A row of kDim elements has 2 or 4 lanes. Of its chunks of 8 elements, lane i of n has every n-th, from i
// on: those of lanes side by side lie side by side, and half of a row is a whole number of chunks of a lane.
template <int kDim>
struct Layout {
  static constexpr uint32_t kLanes = kDim > 96 ? 4 : 2;
  static constexpr int kElements = kDim / kLanes, kParts = kElements / 8, kWords = kElements / 2;
  static constexpr int kBlock = static_cast<int>(HadamardBlock(kDim));
  // Thread blocks of a multiprocessor of 9.0, as registers and shared memory allow.
  static constexpr int kBlocks = kDim == 64 ? 4 : kDim == 96 ? 3 : kDim == 128 ? 2 : 1;

  static __device__ uint32_t Column(uint32_t lane, int part) { return 8 * (kLanes * part + lane); }

  // The rows of a warp in shared memory, in units of 16 bytes: where a lane's part of a row is, and where the
  // angles are that it reads for a part, four at a time. 8 lanes that read theirs take all banks. Parts that
  // differ by a multiple of kCycle are a constant distance apart.
  static constexpr uint32_t kRows = 32 / kLanes, kChunks = kDim / 8, kAngleChunks = kDim / 4;
  static __device__ uint32_t Place(uint32_t row, uint32_t part, uint32_t lane) {
    constexpr uint32_t kCycle = kDim == 64 ? 4 : 2;
    const uint32_t moved = kLanes == 4 ? row % 2 : kDim == 64 ? row % 4 : row / 2 % 2;
    return row * kChunks + kLanes * (part / kCycle * kCycle + (part % kCycle ^ moved)) + lane;
  }
  // `half`: of a part's 8. The sines follow the cosines, as if they were more parts.
  static __device__ uint32_t AnglePlace(uint32_t row, uint32_t part, uint32_t lane, uint32_t half) {
    const uint32_t moved = kLanes == 4 ? 0 : row / 2 % 2;
    return row * kAngleChunks + 2 * (kLanes * (part / 2 * 2 + (part % 2 ^ moved)) + lane) +
           (half ^ row % 2);
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

// Turns a lane's elements, if they are to be, and calls put(i, first, second) with those of each word.
template <typename T, int kDim, Turns kTurns>
struct Turner {
  using L = Layout<kDim>;
  const QuantizeRows& a;
  bool turns;
  uint32_t lane, at_row;  // at_row: of the warp
  const float4* angles;   // kHalves: of the warp's rows
  const float* cosines;   // kAny: of the row
  const T* row;           // kAny: of the head

  template <typename Put>
  __device__ void ForEachWord(const uint32_t (&words)[L::kWords], const Put& put) const {
    if constexpr (kTurns == Turns::kHalves) {
      if (turns) return TurnHalves(words, put);
    }
    const float* its_cosines = cosines;
#pragma unroll
    for (int i = 0; i < L::kWords; i += 2) {
      const float2 low = device::UnpackPair<T>(words[i]),
                   high = device::UnpackPair<T>(words[i + 1]);
      float x[] = {low.x, low.y, high.x, high.y};
      if (kTurns == Turns::kAny && turns) {
        Rotate(a, row, its_cosines, L::Column(lane, i / 4) + i % 4 * 2, x);
        // Or the loads of all take registers at once, and addresses those of all heads.
        asm volatile("" : "+l"(its_cosines)::"memory");
      }
      put(i, x[0], x[1]);
      put(i + 1, x[2], x[3]);
    }
  }

  template <typename Put>
  __device__ void TurnHalves(const uint32_t (&words)[L::kWords], const Put& put) const {
    constexpr int kHalf = L::kWords / 2;
#pragma unroll
    for (int i = 0; i < kHalf; i += 2) {
      const float4 cosine = angles[L::AnglePlace(at_row, i / 4, lane, i % 4 / 2)],
                   sine = angles[L::AnglePlace(at_row, i / 4 + L::kParts / 2, lane, i % 4 / 2)];
      const auto turn = [&](int word, float c0, float s0, float c1, float s1) {
        float2 first = device::UnpackPair<T>(words[word]),
               second = device::UnpackPair<T>(words[kHalf + word]);
        Turn(first.x, second.x, c0, s0);
        Turn(first.y, second.y, c1, s1);
        put(word, first.x, first.y);
        put(kHalf + word, second.x, second.y);
      };
      turn(i, cosine.x, sine.x, cosine.y, sine.y);
      turn(i + 1, cosine.z, sine.z, cosine.w, sine.w);
    }
  }
};

// Changes the signs of elements. `signs`: of each pair of columns, as those of two elements of 16 bits.
template <int kDim>
__device__ void ChangeSigns(const uint32_t* signs, uint32_t (&words)[Layout<kDim>::kWords],
                            int lane) {
#pragma unroll
  for (int i = 0; i < Layout<kDim>::kParts; ++i) {
    const uint4 sign = *reinterpret_cast<const uint4*>(signs + Layout<kDim>::Column(lane, i) / 2);
    words[4 * i] ^= sign.x, words[4 * i + 1] ^= sign.y;
    words[4 * i + 2] ^= sign.z, words[4 * i + 3] ^= sign.w;
  }
}

// As MultiplyByHadamard() does it after the signs, in fp16, operation by operation.
template <int kDim>
__device__ void AddPairs(uint32_t (&words)[Layout<kDim>::kWords], uint32_t lane) {
  using L = Layout<kDim>;
#pragma unroll
  for (int i = 0; i < L::kWords; ++i) {
    const __half2 x = Halves(words[i]);
    words[i] = Word(__hfma2(__high2half2(x), __floats2half2_rn(1, -1), __low2half2(x)));
  }
#pragma unroll
  for (int step = 2; step < L::kBlock; step *= 2) {
    constexpr int kLanes = L::kLanes;
    if (step < 8 || step >= 8 * kLanes) {  // within the lane
      const int distance = (step < 8 ? step : step / kLanes) / 2;
#pragma unroll
      for (int i = 0; i < L::kWords; ++i) {
        if ((i & distance) != 0) continue;
        const __half2 first = Halves(words[i]), second = Halves(words[i + distance]);
        words[i] = Word(__hadd2_rn(first, second));
        words[i + distance] = Word(__hsub2_rn(first, second));
      }
    } else {
      const int other = step / 8;
      const __half2 sign = __float2half2_rn((lane & other) != 0 ? -1.0f : 1.0f);
#pragma unroll
      for (int i = 0; i < L::kWords; ++i) {
        const uint32_t its = __shfl_xor_sync(0xFFFFFFFF, words[i], other);
        words[i] = Word(__hfma2(Halves(words[i]), sign, Halves(its)));
      }
    }
  }
}

// The largest size of elements of 16 bits, as bits. Without signs their order is that of their bits, and NaN
// is above all.
template <int kCount>
__device__ uint32_t LargestOf(const uint32_t (&words)[kCount]) {
  uint32_t largest[2] = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    largest[i % 2] = __vmaxu2(largest[i % 2], words[i] & 0x7FFF7FFF);
  }
  const uint32_t both = __vmaxu2(largest[0], largest[1]);
  return max(both & 0xFFFF, both >> 16);
}

__device__ inline uint32_t LargestOfWarp(uint32_t bits) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xFFFFFFFF, bits);
#else
#pragma unroll
  for (int i = 16; i > 0; i /= 2) bits = max(bits, __shfl_xor_sync(0xFFFFFFFF, bits, i));
  return bits;
#endif
}

// Stores a lane's elements to a row if it `exists`. pack(word, next): four of them in fp8.
template <int kDim, typename Pack>
__device__ void Store(const uint32_t (&words)[Layout<kDim>::kWords], const Pack& pack,
                      uint32_t lane, bool exists, uint8_t* to) {
  using L = Layout<kDim>;
  static_assert(L::kParts % 2 == 0);
  [[maybe_unused]] uint32_t before[2];
#pragma unroll
  for (int i = 0; i < L::kParts; ++i) {
    const uint32_t packed[] = {pack(words[4 * i], words[4 * i + 1]),
                               pack(words[4 * i + 2], words[4 * i + 3])};
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
      *reinterpret_cast<uint4*>(to + L::Column(0, i - 1 + static_cast<int>(lane))) =
          lane == 0 ? make_uint4(before[0], before[1], given[0], given[1])
                    : make_uint4(given[0], given[1], packed[0], packed[1]);
    }
  }
}

// Four elements as they came, times `inverse`. What is too large becomes the largest number.
template <typename T, __nv_fp8_interpretation_t kType>
__device__ uint32_t PackQuotients(uint32_t word, uint32_t next, float inverse) {
  const auto pack = [&](uint32_t pair) -> uint32_t {
    const float2 x = device::UnpackPair<T>(pair);
    return __nv_cvt_float2_to_fp8x2(make_float2(x.x * inverse, x.y * inverse), __NV_SATFINITE,
                                    kType);
  };
  return pack(word) | pack(next) << 16;
}

// The same of products in fp16, which are rounded to fp16 again.
__device__ inline uint32_t PackQuotients(uint32_t word, uint32_t next, __half2 inverse) {
  const auto pack = [&](uint32_t pair) -> uint32_t {
    return __nv_cvt_halfraw2_to_fp8x2(__hmul2_rn(Halves(pair), inverse), __NV_SATFINITE, __NV_E4M3);
  };
  return pack(word) | pack(next) << 16;
}

}  // namespace attnlab::fp8

#endif  // ATTENTION_FP8_QUANTIZE_LANE_CUH_
