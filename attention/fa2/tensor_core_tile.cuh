// One query tile of FlashAttention-2 on tensor cores, for Q, K and V of 16 bits.
//
// Each warp has 16 or 32 rows of the tile, and all of a tile of keys for them, so that rows never
// cross warps: S, P and O stay in a warp's registers, P goes from the first product to the second
// without leaving them, and what warps share is K and V in shared memory. While one tile of keys is
// worked on, copies bring the next.
#ifndef ATTENTION_FA2_TENSOR_CORE_TILE_CUH_
#define ATTENTION_FA2_TENSOR_CORE_TILE_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/convert.cuh"
#include "attention/device/cp_async.cuh"
#include "attention/device/kv_tiles.h"
#include "attention/device/mma.cuh"
#include "attention/device/query_tile.h"
#include "attention/device/swizzle.h"
#include "attention/device/tile_copy.cuh"
#include "attention/fa2/fragments.cuh"

namespace attnlab::fa2 {

// T: __half or __nv_bfloat16. kCapped: whether there is a softcap. kCareful: whether V is looked at
// for what is not finite, see Run(); then the softcap is as the call has it.
template <class Shape, typename T, bool kCapped, bool kCareful>
class TensorCoreTile {
  static constexpr int kDim = Shape::kHeadDim, kKeys = Shape::kKeys, kStages = Shape::kStages;
  static constexpr int kM = Shape::kWarpRows / 16;  // blocks of 16 rows a warp
  static constexpr int kN = kKeys / 8;              // blocks of 8 keys
  static constexpr int kNv = kDim / 8;              // blocks of 8 columns of V and O
  static constexpr int kLaneRows = 2 * kM;          // rows of which a lane has elements
  // Loads from shared memory before the products that wait for them: more take registers that the
  // larger tile does not have.
  static constexpr int kAhead = kM == 1 ? 2 : 1;

  // Exponentials are relative to a base that moves when a score exceeds it by 2^kMostGrowth.
  static constexpr float kMostGrowth = 8;
  // The offset of a row that has seen no key: any that comes moves the base, and until then P is 0.
  static constexpr float kNoKey = 3e38f;

  using QCopy = device::TileCopy<T, Shape::kRows, kDim, Shape::kThreads>;
  using KvCopy = device::TileCopy<T, kKeys, kDim, Shape::kThreads>;
  static_assert(QCopy::kBytes == Shape::kK && KvCopy::kBytes == Shape::kKvBytes);

  struct Scores {
    device::AccumulatorFragment x[kM][kN];
  };
  struct Probabilities {
    device::AFragment x[kM][kKeys / 16];
  };

 public:
  // `shared`: Shape::kSharedBytes, aligned to 128. `kept` is where `tile` stays for the end, too,
  // out of the registers.
  __device__ TensorCoreTile(const device::Arguments& a, const device::QueryTile& tile,
                            device::QueryTile& kept, char* shared)
      : a_(a), tile_(kept), shared_(shared) {
    if (threadIdx.x == 0) kept = tile;
    const int lane = Lane(), row = WarpRow() + lane % 16;
    // Lanes point at the rows of four 8 x 8 matrices.
    q_address_ = AddressOf(0, row, lane / 16);
    k_address_ = AddressOf(Shape::kK, lane % 8 + lane / 16 * 8, lane / 8 % 2);
    v_address_ = AddressOf(Shape::kV, lane % 16, lane / 16);
    // Scores are in base 2. With a softcap scale comes before it; otherwise it is part of the
    // exponential. A scale of 0 would make NaN of minus infinity.
    constexpr float kLog2E = 1.44269504088896341f;
    scale_log2_ = (Capped() ? 1.0f : fmaxf(a.scale, 1e-30f)) * kLog2E;

    const device::KvTiles tiles = tile.Tiles(a.mask, kKeys);
    count_ = Uniform(static_cast<int>(tiles.Count(kKeys)));
    full_begin_ = Uniform(static_cast<int>((tiles.full_begin - tiles.begin) / kKeys));
    full_end_ = Uniform(static_cast<int>((tiles.full_end - tiles.begin) / kKeys));
    first_key_ = Uniform(static_cast<int>(tiles.begin));
    keys_ = Uniform(static_cast<int>(tile.kv.length - tiles.begin));
    k_ = static_cast<const T*>(a.k.data) + tile.KvOffset(a.k) + tiles.begin * a.k.token_stride;
    v_ = static_cast<const T*>(a.v.data) + tile.KvOffset(a.v) + tiles.begin * a.v.token_stride;

    CopyQ(tile);
    BeginWalk();
    // While the copies are under way.
    for (int row = static_cast<int>(threadIdx.x); row < Shape::kRows; row += Shape::kThreads) {
      const KvRange seen = tile.Visible(a.mask, tile.begin + row);
      reinterpret_cast<int2*>(shared_ + Shape::kVisible)[row] =
          make_int2(static_cast<int>(seen.begin), static_cast<int>(seen.end));
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
  static __device__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int Quad() { return Lane() / 4; }
  static __device__ int Pair() { return Lane() % 4; }
  static __device__ int WarpRow() { return static_cast<int>(threadIdx.x) / 32 * Shape::kWarpRows; }
  __device__ bool Capped() const { return kCareful ? a_.softcap != 0 : kCapped; }

  // Of the tile, the r-th row of which this lane has elements.
  static __device__ int RowOf(int r) { return WarpRow() + r / 2 * 16 + r % 2 * 8 + Quad(); }

  __device__ uint32_t AddressOf(int tile, int row, int chunk) const {
    return SharedAddress(shared_) + tile +
           device::Swizzle<kDim / 8>::At(row, chunk) * device::kChunkBytes;
  }

  __device__ void CopyQ(const device::QueryTile& tile) {
    const T* const q = static_cast<const T*>(a_.q.data);
    const int rows = static_cast<int>(tile.end - tile.begin);
    if (tile.pack == 1) {
      const T* const first = q + tile.Offset(a_.q, tile.begin);
      if (a_.q.whole_chunks && rows == Shape::kRows && a_.d == kDim) {
        QCopy::CopyWhole(shared_, first, a_.q.token_stride);
      } else {
        QCopy::Copy(shared_, rows, a_.d, a_.q.whole_chunks,
                    [&](int row) { return first + row * a_.q.token_stride; });
      }
    } else {
      QCopy::Copy(shared_, rows, a_.d, a_.q.whole_chunks,
                  [&](int row) { return q + tile.Offset(a_.q, tile.begin + row); });
    }
  }
  __device__ void BeginWalk() {
    CopyK(0);
    if (kStages > 1) CopyV(0);
    device::CopyAsyncCommit();
  }

  // Begins to copy tile j to its stage, where there is such a tile.
  __device__ void CopyK(int j) {
    if (j < count_) CopyOne(Stage(Shape::kK, j), a_.k, k_, j, a_.d);
  }
  __device__ void CopyV(int j) {
    if (j < count_) CopyOne(Stage(Shape::kV, j), a_.v, v_, j, a_.dv);
  }
  __device__ char* Stage(int first, int j) const {
    return shared_ + first + j % kStages * Shape::kKvBytes;
  }
  __device__ void CopyOne(char* to, const device::Rows& rows, const T* first, int j,
                          int dim) const {
    const T* const from = first + int64_t{j} * kKeys * rows.token_stride;
    const int left = keys_ - j * kKeys;
    if (rows.whole_chunks && left >= kKeys && dim == kDim) {
      KvCopy::CopyWhole(to, from, rows.token_stride);
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
      if (kStages > 1) CopyK(j + 1);
      CopyV(kStages > 1 ? j + 1 : j);
      device::CopyAsyncCommit();
      Scores s;
      MultiplyQk(k_address_ + j % kStages * Shape::kKvBytes, s);
      if (Capped()) Cap(s);
      if (j < full_begin_ || j >= full_end_) MaskOut(j, s);
      Rebase(s);
      Probabilities p;
      Exponentials(s, p);
      if (kStages == 1) {
        device::CopyAsyncWait<0>();
        __syncthreads();  // all have V, and are done with K
        CopyK(j + 1);
        device::CopyAsyncCommit();
      }
      if (kCareful) ZeroNonfinite(j);
      AddPv(v_address_ + j % kStages * Shape::kKvBytes, p);
    }
    device::CopyAsyncWait<0>();
    __syncthreads();
  }

  // S = Q Kᵀ.
  __device__ void MultiplyQk(uint32_t k_address, Scores& s) const {
    constexpr int kBlocks = kN / 2, kCount = kDim / 16 * kBlocks;
    device::AFragment q[2][kM];
    uint32_t keys[kAhead + 1][4];
    const auto load_q = [&](int k) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        device::LoadMatrices(q[k % 2][m].x,
                             PairOfChunks<kDim>(q_address_, k) + m * 16 * Shape::kRowBytes);
      }
    };
    const auto load_keys = [&](int i) {
      device::LoadMatrices(keys[i % (kAhead + 1)], PairOfChunks<kDim>(k_address, i / kBlocks) +
                                                       i % kBlocks * 16 * Shape::kRowBytes);
    };
    load_q(0);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) load_keys(i);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int k = i / kBlocks, n = i % kBlocks * 2;
      if (i + kAhead < kCount) load_keys(i + kAhead);
      if (n == 0 && k + 1 < kDim / 16) load_q(k + 1);
      const uint32_t(&b)[4] = keys[i % (kAhead + 1)];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        if (k == 0) s.x[m][n] = s.x[m][n + 1] = {};
        device::Mma<T>(s.x[m][n], q[k % 2][m], {b[0], b[1]});
        device::Mma<T>(s.x[m][n + 1], q[k % 2][m], {b[2], b[3]});
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

  // Minus infinity for keys that a row does not see. Most tiles are cut at one side alone.
  __device__ void MaskOut(int j, Scores& s) const {
    const int first = first_key_ + j * kKeys + 2 * Pair();
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      const int2 seen = Visible(r);
      const int begin = seen.x - first, end = seen.y - first;
      if (__any_sync(0xFFFFFFFF, end < kKeys)) {
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& x = s.x[r / 2][n].x[r % 2 * 2 + i];
            x = n * 8 + i < end ? x : -INFINITY;
          }
        }
      }
      if (__any_sync(0xFFFFFFFF, begin > 0)) {
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& x = s.x[r / 2][n].x[r % 2 * 2 + i];
            x = n * 8 + i >= begin ? x : -INFINITY;
          }
        }
      }
    }
  }
  // The keys that the lane's r-th row sees.
  __device__ int2 Visible(int r) const {
    return reinterpret_cast<const int2*>(shared_ + Shape::kVisible)[RowOf(r)];
  }

  // Exponentials are relative to a base, of which offset_ is the negative. It follows the maximum
  // only where that has grown by more than 2^8: P stays far within its type, O is hardly ever
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
      large |= fmaf(max[r], scale_log2_, offset_[r]) > kMostGrowth;
    }
    if (!__any_sync(0xFFFFFFFF, large)) return;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      max[r] = fmaxf(max[r], __shfl_xor_sync(0xFFFFFFFF, max[r], 1));
      max[r] = fmaxf(max[r], __shfl_xor_sync(0xFFFFFFFF, max[r], 2));
      const float growth = fmaf(max[r], scale_log2_, offset_[r]);
      const float factor = growth > kMostGrowth ? Exp2(-growth) : 1;
      if (growth > kMostGrowth) offset_[r] = -max[r] * scale_log2_;
      sum_[r] *= factor;
#pragma unroll
      for (int n = 0; n < kNv; ++n) {
        o_[r / 2][n].x[r % 2 * 2] *= factor;
        o_[r / 2][n].x[r % 2 * 2 + 1] *= factor;
      }
    }
  }

  // P, rounded, and its sums, which are not.
  __device__ void Exponentials(const Scores& s, Probabilities& p) {
#pragma unroll
    for (int i = 0; i < kM * kN; ++i) {
      const int m = i / kN, n = i % kN;
      float e[4];
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        e[x] = Exp2(fmaf(s.x[m][n].x[x], scale_log2_, offset_[2 * m + x / 2]));
      }
      sum_[2 * m] += e[0] + e[1];
      sum_[2 * m + 1] += e[2] + e[3];
      p.x[m][n / 2].x[n % 2 * 2] = device::PackPair<T>(e[0], e[1]);
      p.x[m][n / 2].x[n % 2 * 2 + 1] = device::PackPair<T>(e[2], e[3]);
    }
  }

  // O += P V.
  __device__ void AddPv(uint32_t v_address, const Probabilities& p) {
    constexpr int kBlocks = kNv / 2, kCount = kKeys / 16 * kBlocks;
    uint32_t values[kAhead + 1][4];
    const auto load = [&](int i) {
      device::LoadMatricesTransposed(
          values[i % (kAhead + 1)],
          PairOfChunks<kDim>(v_address, i % kBlocks) + i / kBlocks * 16 * Shape::kRowBytes);
    };
#pragma unroll
    for (int i = 0; i < kAhead; ++i) load(i);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int k = i / kBlocks, n = i % kBlocks * 2;
      if (i + kAhead < kCount) load(i + kAhead);
      const uint32_t(&b)[4] = values[i % (kAhead + 1)];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        device::Mma<T>(o_[m][n], p.x[m][k], {b[0], b[1]});
        device::Mma<T>(o_[m][n + 1], p.x[m][k], {b[2], b[3]});
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

  // Puts 0 for what is not finite in tile j of V. AddNonfinite() makes up for it.
  __device__ void ZeroNonfinite(int j) const {
    T* const v = reinterpret_cast<T*>(Stage(Shape::kV, j));
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kKeys * kDim; i += Shape::kThreads) {
      if (!isfinite(device::ToFloat(v[i]))) v[i] = T(0.0f);
    }
    __syncthreads();
  }

  // Adds what is not finite in V to those of the warp's rows of O, in shared memory, that see it:
  // however small their P, infinity stays infinity.
  __device__ void AddNonfinite(char* rows) const {
    const int2* const seen = reinterpret_cast<const int2*>(shared_ + Shape::kVisible) + WarpRow();
#pragma unroll 1
    for (int key = 0; key < keys_; ++key) {
      const T* const v = v_ + int64_t{key} * a_.v.token_stride;
#pragma unroll 1
      for (int column = Lane(); column < a_.dv; column += 32) {
        const float x = device::ToFloat(v[column]);
        if (isfinite(x)) continue;
#pragma unroll 1
        for (int row = 0; row < Shape::kWarpRows; ++row) {
          if (first_key_ + key < seen[row].x || first_key_ + key >= seen[row].y) continue;
          T& o = reinterpret_cast<T*>(rows + device::Swizzle<kDim / 8>::At(row, column / 8) *
                                                 device::kChunkBytes)[column % 8];
          o = device::FromFloat<T>(device::ToFloat(o) + x);
        }
      }
    }
    __syncwarp();
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
    using Place = device::Swizzle<kDim / 8>;
    char* const rows = shared_ + WarpRow() * Shape::kRowBytes;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kNv; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float f = inverse[2 * m + half];
          const int row = m * 16 + half * 8 + Quad();
          *reinterpret_cast<uint32_t*>(rows + Place::At(row, n) * device::kChunkBytes +
                                       Pair() * 4) =
              device::PackPair<T>(o_[m][n].x[2 * half] * f, o_[m][n].x[2 * half + 1] * f);
        }
      }
    }
    __syncwarp();
    if (kCareful) AddNonfinite(rows);
    StoreRows(rows);
  }

  // The warp's rows of O, from shared memory.
  __device__ void StoreRows(const char* rows) const {
    using Place = device::Swizzle<kDim / 8>;
    constexpr int kRowLanes = Place::kGroup, kStep = 32 / kRowLanes;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int first = lane / kRowLanes, chunk = lane % kRowLanes;
    T* const o = static_cast<T*>(a_.o.data);
    const int64_t left = tile_.end - tile_.begin - WarpRow();
    if (tile_.pack == 1 && left >= Shape::kWarpRows && a_.o.whole_chunks && a_.dv == kDim) {
      T* to = o + tile_.Offset(a_.o, tile_.begin + WarpRow() + first) + chunk * 8;
#pragma unroll
      for (int i = 0; i < Shape::kWarpRows / kStep; ++i) {
#pragma unroll
        for (int j = 0; j < kDim / 8 / kRowLanes; ++j) {
          *reinterpret_cast<uint4*>(to + j * kRowLanes * 8) = *reinterpret_cast<const uint4*>(
              rows + Place::At(first + i * kStep, chunk + j * kRowLanes) * device::kChunkBytes);
        }
        to += kStep * a_.o.token_stride;
      }
      return;
    }
#pragma unroll 1
    for (int row = first; row < Shape::kWarpRows && row < left; row += kStep) {
      T* const to = o + tile_.Offset(a_.o, tile_.begin + WarpRow() + row);
#pragma unroll 1
      for (int c = chunk; c * 8 < a_.dv; c += kRowLanes) {
        const char* const from = rows + Place::At(row, c) * device::kChunkBytes;
        if (a_.o.whole_chunks) {
          *reinterpret_cast<uint4*>(to + c * 8) = *reinterpret_cast<const uint4*>(from);
        } else {
          for (int e = c * 8; e < c * 8 + 8 && e < a_.dv; ++e) {
            to[e] = reinterpret_cast<const T*>(from)[e - c * 8];
          }
        }
      }
    }
  }

  const device::Arguments& a_;
  const device::QueryTile& tile_;
  char* const shared_;
  uint32_t q_address_, k_address_, v_address_;
  float scale_log2_;
  // Tiles of keys: how many, those that every row sees all of, the first one's first key, and keys
  // of the sequence from it on.
  int count_, full_begin_, full_end_, first_key_, keys_;
  const T *k_, *v_;  // that first key's rows
  // Of the lane's rows: what is added to scores in base 2 before the exponential, and the sum of
  // this lane's P.
  float offset_[kLaneRows], sum_[kLaneRows];
  device::AccumulatorFragment o_[kM][kNv];
};

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TENSOR_CORE_TILE_CUH_
