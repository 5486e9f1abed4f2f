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
#include "attention/device/thread_index.cuh"
#include "attention/device/tile_copy.cuh"
#include "attention/fa2/fragments.cuh"
#include "attention/fa2/kept.cuh"
#include "attention/fa2/kv_stream.cuh"
#include "attention/fa2/output_rows.cuh"
#include "attention/fa2/warp_rows.cuh"

namespace attnlab::fa2 {

// T: __half or __nv_bfloat16. kCapped: whether there is a softcap. kCareful: whether V is looked at
// for what is not finite, see Run(); then the softcap is as the call has it.
template <class Shape, typename T, bool kCapped, bool kCareful>
class TensorCoreTile {
  static constexpr int kDim = Shape::kHeadDim, kKeys = Shape::kKeys, kStages = Shape::kStages;
  static constexpr int kM = Shape::kWarpRows / 16;  // blocks of 16 rows a warp
  static constexpr int kN = kKeys / 8;              // blocks of 8 keys
  static constexpr int kNv = kDim / 8;              // blocks of 8 columns of V and O
  // Loads from shared memory before the products that wait for them: more take registers that the
  // larger tile does not have.
  static constexpr int kAhead = kM == 1 ? 2 : 1;
  static constexpr bool kKeepQ = Shape::kKeepQ;

  using QCopy = device::TileCopy<T, Shape::kRows, kDim, Shape::kThreads>;
  using Stream = KvStream<T, kKeys, kDim, Shape::kThreads>;
  using Warp = WarpRows<Shape::kWarpRows, kKeys, kDim>;
  using Output = OutputRows<T, kDim, Shape::kWarpRows>;
  static_assert(QCopy::kBytes == Shape::kK && Stream::kBytes == Shape::kKvBytes);

  using Scores = typename Warp::Scores;
  struct Probabilities {
    device::AFragment x[kM][kKeys / 16];
  };

 public:
  // `shared`: Shape::kSharedBytes, aligned to 128. `tile` goes to `kept`, or, of a careful one, is
  // there from the first walk.
  __device__ TensorCoreTile(const device::Arguments& a, const device::QueryTile& tile, Kept& kept,
                            char* shared)
      : a_(a), kept_(kept), shared_(shared) {
    const int lane = Warp::Lane(), row = Warp::First() + lane % 16;
    // Lanes point at the rows of four 8 x 8 matrices.
    q_address_ = AddressOf(0, row, lane / 16);
    k_address_ = AddressOf(Shape::kK, lane % 8 + lane / 16 * 8, lane / 8 % 2);
    const device::KvTiles tiles = tile.Tiles(a.mask, kKeys);
    count_ = Uniform(static_cast<int>(tiles.Count(kKeys)));
    const bool streams = a.k.whole_chunks && a.v.whole_chunks && a.d == kDim && a.dv == kDim;
    const Keys keys = Keys::Of(tiles, tile.kv.length, kKeys, streams);
    if (!kCareful && device::ThreadIndex() == 0) kept = {tile, keys};
    CopyQ(tile);
    k_.Begin(FirstKey(a.k, tile, keys), a.k);
    v_.Begin(FirstKey(a.v, tile, keys), a.v);
    CopyTile(k_, a.k, a.d, Shape::kK, 0, keys);
    if (kStages > 1) CopyTile(v_, a.v, a.dv, Shape::kV, 0, keys);
    device::CopyAsyncCommit();
    if (kCareful || keys.full_begin > 0 || keys.full_end < count_) FindVisible(tile);
  }

  // 0 times NaN is NaN, so a V that is not finite reaches rows that do not see it. Where that may
  // have been, nothing is written, and the result is false: a careful one is to do it again. All
  // rows that do not see such a V have the same bits either way.
  __device__ bool Run() {
    Walk();
    const bool lost = Finish();
    if (!kCareful && __syncthreads_or(lost)) return false;
    Store();
    return true;
  }

 private:
  __device__ bool Capped() const { return kCareful ? a_.softcap != 0 : kCapped; }

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
        QCopy::CopyWhole(shared_, first + QCopy::Offset(a_.q.token_stride), a_.q.token_stride);
      } else {
        QCopy::Copy(shared_, rows, a_.d, a_.q.whole_chunks,
                    [&](int row) { return first + row * a_.q.token_stride; });
      }
    } else {
      QCopy::Copy(shared_, rows, a_.d, a_.q.whole_chunks,
                  [&](int row) { return q + tile.Offset(a_.q, tile.begin + row); });
    }
  }

  // Of K or V, the row of the first key that the tile walks.
  __device__ const T* FirstKey(const device::Rows& rows, const device::QueryTile& tile,
                               const Keys& keys) const {
    return static_cast<const T*>(rows.data) + tile.KvOffset(rows) + keys.first * rows.token_stride;
  }

  // Begins to copy tile j, which the stream is at, to its stage, where there is such a tile.
  __device__ void CopyK(int j) { CopyTile(k_, a_.k, a_.d, Shape::kK, j, kept_.keys); }
  __device__ void CopyV(int j) { CopyTile(v_, a_.v, a_.dv, Shape::kV, j, kept_.keys); }
  __device__ void CopyTile(Stream& stream, const device::Rows& rows, int dim, int first, int j,
                           const Keys& keys) {
    if (j >= count_) return;
    char* const to = shared_ + first + j % kStages * Shape::kKvBytes;
    if (j < keys.whole) {
      stream.CopyWhole(to, rows);
    } else {
      stream.CopyRows(to, rows, keys.count - j * kKeys, dim);
    }
    stream.Advance(rows);
  }

  // The keys that each row of the tile sees, in shared memory.
  __device__ int2* Visible() const { return reinterpret_cast<int2*>(shared_ + Shape::kVisible); }
  __device__ void FindVisible(const device::QueryTile& tile) const {
    for (int row = device::ThreadIndex(); row < Shape::kRows; row += Shape::kThreads) {
      const KvRange seen = tile.Visible(a_.mask, tile.begin + row);
      Visible()[row] = make_int2(static_cast<int>(seen.begin), static_cast<int>(seen.end));
    }
  }

  // O, and the sums of P, from all tiles of keys.
  __device__ void Walk() {
    o_.Clear();
    warp_.Begin();
    if (kKeepQ || count_ == 0) {  // O goes to Q's place, which must not be copied to any more
      device::CopyAsyncWait<0>();
      __syncthreads();
    }
    if constexpr (kKeepQ) KeepQ();
#pragma unroll 1
    for (int j = 0; j < count_; ++j) {
      device::CopyAsyncWait<0>();
      __syncthreads();  // all have tile j, or its K, and are done with what is copied over next
      if (kStages > 1) CopyK(j + 1);
      CopyV(kStages > 1 ? j + 1 : j);
      device::CopyAsyncCommit();
      Scores s;
      MultiplyQk(k_address_ + j % kStages * Shape::kKvBytes, s);
      if (Capped()) Warp::Cap(s, a_.scale, a_.softcap);
      if (j < kept_.keys.full_begin || j >= kept_.keys.full_end) {
        Warp::MaskOut(s, Visible(), kept_.keys.first + j * kKeys);
      }
      warp_.Rebase(s, ScaleLog2(a_, Capped()), o_);
      Probabilities p;
      Exponentials(s, p);
      if (kStages == 1) {
        device::CopyAsyncWait<0>();
        __syncthreads();  // all have V, and are done with K
        CopyK(j + 1);
        device::CopyAsyncCommit();
      }
      if (kCareful) ZeroNonfinite(j);
      const int lane = Warp::Lane();
      AddPv(AddressOf(Shape::kV, lane % 16, lane / 16) + j % kStages * Shape::kKvBytes, p);
    }
  }

  // Q's fragments to registers, for all tiles of keys.
  __device__ void KeepQ() {
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) LoadQ(k, q_[k]);
  }
  __device__ void LoadQ(int k, device::AFragment (&q)[kM]) const {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      device::LoadMatrices(q[m].x, PairOfChunks<kDim>(q_address_, k) + m * 16 * Shape::kRowBytes);
    }
  }

  // S = Q Kᵀ.
  __device__ void MultiplyQk(uint32_t k_address, Scores& s) const {
    constexpr int kBlocks = kN / 2, kCount = kDim / 16 * kBlocks;
    device::AFragment q[2][kM];
    uint32_t keys[kAhead + 1][4];
    const auto q_at = [&](int k, int m) -> const device::AFragment& {
      return kKeepQ ? q_[kKeepQ ? k : 0][m] : q[k % 2][m];
    };
    const auto load_keys = [&](int i) {
      device::LoadMatrices(keys[i % (kAhead + 1)], PairOfChunks<kDim>(k_address, i / kBlocks) +
                                                       i % kBlocks * 16 * Shape::kRowBytes);
    };
    if (!kKeepQ) LoadQ(0, q[0]);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) load_keys(i);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int k = i / kBlocks, n = i % kBlocks * 2;
      if (i + kAhead < kCount) load_keys(i + kAhead);
      if (!kKeepQ && n == 0 && k + 1 < kDim / 16) LoadQ(k + 1, q[(k + 1) % 2]);
      const uint32_t(&b)[4] = keys[i % (kAhead + 1)];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        if (k == 0) s.x[m][n] = s.x[m][n + 1] = {};
        device::Mma<T>(s.x[m][n], q_at(k, m), {b[0], b[1]});
        device::Mma<T>(s.x[m][n + 1], q_at(k, m), {b[2], b[3]});
      }
    }
  }

  // P, rounded, and its sums, which are not.
  __device__ void Exponentials(const Scores& s, Probabilities& p) {
    const float scale_log2 = ScaleLog2(a_, Capped());
#pragma unroll
    for (int i = 0; i < kM * kN; ++i) {
      const int m = i / kN, n = i % kN;
      float e[4];
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        e[x] = warp_.Weight(2 * m + x / 2, s.x[m][n].x[x], scale_log2);
      }
      warp_.Add(2 * m, e[0] + e[1]);
      warp_.Add(2 * m + 1, e[2] + e[3]);
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
        device::Mma<T>(o_.x[m][n], p.x[m][k], {b[0], b[1]});
        device::Mma<T>(o_.x[m][n + 1], p.x[m][k], {b[2], b[3]});
      }
    }
  }

  // Puts 0 for what is not finite in tile j of V. OutputRows makes up for it.
  __device__ void ZeroNonfinite(int j) const {
    T* const v = reinterpret_cast<T*>(shared_ + Shape::kV + j % kStages * Shape::kKvBytes);
#pragma unroll 1
    for (int i = device::ThreadIndex(); i < kKeys * kDim; i += Shape::kThreads) {
      if (!isfinite(device::ToFloat(v[i]))) v[i] = T(0.0f);
    }
    __syncthreads();
  }

  // O, divided by the sums of P and rounded, to where this warp's Q was. True if O has NaN or
  // infinity in a row whose P is a number.
  __device__ bool Finish() {
    using Check = device::FiniteCheck<T>;
    typename Check::Sum check[Warp::kLaneRows];
    warp_.Finish(a_, kept_.tile);
    __syncwarp();
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      check[2 * m] = check[2 * m + 1] = Check::Zero();
      const float inverse[2] = {warp_.Inverse(2 * m), warp_.Inverse(2 * m + 1)};
#pragma unroll
      for (int n = 0; n < kNv; n += 2) {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&o)[4] = o_.x[m][n + i / 2].x;
          const int half = i % 2;
          pairs[i] =
              device::PackPair<T>(o[2 * half] * inverse[half], o[2 * half + 1] * inverse[half]);
          check[2 * m + half] = Check::Add(check[2 * m + half], pairs[i]);
        }
        device::StoreMatrices(PairOfChunks<kDim>(q_address_, n / 2) + m * 16 * Shape::kRowBytes,
                              pairs);
      }
    }
    __syncwarp();
    bool lost = false;
#pragma unroll
    for (int r = 0; r < Warp::kLaneRows; ++r) {
      lost |= !Check::IsFinite(check[r]) && warp_.IsNumber(r);
    }
    return lost;
  }

  // O and LSE.
  __device__ void Store() const {
    warp_.StoreLse(a_, kept_.tile);
    char* const rows = shared_ + Warp::First() * Shape::kRowBytes;
    if (kCareful) {
      const Keys& keys = kept_.keys;
      const int walked = count_ <= keys.count / kKeys ? count_ * kKeys : keys.count;
      Output::AddNonfinite(rows, Visible() + Warp::First(), a_, FirstKey(a_.v, kept_.tile, keys),
                           keys.first, walked);
    }
    Output::Store(rows, a_, kept_.tile, Warp::First());
  }

  const device::Arguments& a_;
  const Kept& kept_;
  char* const shared_;
  uint32_t q_address_, k_address_;
  int count_;  // tiles of keys
  Stream k_, v_;
  Warp warp_;
  typename Warp::Output o_;
  device::AFragment q_[kKeepQ ? kDim / 16 : 1][kM];
};

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TENSOR_CORE_TILE_CUH_
