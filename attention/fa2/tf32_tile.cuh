// One query tile of FlashAttention-2 on tensor cores, for Q, K and V of fp32, by 3xTF32.
//
// The structure is that of tensor_core_tile.cuh: each warp has 16 or 32 rows and all of a tile of
// keys for them, S, P and O stay in registers, copies bring the next tile of K and V while one is
// worked on. What differs follows from fp32:
//
//   Factors are split where they are used, in registers (tf32.h says why).
//   P is not rounded: an accumulator of the first product is a factor of the second with its keys
//   in another order, and so V's rows are read in that order, four columns at a time.
//   The sum P V of a tile begins at zero and is added to O as a whole, for tensor cores cut their
//   sums instead of rounding them: over a hundred thousand keys O would shrink.
#ifndef ATTENTION_FA2_TF32_TILE_CUH_
#define ATTENTION_FA2_TF32_TILE_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/cp_async.cuh"
#include "attention/device/exp2.cuh"
#include "attention/device/kv_tiles.h"
#include "attention/device/mma.cuh"
#include "attention/device/mma_tf32.cuh"
#include "attention/device/query_tile.h"
#include "attention/device/swizzle.h"
#include "attention/device/thread_index.cuh"
#include "attention/device/tile_copy.cuh"
#include "attention/fa2/fragments.cuh"
#include "attention/fa2/output_rows.cuh"

namespace attnlab::fa2 {

// kCapped: whether there is a softcap. kCareful: whether V is looked at for what is not finite, see
// Run(); then the softcap is as the call has it.
template <class Shape, bool kCapped, bool kCareful>
class Tf32Tile {
  static constexpr int kDim = Shape::kHeadDim, kKeys = Shape::kKeys, kStages = Shape::kStages;
  static constexpr int kM = Shape::kWarpRows / 16;  // blocks of 16 rows a warp
  static constexpr int kN = kKeys / 8;              // blocks of 8 keys
  static constexpr int kNv = kDim / 8;              // blocks of 8 columns of O
  static constexpr int kLaneRows = 2 * kM;          // rows of which a lane has elements
  // Whether the small terms of S have sums of their own. Over many dims those of all terms would be
  // cut, see above, three times as often.
  static constexpr bool kOwnCross = kDim > 96;
  // Blocks of keys, and of columns, multiplied at a time: enough that no product waits for the one
  // before, and no more, for their parts take registers.
  static constexpr int kKeyBlocks = kM == 1 && kN % 4 == 0 ? 4 : 2;
  static constexpr int kValueBlocks = kM == 1 ? 4 : 2;
  // Columns of O whose sums over a tile are in registers at a time.
  static constexpr int kColumns = kM == 1 && kDim % 64 == 0 ? 64 : 32;

  // Exponentials are relative to a base that moves when a score exceeds it by 2^kMostGrowth.
  static constexpr float kMostGrowth = 8;
  // The offset of a row that has seen no key: any that comes moves the base, and until then P is 0.
  static constexpr float kNoKey = 3e38f;

  using QCopy = device::TileCopy<float, Shape::kRows, kDim, Shape::kThreads>;
  using KvCopy = device::TileCopy<float, kKeys, kDim, Shape::kThreads>;
  using Place = device::Swizzle<kDim / 4>;
  static_assert(QCopy::kBytes == Shape::kK && KvCopy::kBytes == Shape::kKvBytes);
  static_assert(Place::kGroup == 8, "V's rows are shifted by their number in eight");

  // The keys that the walk goes through. In shared memory: registers are dear.
  struct Keys {
    const float *k, *v;        // the first one's rows
    int first, count;          // of the sequence, from the first tile's first to the sequence's end
    int full_begin, full_end;  // tiles that every row sees all of
  };
  static_assert(sizeof(Keys) == Shape::kWalkBytes);

  // S, and then P in its place.
  struct Scores {
    device::AccumulatorFragment x[kM][kN];
  };

 public:
  // `shared`: Shape::kSharedBytes, aligned to 128. `kept` is where `tile` stays for the end, too,
  // out of the registers.
  __device__ Tf32Tile(const device::Arguments& a, const device::QueryTile& tile,
                      device::QueryTile& kept, char* shared)
      : a_(a), tile_(kept), shared_(shared) {
    if (!kCareful && device::ThreadIndex() == 0) kept = tile;  // else it is there
    const device::KvTiles tiles = tile.Tiles(a.mask, kKeys);
    count_ = Uniform(static_cast<int>(tiles.Count(kKeys)));
    Keys keys;
    keys.full_begin = static_cast<int>((tiles.full_begin - tiles.begin) / kKeys);
    keys.full_end = static_cast<int>((tiles.full_end - tiles.begin) / kKeys);
    keys.first = static_cast<int>(tiles.begin);
    keys.count = static_cast<int>(tile.kv.length - tiles.begin);
    keys.k =
        static_cast<const float*>(a.k.data) + tile.KvOffset(a.k) + tiles.begin * a.k.token_stride;
    keys.v =
        static_cast<const float*>(a.v.data) + tile.KvOffset(a.v) + tiles.begin * a.v.token_stride;
    if (threadIdx.x == 0) *SharedKeys() = keys;

    const float* const q = static_cast<const float*>(a.q.data);
    QCopy::Copy(shared, static_cast<int>(tile.end - tile.begin), a.d, a.q.whole_chunks,
                [&](int row) { return q + tile.Offset(a.q, tile.begin + row); });
    CopyK(0, keys);
    if (kStages > 1) CopyV(0, keys);
    device::CopyAsyncCommit();
    // While the copies are under way.
    for (int row = device::ThreadIndex(); row < Shape::kRows; row += Shape::kThreads) {
      const KvRange seen = tile.Visible(a.mask, tile.begin + row);
      VisibleRows()[row] = make_int2(static_cast<int>(seen.begin), static_cast<int>(seen.end));
    }
  }

  // 0 times NaN is NaN, so a V that is not finite reaches rows that do not see it. Where that may
  // have been, nothing is written, and the result is false: a careful one is to do it again. All
  // rows that do not see such a V have the same bits either way.
  __device__ bool Run() {
    Walk();
    if (!kCareful && __syncthreads_or(LostToNan())) return false;
    Store();
    return true;
  }

 private:
  // Found anew where they are needed, since registers are dear.
  static __device__ int Lane() { return device::ThreadIndex() % 32; }
  static __device__ int Quad() { return Lane() / 4; }
  static __device__ int Pair() { return Lane() % 4; }
  static __device__ int WarpRow() { return device::ThreadIndex() / 32 * Shape::kWarpRows; }
  __device__ bool Capped() const { return kCareful ? a_.softcap != 0 : kCapped; }
  // Of the tile, the r-th row of which this lane has elements.
  static __device__ int RowOf(int r) { return WarpRow() + r / 2 * 16 + r % 2 * 8 + Quad(); }
  // The keys that each row of the tile sees.
  __device__ int2* VisibleRows() const {
    return reinterpret_cast<int2*>(shared_ + Shape::kVisible);
  }

  __device__ uint32_t AddressOf(int tile, int row, int chunk) const {
    return SharedAddress(shared_) + tile + Place::At(row, chunk) * device::kChunkBytes;
  }
  __device__ Keys* SharedKeys() const { return reinterpret_cast<Keys*>(shared_ + Shape::kWalk); }
  __device__ char* Stage(int first, int j) const {
    return shared_ + first + j % kStages * Shape::kKvBytes;
  }

  // Begins to copy tile j to its stage, where there is such a tile.
  __device__ void CopyK(int j, const Keys& keys) const {
    if (j < count_) CopyOne(Stage(Shape::kK, j), a_.k, keys.k, keys.count - j * kKeys, j, a_.d);
  }
  __device__ void CopyV(int j, const Keys& keys) const {
    if (j < count_) CopyOne(Stage(Shape::kV, j), a_.v, keys.v, keys.count - j * kKeys, j, a_.dv);
  }
  static __device__ void CopyOne(char* to, const device::Rows& rows, const float* first, int left,
                                 int j, int dim) {
    const float* const from = first + int64_t{j} * kKeys * rows.token_stride;
    if (rows.whole_chunks && left >= kKeys && dim == kDim) {
      KvCopy::CopyWhole(to, from + KvCopy::Offset(rows.token_stride), rows.token_stride);
    } else {
      KvCopy::Copy(to, left < kKeys ? left : kKeys, dim, rows.whole_chunks,
                   [&](int row) { return from + row * rows.token_stride; });
    }
  }

  // O, and the sums of P, from all tiles of keys.
  __device__ void Walk() {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kNv; ++n) o_[m][n] = {};
    }
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      offset_[r] = kNoKey;
      sum_[r] = 0;
    }
#pragma unroll 1
    for (int j = 0; j < count_; ++j) {
      device::CopyAsyncWait<0>();
      __syncthreads();  // all have tile j, or its K, and are done with what is copied over next
      if (kStages > 1) CopyK(j + 1, *SharedKeys());
      CopyV(kStages > 1 ? j + 1 : j, *SharedKeys());
      device::CopyAsyncCommit();
      const bool masked = j < SharedKeys()->full_begin || j >= SharedKeys()->full_end;
      if (!kCareful && kStages > 1 && masked && !SeesSome(j)) continue;
      Scores s;
      MultiplyQk(j % kStages * Shape::kKvBytes, s);
      if (Capped()) Cap(s);
      if (masked) MaskOut(j, s);
      Rebase(s);
      Exponentials(s);
      if (kStages == 1) {
        device::CopyAsyncWait<0>();
        __syncthreads();  // all have V, and are done with K
        CopyK(j + 1, *SharedKeys());
        device::CopyAsyncCommit();
      }
      if (kCareful) ZeroNonfinite(j);
      AddPv(j % kStages * Shape::kKvBytes, s);
    }
    device::CopyAsyncWait<0>();
    __syncthreads();
  }

  // Scores are in base 2. With a softcap scale comes before it; otherwise it is part of the
  // exponential. A scale of 0 would make NaN of minus infinity.
  __device__ float ScaleLog2() const {
    constexpr float kLog2E = 1.44269504088896341f;
    return (Capped() ? 1.0f : fmaxf(a_.scale, 1e-30f)) * kLog2E;
  }

  // S = Q Kᵀ.
  __device__ void MultiplyQk(int stage, Scores& s) const {
    // Four products along a row are a line of 128 bytes, within which chunks are shifted.
    constexpr int kSteps = 4, kBlocks = kN / kKeyBlocks, kCount = kSteps * kBlocks;
    device::AccumulatorFragment own[kOwnCross ? kM : 1][kOwnCross ? kN : 1];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        s.x[m][n] = {};
        if (kOwnCross) own[m][n] = {};
      }
    }
    // Lanes point at the rows of four matrices of 8 rows and 4 columns.
    const int lane = Lane();
    uint32_t q_address = AddressOf(0, WarpRow() + lane % 16, lane / 16);
    uint32_t k_address = AddressOf(Shape::kK + stage, lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll 1
    for (int line = 0; line < kDim / 32; ++line) {
      uint32_t rows[kM][4], keys[2][kKeyBlocks / 2][4];
      const auto load_q = [&](int k) {
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          device::LoadMatrices(rows[m], (q_address ^ k * 32) + m * 16 * Shape::kRowBytes);
        }
      };
      const auto load_keys = [&](int i) {
#pragma unroll
        for (int n = 0; n < kKeyBlocks / 2; ++n) {
          device::LoadMatrices(keys[i % 2][n],
                               (k_address ^ i / kBlocks * 32) +
                                   (i % kBlocks * kKeyBlocks * 8 + n * 16) * Shape::kRowBytes);
        }
      };
      load_q(0);
      load_keys(0);
      device::SplitA q[kM];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int k = i / kBlocks, first = i % kBlocks * kKeyBlocks;
        if (first == 0) {
#pragma unroll
          for (int x = 0; x < 4 * kM; ++x) q[x / 4].Set(x % 4, rows[x / 4][x % 4]);
          if (k + 1 < kSteps) load_q(k + 1);
        }
        if (i + 1 < kCount) load_keys(i + 1);
        device::SplitB b[kKeyBlocks];
#pragma unroll
        for (int x = 0; x < 2 * kKeyBlocks; ++x) b[x / 2].Set(x % 2, keys[i % 2][x / 4][x % 4]);
        device::MmaSplit(
            q, b, [&](int m, int n) -> auto& { return s.x[m][first + n]; },
            [&](int m, int n) -> auto& {
              if constexpr (kOwnCross) {
                return own[m][first + n];
              } else {
                return s.x[m][first + n];
              }
            });
      }
      q_address += 128;
      k_address += 128;
    }
    if constexpr (kOwnCross) {
#pragma unroll
      for (int i = 0; i < kM * kN * 4; ++i) {
        s.x[i / 4 / kN][i / 4 % kN].x[i % 4] += own[i / 4 / kN][i / 4 % kN].x[i % 4];
      }
    }
  }

  __device__ void Cap(Scores& s) const {
    const float before = a_.scale / a_.softcap;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s.x[m][n].x[i] = a_.softcap * tanhf(s.x[m][n].x[i] * before);
      }
    }
  }

  // Whether a row of the warp sees a key of tile j.
  __device__ bool SeesSome(int j) const {
    const int first = SharedKeys()->first + j * kKeys;
    bool some = false;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      const int2 seen = VisibleRows()[RowOf(r)];
      some |= seen.x < first + kKeys && seen.y > first;
    }
    return __any_sync(0xFFFFFFFF, some);
  }

  // Minus infinity for keys that a row does not see. Most tiles are cut at one side alone.
  __device__ void MaskOut(int j, Scores& s) const {
    const int first = SharedKeys()->first + j * kKeys + 2 * Pair();
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      const int2 seen = VisibleRows()[RowOf(r)];
      const int begin = seen.x - first, end = seen.y - first;
      if (__any_sync(0xFFFFFFFF, end < kKeys)) {
#pragma unroll
        for (int i = 0; i < 2 * kN; ++i) {
          float& x = s.x[r / 2][i / 2].x[r % 2 * 2 + i % 2];
          x = i / 2 * 8 + i % 2 < end ? x : -INFINITY;
        }
      }
      if (__any_sync(0xFFFFFFFF, begin > 0)) {
#pragma unroll
        for (int i = 0; i < 2 * kN; ++i) {
          float& x = s.x[r / 2][i / 2].x[r % 2 * 2 + i % 2];
          x = i / 2 * 8 + i % 2 >= begin ? x : -INFINITY;
        }
      }
    }
  }

  // Exponentials are relative to a base, of which offset_ is the negative. It follows the maximum
  // only where that has grown by more than 2^8: P and O stay far within fp32, O is hardly ever
  // rescaled, and lanes need not tell each other their maxima. Whether a row's base moves depends
  // on that row alone.
  __device__ void Rebase(const Scores& s) {
    float max[kLaneRows];
    bool large = false;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      max[r] = s.x[r / 2][0].x[r % 2 * 2];
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        max[r] = fmaxf(max[r], s.x[r / 2][n].x[r % 2 * 2]);
        max[r] = fmaxf(max[r], s.x[r / 2][n].x[r % 2 * 2 + 1]);
      }
      large |= fmaf(max[r], ScaleLog2(), offset_[r]) > kMostGrowth;
    }
    if (!__any_sync(0xFFFFFFFF, large)) return;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      max[r] = fmaxf(max[r], __shfl_xor_sync(0xFFFFFFFF, max[r], 1));
      max[r] = fmaxf(max[r], __shfl_xor_sync(0xFFFFFFFF, max[r], 2));
      const float growth = fmaf(max[r], ScaleLog2(), offset_[r]);
      const float factor = growth > kMostGrowth ? device::Exp2(-growth) : 1;
      if (growth > kMostGrowth) offset_[r] = -max[r] * ScaleLog2();
      sum_[r] *= factor;
#pragma unroll
      for (int n = 0; n < kNv; ++n) {
        o_[r / 2][n].x[r % 2 * 2] *= factor;
        o_[r / 2][n].x[r % 2 * 2 + 1] *= factor;
      }
    }
  }

  // P, and its sums: those of the tile begin at zero, as those of P V do.
  __device__ void Exponentials(Scores& s) {
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        float* const x = &s.x[r / 2][n].x[r % 2 * 2];
        x[0] = device::Exp2(fmaf(x[0], ScaleLog2(), offset_[r]));
        x[1] = device::Exp2(fmaf(x[1], ScaleLog2(), offset_[r]));
        sum += x[0] + x[1];
      }
      sum_[r] += sum;
    }
  }

  // O += P V.
  __device__ void AddPv(int stage, const Scores& p) {
    constexpr int kParts = kColumns / 32, kCount = kDim / kColumns * kN * kParts;
    // Of eight keys, 2 t and 2 t + 1 are k t and t + 4 of a product; and of 32 columns, 4 g to
    // 4 g + 3 are column g of four products.
    const uint32_t v_address = AddressOf(Shape::kV + stage, 2 * Pair(), Quad());
    // Of eight keys those of an odd number: their rows are shifted by 1 against the ones before.
    const uint32_t odd_address = (v_address ^ device::kChunkBytes) + Shape::kRowBytes;
    uint32_t values[2][2][4];
    const auto load = [&](int i) {
      const int column = i / (kN * kParts) * kColumns + i % kParts * 32;
      const int offset = i / kParts % kN * 8 * Shape::kRowBytes + column * 4;
      device::LoadFourBits(values[i % 2][0], v_address + offset);
      device::LoadFourBits(values[i % 2][1], odd_address + offset);
    };
    device::AccumulatorFragment sums[kM][kColumns / 8];
    device::SplitA rows[kM];
    load(0);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int part = i % kParts, k = i / kParts % kN, column = i / (kN * kParts) * (kColumns / 8);
      if (i + 1 < kCount) load(i + 1);
      if (part == 0) {
#pragma unroll
        for (int m = 0; m < kM; ++m) {
#pragma unroll
          for (int x = 0; x < 4; ++x) {
            rows[m].Set(x % 2 * 2 + x / 2, __float_as_uint(p.x[m][k].x[x]));
          }
        }
      }
#pragma unroll
      for (int first = 0; first < 4; first += kValueBlocks) {
        device::SplitB b[kValueBlocks];
#pragma unroll
        for (int n = 0; n < 2 * kValueBlocks; ++n) {
          b[n / 2].Set(n % 2, values[i % 2][n % 2][first + n / 2]);
        }
        const auto sum = [&](int m, int n) -> auto& { return sums[m][part * 4 + first + n]; };
#pragma unroll
        for (int n = 0; k == 0 && n < kM * kValueBlocks; ++n) sum(n % kM, n / kM) = {};
        device::MmaSplit(rows, b, sum, sum);
      }
      if (k < kN - 1 || part < kParts - 1) continue;
#pragma unroll
      for (int n = 0; n < kM * kColumns / 8 * 4; ++n) {
        const int m = n / 4 / (kColumns / 8), block = n / 4 % (kColumns / 8);
        o_[m][column + block].x[n % 4] += sums[m][block].x[n % 4];
      }
    }
  }

  // Whether O has NaN or infinity in a row whose P is a number.
  __device__ bool LostToNan() const {
    bool lost = false;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      float zero = 0;
#pragma unroll
      for (int n = 0; n < kNv; ++n) {
        zero = fmaf(o_[r / 2][n].x[r % 2 * 2], 0.0f, zero);
        zero = fmaf(o_[r / 2][n].x[r % 2 * 2 + 1], 0.0f, zero);
      }
      lost |= zero != 0 && sum_[r] * 0 == 0;
    }
    return lost;
  }

  // Puts 0 for what is not finite in tile j of V. OutputRows makes up for it.
  __device__ void ZeroNonfinite(int j) const {
    float* const v = reinterpret_cast<float*>(Stage(Shape::kV, j));
#pragma unroll 1
    for (int i = device::ThreadIndex(); i < kKeys * kDim; i += Shape::kThreads) {
      if (!isfinite(v[i])) v[i] = 0;
    }
    __syncthreads();
  }

  // O and LSE, by way of the memory that this warp's Q had.
  __device__ void Store() {
    float inverse[kLaneRows];
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      float sum = sum_[r];
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
      inverse[r] = sum == 0 ? 0 : 1 / sum;
      const int64_t row = tile_.begin + RowOf(r);
      if (a_.lse.data != nullptr && Pair() == 0 && row < tile_.end) {
        constexpr float kLn2 = 0.693147180559945309f;
        static_cast<float*>(a_.lse.data)[tile_.Offset(a_.lse, row)] =
            sum == 0 ? -INFINITY : (log2f(sum) - offset_[r]) * kLn2;
      }
    }
    __syncwarp();
    // Of 32 columns a lane has eight: in each of four blocks two that are four apart.
    char* const rows = shared_ + WarpRow() * Shape::kRowBytes;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
#pragma unroll
      for (int i = 0; i < kNv / 2; ++i) {
        const int chunk = i / 2 * 8 + 2 * Pair() + i % 2, x = r % 2 * 2 + i % 2;
        const device::AccumulatorFragment* const o = &o_[r / 2][i / 2 * 4];
        *reinterpret_cast<float4*>(rows +
                                   Place::At(RowOf(r) - WarpRow(), chunk) * device::kChunkBytes) =
            make_float4(o[0].x[x] * inverse[r], o[1].x[x] * inverse[r], o[2].x[x] * inverse[r],
                        o[3].x[x] * inverse[r]);
      }
    }
    __syncwarp();
    using Output = OutputRows<float, kDim, Shape::kWarpRows>;
    if (kCareful) {
      const Keys& keys = *SharedKeys();
      const int walked = count_ <= keys.count / kKeys ? count_ * kKeys : keys.count;
      Output::AddNonfinite(rows, VisibleRows() + WarpRow(), a_, keys.v, keys.first, walked);
    }
    Output::Store(rows, a_, tile_, WarpRow());
  }

  const device::Arguments& a_;
  const device::QueryTile& tile_;
  char* const shared_;
  int count_;  // tiles of keys
  // Of the lane's rows: what is added to scores in base 2 before the exponential, and the sum of
  // this lane's P.
  float offset_[kLaneRows], sum_[kLaneRows];
  device::AccumulatorFragment o_[kM][kNv];
};

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TF32_TILE_CUH_
