// Quantize() on a GPU. A block of threads has the rows of a block, so their scale is known before any of
// them is written, and each is read once. If more rows share a scale, they are read twice; and again
// where products do not fit fp16.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "attention/cuda/launch.h"
#include "attention/device/convert.cuh"
#include "attention/device/cp_async.cuh"
#include "attention/device/hopper/mbarrier.cuh"
#include "attention/fp8/hadamard.h"
#include "attention/fp8/launch.h"
#include "attention/fp8/quantize_lane.cuh"
#include "attention/fp8/quantize_rows.h"

namespace attnlab::fp8 {
namespace {

enum class Pass {
  kAll,      // each block has a scale of its own
  kLargest,  // finds the largest size of what shares a scale, as the bits of a float
  kConvert,  // reads it
};

// Most heads of a thread block: while one is computed, the next one's elements come. More, where all read the same
// angles, which a block copies when it begins, and few other blocks of the multiprocessor fill the time until they
// are there.
template <int kDim>
constexpr int MostTogether(Turns turns) {
  return turns == Turns::kHalves && Layout<kDim>::kBlocks <= 2 ? 16 : 4;
}

// What a launch makes fp8: some of Q, K and V.
struct Tensors {
  QuantizeRows rows[3];
  int count = 0;
};

// The thread, such that what follows from it is computed where it is used: kept from one head to the next,
// it would take registers that elements need.
__device__ uint32_t ThisThread() {
  uint32_t thread = threadIdx.x;
  asm volatile("" : "+r"(thread));
  return thread;
}

// What is largest in a block's rows of a head. All warps tell it, then all may ask. If they ask kLater, when
// they have told of the next head too, a warp waits only for those that are a head behind it.
template <bool kLater>
class LargestOfHeads {
 public:
  // By one thread, before a barrier of all.
  __device__ void Init() {
#if __CUDA_ARCH__ >= 900
    if (kLater) told_[0].Init(blockDim.x / 32), told_[1].Init(blockDim.x / 32);
#endif
  }
  __device__ void Tell(uint32_t head, uint32_t bits) {
    bits = LargestOfWarp(bits);
    if (threadIdx.x % 32 != 0) return;
    of_warps_[head % 4][threadIdx.x / 32] = bits;
#if __CUDA_ARCH__ >= 900
    if (kLater) told_[head % 2].Arrive();
#endif
  }
  __device__ uint32_t Of(uint32_t head) {
    Wait(head);
    const uint32_t lane = threadIdx.x % 32;
    return LargestOfWarp(lane < blockDim.x / 32 ? of_warps_[head % 4][lane] : 0);
  }

 private:
  __device__ void Wait(uint32_t head) {
#if __CUDA_ARCH__ >= 900
    if (kLater) return told_[head % 2].Wait(head / 2 % 2);
#endif
    __syncthreads();
  }

  // Who tells of a head knows that all have told of the one two before it, so all have read what was told
  // four before.
  uint32_t of_warps_[4][32];
#if __CUDA_ARCH__ >= 900
  device::Barrier told_[2];
#endif
};

// Of floats without signs, by all threads of a block.
__device__ float LargestOfBlock(float largest, uint32_t* memory) {
  const uint32_t bits = LargestOfWarp(__float_as_uint(largest));
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  __syncthreads();
  if (lane == 0) memory[threadIdx.x / 32] = bits;
  __syncthreads();
  return __uint_as_float(LargestOfWarp(lane < warps ? memory[lane] : 0));
}

// Where the angles of the warp's rows are, after all elements of the next head.
template <int kDim>
__device__ float4* AnglesAt(uint4* shared, uint32_t thread) {
  using L = Layout<kDim>;
  return reinterpret_cast<float4*>(shared + blockDim.x * (L::kElements / 8)) +
         thread / 32 * (L::kRows * L::kAngleChunks);
}

// What elements are divided by.
__device__ float DivisorOfLargest(const QuantizeRows& a, float largest) {
  const float least = a.hadamard ? kLeastOfProducts : kLeastScale,
              most = a.e5m2 ? kLargestE5m2 : kLargest;
  return largest < most * least ? least : __fdiv_rn(largest, most);  // NaN stays
}
__device__ float ScaleOfDivisor(const QuantizeRows& a, int dim, float divisor) {
  const float scale = a.hadamard ? divisor * HadamardFactor(dim) : divisor;
  return isnan(scale) ? __int_as_float(0x7FC00000) : scale;  // a GPU's own has other bits
}

// A thread's row of a block, in all heads of a sequence.
template <typename T, int kDim>
struct LaneRow {
  using L = Layout<kDim>;
  const QuantizeRows& a;
  const int64_t sequence;
  const device::Span span = a.sequences[sequence];
  // The warp's rows, of which it copies each itself, and the thread's.
  const uint32_t warp_row = threadIdx.x % 32 / L::kLanes;
  const int64_t first_row = int64_t{blockIdx.x} * a.block + threadIdx.x / 32 * L::kRows,
                row = first_row + warp_row;
  const int rows = static_cast<int>(min(int64_t{L::kRows}, span.length - first_row));  // may be < 0
  const bool exists = static_cast<int>(warp_row) < rows;

  __device__ const T* FirstOfWarp(int head) const {
    return static_cast<const T*>(a.from.data) +
           a.from.Offset(span.batch, span.begin + first_row, head);
  }
  // Its row, or the last one that exists.
  __device__ const T* From(const T* first_of_warp) const {
    return first_of_warp + (exists ? static_cast<int>(warp_row) : rows - 1) * a.from.token_stride;
  }
  __device__ uint8_t* To(int head) const {
    return static_cast<uint8_t*>(a.to.data) + a.to.Offset(span.batch, span.begin + row, head);
  }
  __device__ float* Scale(int head) const {
    return a.scales + sequence * a.scale_strides[0] + int64_t{blockIdx.x} * a.scale_strides[1] +
           head * a.scale_strides[2];
  }
  __device__ int64_t PositionOf(int64_t of) const {
    return of + a.kv_sequences[sequence].length - span.length;
  }
  __device__ const float* AnglesOf(int64_t position) const {
    return a.table + max(int64_t{0}, min(position, a.positions - 1)) * a.position_stride;
  }
};

// A warp copies the angles of its rows, with few instructions per row: otherwise a block would begin with as many
// instructions as all elements of a head take.
template <typename T, int kDim>
__device__ void CopyAngles(const LaneRow<T, kDim>& row, float4* to) {
  using L = Layout<kDim>;
  constexpr int kRows = L::kRows;
  const int64_t position = row.PositionOf(row.first_row);
  // Rows from `begin` to `end` have a position in the table, and so has the row after each.
  const auto within = [](int64_t i) {
    return static_cast<int>(max(int64_t{0}, min(i, int64_t{kRows})));
  };
  const int begin = within(-position), end = within(row.a.positions - 1 - position);
#pragma unroll
  for (uint32_t chunk = threadIdx.x % 32; chunk < L::kAngleChunks; chunk += 32) {
    const float* from = row.AnglesOf(position) + 4 * chunk;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const uint32_t place =
          L::AnglePlace(i, chunk / (2 * L::kLanes), chunk / 2 % L::kLanes, chunk % 2);
      device::CopyAsync<16>(to + place, from);
      if (begin <= i && i < end) from += row.a.position_stride;
    }
  }
  device::CopyAsyncCommit();
}

template <typename T, int kDim, Turns kTurns>
__device__ Turner<T, kDim, kTurns> TurnerOf(const LaneRow<T, kDim>& row, const T* first_of_warp,
                                            uint4* shared) {
  using L = Layout<kDim>;
  const uint32_t thread = ThisThread();
  const bool turns = kTurns != Turns::kNone && row.a.table != nullptr;
  Turner<T, kDim, kTurns> turner = {row.a, turns, thread % L::kLanes, thread % 32 / L::kLanes};
  if (kTurns == Turns::kHalves) turner.angles = AnglesAt<kDim>(shared, thread);
  if (kTurns == Turns::kAny && turns) {
    turner.cosines = row.AnglesOf(row.PositionOf(row.row)), turner.row = row.From(first_of_warp);
  }
  return turner;
}

// What a lane has of a row, as words in fp16: turned, times `factor`, and multiplied by the Hadamard matrix.
template <typename T, int kDim, Turns kTurns>
__device__ void Multiply(const Turner<T, kDim, kTurns>& turner, const uint32_t* signs, float factor,
                         uint32_t (&words)[Layout<kDim>::kWords]) {
  if (!std::is_same_v<T, __half> || turner.turns || factor != 1) {
    turner.ForEachWord(words, [&](int i, float first, float second) {
      words[i] = Word(__floats2half2_rn(first * factor, second * factor));
    });
  }
  if (!turner.a.hadamard) return;
  ChangeSigns<kDim>(signs, words, turner.lane);
  AddPairs<kDim>(words, turner.lane);
}

// Stores a head's scale, and its elements or products in fp8. `largest`: of a block of rows, not times `factor`.
template <typename T, int kDim>
__device__ void Finish(const LaneRow<T, kDim>& row, Pass pass, float largest, float factor,
                       bool multiplies, const uint32_t (&words)[Layout<kDim>::kWords], int head,
                       uint8_t* to) {
  const QuantizeRows& a = row.a;
  if (pass == Pass::kLargest) {
    auto* const scale = reinterpret_cast<uint32_t*>(row.Scale(head));
    if (threadIdx.x == 0) atomicMax(scale, __float_as_uint(largest));
    return;
  }
  const float divisor = DivisorOfLargest(a, pass == Pass::kConvert ? *row.Scale(head) : largest);
  if (pass == Pass::kAll && threadIdx.x == 0) *row.Scale(head) = ScaleOfDivisor(a, kDim, divisor);
  const float inverse = __frcp_rn(divisor);
  const uint32_t lane = ThisThread() % Layout<kDim>::kLanes;
  const auto store = [&](const auto& pack) { Store<kDim>(words, pack, lane, row.exists, to); };
  if (multiplies) {
    const __half2 in_half = __float2half2_rn(InverseInHalf(inverse, factor));
    store([&](uint32_t x, uint32_t y) { return PackQuotients(x, y, in_half); });
  } else if (a.e5m2) {
    store([&](uint32_t x, uint32_t y) { return PackQuotients<T, __NV_E5M2>(x, y, inverse); });
  } else {
    store([&](uint32_t x, uint32_t y) { return PackQuotients<T, __NV_E4M3>(x, y, inverse); });
  }
}

// All of a head again, where products do not fit fp16. By all threads of a block, which read their elements
// once more. A function of its own that gets no addresses of registers: they would be spilled also where it
// is not called.
template <typename T, int kDim, Turns kTurns>
__device__ __noinline__ void MultiplyAgain(const QuantizeRows& a, Pass pass, int64_t sequence,
                                           int head, const uint32_t* signs, uint4* shared) {
  using L = Layout<kDim>;
  __shared__ uint32_t memory[32];
  const LaneRow<T, kDim> row = {a, sequence};
  const T* const first_of_warp = row.FirstOfWarp(head);
  const auto turner = TurnerOf<T, kDim, kTurns>(row, first_of_warp, shared);
  uint32_t words[L::kWords];
  const auto load = [&] {
    const T* const from = row.From(first_of_warp);
#pragma unroll
    for (int i = 0; i < L::kParts; ++i) {
      SetPart(*reinterpret_cast<const uint4*>(from + L::Column(turner.lane, i)), words + 4 * i);
    }
  };
  uint32_t bits = 0;
  load();
  turner.ForEachWord(words, [&](int, float first, float second) {
    bits = max(bits, max(__float_as_uint(fabsf(first)), __float_as_uint(fabsf(second))));
  });
  const float factor =
      FactorForHalf(LargestOfBlock(row.exists ? __uint_as_float(bits) : 0, memory));
  load();  // rather than keep them: the more registers this takes, the more its caller spills
  Multiply(turner, signs, factor, words);
  const float its = __half2float(__ushort_as_half(static_cast<uint16_t>(LargestOf(words))));
  const float largest = LargestOfBlock(row.exists ? its : 0, memory) / factor;
  Finish(row, pass, largest, factor, /*multiplies=*/true, words, head, row.To(head));
}

// The grid: blocks of rows, groups of heads, sequences of each tensor; those beyond a grid are of other
// launches. There are no divisions: they would take as many instructions as a thread's elements.
template <typename T, int kDim, Turns kTurns>
__global__ void __launch_bounds__(128 * Layout<kDim>::kLanes, Layout<kDim>::kBlocks)
    QuantizeKernel(const __grid_constant__ Tensors tensors, Pass pass, int32_t first_head,
                   int32_t together, int64_t first_sequence, uint32_t sequences) {
  using L = Layout<kDim>;
  constexpr bool kLater = L::kBlocks == 1;
  // The next head's elements, then angles. If they began elsewhere, two lanes that copy halves of a sector
  // could not write together, and the sector would be read twice.
  extern __shared__ __align__(128) uint4 shared[];
  __shared__ __align__(16) uint32_t signs[kDim / 2];  // of columns, as of pairs of 16 bits
  __shared__ LargestOfHeads<kLater> largest_of_heads;
  const uint32_t tensor = blockIdx.z < sequences ? 0 : blockIdx.z < 2 * sequences ? 1 : 2;
  const QuantizeRows& a = tensors.rows[tensor];
  const int first = first_head + static_cast<int>(blockIdx.y) * together,
            end = min(first + together, a.heads);
  const LaneRow<T, kDim> row = {a, first_sequence + blockIdx.z - tensor * sequences};
  if (int64_t{blockIdx.x} * a.block >= row.span.length || first >= end) return;
  const T* from = row.FirstOfWarp(first);
  const auto load = [&] {
    constexpr uint32_t kAtOnce = 32 / L::kChunks;  // rows
    const uint32_t at = ThisThread() % 32, top = at / L::kChunks, chunk = at % L::kChunks;
    uint4* const coming = shared + ThisThread() / 32 * (L::kRows * L::kChunks);
    const T* chunk_from = from + top * a.from.token_stride + 8 * chunk;
    const auto copy = [&](uint32_t i) {
      device::CopyAsync<16>(coming + L::Place(top + i, chunk / L::kLanes, chunk % L::kLanes),
                            chunk_from);
      chunk_from += kAtOnce * a.from.token_stride;
    };
    if (top < kAtOnce && row.rows == L::kRows) {  // without a branch for each
#pragma unroll
      for (uint32_t i = 0; i < L::kRows; i += kAtOnce) copy(i);
    } else if (top < kAtOnce) {
#pragma unroll 1
      for (uint32_t i = 0; static_cast<int>(top + i) < row.rows; i += kAtOnce) copy(i);
    }
    device::CopyAsyncCommit();
  };
  load();
  const bool turns = kTurns != Turns::kNone && a.table != nullptr, multiplies = turns || a.hadamard;
  if (kTurns == Turns::kHalves && turns) CopyAngles(row, AnglesAt<kDim>(shared, threadIdx.x));
  if (a.hadamard) {
    for (uint32_t c = threadIdx.x; c < kDim / 2; c += blockDim.x) {
      signs[c] =
          (IsNegated(a.seed, 2 * c) ? 0x8000 : 0) | (IsNegated(a.seed, 2 * c + 1) ? 0x80000000 : 0);
    }
  }
  if (threadIdx.x == 0) largest_of_heads.Init();
  __syncthreads();
  const auto begin = [&](int head, uint32_t(&words)[L::kWords]) {
    const uint32_t at = ThisThread(), lane = at % L::kLanes;
    const uint4* const coming = shared + at / 32 * (L::kRows * L::kChunks);
    device::CopyAsyncWait<0>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < L::kParts; ++i) {
      SetPart(coming[L::Place(at % 32 / L::kLanes, i, lane)], words + 4 * i);
    }
    __syncwarp();
    const T* const its_rows = from;
    from += a.from.head_stride;
    if (head + 1 < end) load();
    if (multiplies) Multiply(TurnerOf<T, kDim, kTurns>(row, its_rows, shared), signs, 1, words);
    largest_of_heads.Tell(head - first, row.exists ? LargestOf(words) : 0);
  };
  uint8_t* to = row.To(first);
  const auto finish = [&](int head, const uint32_t(&words)[L::kWords]) {
    const auto bits = static_cast<uint16_t>(largest_of_heads.Of(head - first));
    const float largest =
        multiplies ? __half2float(__ushort_as_half(bits)) : device::UnpackPair<T>(bits).x;
    if (multiplies && !FitsHalf(largest, a.hadamard)) {
      MultiplyAgain<T, kDim, kTurns>(a, pass, row.sequence, head, signs, shared);
    } else {
      Finish(row, pass, largest, 1, multiplies, words, head, to);
    }
    to += a.to.head_stride;
  };
  uint32_t words[L::kWords];
  if constexpr (!kLater) {
#pragma unroll 1
    for (int head = first; head < end; ++head) begin(head, words), finish(head, words);
  } else {
    // Each head is finished when the next one is multiplied: there is no other block of 128 rows whose warps
    // run while this one's wait for each other.
    uint32_t next[L::kWords];
#pragma unroll 1
    for (int head = first - 1; head < end; ++head) {
      if (head + 1 < end) begin(head + 1, next);
      if (head >= first) finish(head, words);
#pragma unroll
      for (int i = 0; i < L::kWords; ++i) words[i] = next[i];
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
  *scale = finish ? ScaleOfDivisor(a, a.d, DivisorOfLargest(a, *scale)) : 0;
}

cudaError_t LaunchScales(const QuantizeRows& a, bool finish, cudaStream_t stream) {
  const int64_t count = (a.scale_strides[0] == 0 ? 1 : a.b) *
                        (a.scale_strides[1] == 0 ? 1 : a.blocks) *
                        (a.scale_strides[2] == 0 ? 1 : a.heads);
  return device::Launch(ScalesKernel, dim3(static_cast<uint32_t>((count + 255) / 256)), dim3(256),
                        0, stream, a, count, finish);
}

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
  int64_t together = MostTogether<kDim>(kTurns);
  const auto all = [&] {
    int64_t sum = 0;
    for (int i = 0; i < tensors.count; ++i) {
      sum += tensors.rows[i].blocks * ((tensors.rows[i].heads + together - 1) / together);
    }
    return a.b * sum;
  };
  while (together > 1 && all() < int64_t{2} * processors * Layout<kDim>::kBlocks) {
    together /= 2;
  }
  const int64_t groups = (heads + together - 1) / together;
  together = (heads + groups - 1) / groups;  // equal groups
  const dim3 threads(a.block * Layout<kDim>::kLanes);
  const size_t shared_bytes = SharedBytes(a, kTurns == Turns::kHalves);
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
    const bool fits = SharedBytes(a, true) + kMoreShared <= static_cast<size_t>(most_shared);
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
