// One query tile of FlashAttention-2 on tensor cores, for fp32 Q, K and V, by 3xTF32.
//
// The structure is that of tensor_core_tile.cuh. Each warp has 16 or 32 rows and computes all keys
// of a tile for them. S, P and O stay in registers, and copies bring the next tile of K and V while
// one is worked on. fp32 makes three differences:
//
//   Factors are split where they are used, in registers (tf32.h says why).
//   P is not rounded. An accumulator of the first product is a factor of the second with its keys
//   in another order, so V's rows are read in that order, four columns at a time.
//   The sum P V of a tile begins at zero and is added to O as a whole. Tensor cores truncate their
//   sums instead of rounding them, so over a hundred thousand keys O would shrink.
#ifndef ATTENTION_FA2_TF32_TILE_CUH_
#define ATTENTION_FA2_TF32_TILE_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/cp_async.cuh"
#include "attention/device/fragments.cuh"
#include "attention/device/kv_stream.cuh"
#include "attention/device/kv_tiles.h"
#include "attention/device/mma.cuh"
#include "attention/device/mma_tf32.cuh"
#include "attention/device/output_rows.cuh"
#include "attention/device/query_tile.h"
#include "attention/device/swizzle.h"
#include "attention/device/thread_index.cuh"
#include "attention/device/tile_copy.cuh"
#include "attention/device/warp_rows.cuh"

namespace attnlab::fa2 {

template <class Shape>
class Tf32Tile {
  static constexpr int kDim = Shape::kHeadDim, kKeys = Shape::kKeys, kStages = Shape::kStages;
  static constexpr int kM = Shape::kWarpRows / 16;  // blocks of 16 rows a warp
  static constexpr int kN = kKeys / 8;              // blocks of 8 keys
  static constexpr int kNv = kDim / 8;              // blocks of 8 columns of O
  // Whether the small terms of S have accumulators of their own. With one accumulator for all
  // terms, its sums over many dims would be truncated (see above) three times as often.
  static constexpr bool kOwnCross = kDim > 96;
  // Blocks of keys, and of columns, multiplied at a time. These are enough that no product waits
  // for the one before, and no more, because their split parts take registers.
  static constexpr int kKeyBlocks = kM == 1 && kN % 4 == 0 ? 4 : 2;
  static constexpr int kValueBlocks = kM == 1 ? 4 : 2;
  // Columns of O whose sums over a tile are in registers at a time.
  static constexpr int kColumns = kM == 1 && kDim % 64 == 0 ? 64 : 32;

  using QCopy = device::TileCopy<float, Shape::kRows, kDim, Shape::kThreads>;
  using Stream = device::KvStream<float, kKeys, kDim, Shape::kThreads>;
  using Warp = device::WarpRows<Shape::kWarpRows, kKeys, kDim>;
  using Output = device::OutputRows<float, kDim, Shape::kWarpRows>;
  using Place = device::Swizzle<kDim / 4>;
  static_assert(sizeof(device::Kept) <= Shape::kKeptBytes);
  static_assert(QCopy::kBytes == Shape::kK && Stream::kBytes == Shape::kKvBytes);
  static_assert(Place::kGroup == 8, "V's rows are shifted by their number in eight");

  using Scores = typename Warp::Scores;  // S, then P in its place

 public:
  // `shared`: Shape::kSharedBytes, aligned to 128 bytes. A copy of `tile` is kept there.
  __device__ Tf32Tile(const device::Arguments& a, const device::QueryTile& tile, char* shared)
      : a_(a), shared_(shared) {
    const device::KvTiles tiles = tile.Tiles(a.mask, kKeys);
    count_ = device::Uniform(static_cast<int>(tiles.Count(kKeys)));
    const bool streams = a.k.whole_chunks && a.v.whole_chunks && a.d == kDim && a.dv == kDim;
    const device::Keys keys = device::Keys::Of(tiles, tile.kv.length, kKeys, streams);
    if (device::ThreadIndex() == 0)
      *reinterpret_cast<device::Kept*>(shared + Shape::kKept) = {tile, keys};

    const float* const q = static_cast<const float*>(a.q.data);
    QCopy::Copy(shared, static_cast<int>(tile.end - tile.begin), a.d, a.q.whole_chunks,
                [&](int row) { return q + tile.Offset(a.q, tile.begin + row); });
    CopyTile(a.k, a.d, Shape::kK, 0, tile, keys);
    if (kStages > 1) CopyTile(a.v, a.dv, Shape::kV, 0, tile, keys);
    device::CopyAsyncCommit();
    // This runs while the copies are in flight.
    for (int row = device::ThreadIndex(); row < Shape::kRows; row += Shape::kThreads) {
      const KvRange seen = tile.Visible(a.mask, tile.begin + row);
      Visible()[row] = make_int2(static_cast<int>(seen.begin), static_cast<int>(seen.end));
    }
  }

  __device__ void Run() {
    Walk();
    Store();
  }

 private:
  __device__ const device::Kept& kept() const {
    return *reinterpret_cast<const device::Kept*>(shared_ + Shape::kKept);
  }
  __device__ float ScaleLog2() const { return device::ScaleLog2(a_, a_.softcap != 0); }
  // The keys that each row of the query tile sees.
  __device__ int2* Visible() const { return reinterpret_cast<int2*>(shared_ + Shape::kVisible); }

  __device__ uint32_t AddressOf(int tile, int row, int chunk) const {
    return device::SharedAddress(shared_) + tile + Place::At(row, chunk) * device::kChunkBytes;
  }

  // The row of K or V with the first key that the tile walks.
  __device__ const float* FirstKey(const device::Rows& rows, const device::QueryTile& tile,
                                   const device::Keys& keys) const {
    return static_cast<const float*>(rows.data) + tile.KvOffset(rows) +
           keys.first * rows.token_stride;
  }

  // Begins to copy tile j, if it exists, to its stage. Its address is computed again each time;
  // kept, it would take registers through the walk.
  __device__ void CopyK(int j) const {
    CopyTile(a_.k, a_.d, Shape::kK, j, kept().tile, kept().keys);
  }
  __device__ void CopyV(int j) const {
    CopyTile(a_.v, a_.dv, Shape::kV, j, kept().tile, kept().keys);
  }
  __device__ void CopyTile(const device::Rows& rows, int dim, int first, int j,
                           const device::QueryTile& tile, const device::Keys& keys) const {
    if (j >= count_) return;
    char* const to = shared_ + first + j % kStages * Shape::kKvBytes;
    Stream stream;
    stream.Begin(FirstKey(rows, tile, keys) + int64_t{j} * kKeys * rows.token_stride, rows);
    if (j < keys.whole) {
      stream.CopyWhole(to, rows, device::ThreadIndex());
    } else {
      stream.CopyRows(to, rows, keys.count - j * kKeys, dim);
    }
  }

  // Computes O and the sums of P over all tiles of keys.
  __device__ void Walk() {
    o_.Clear();
#pragma unroll 1
    for (int j = 0; j < count_; ++j) {
      device::CopyAsyncWait<0>();
      __syncthreads();  // tile j, or its K, has arrived; the next copy's target is free
      if (kStages > 1) CopyK(j + 1);
      CopyV(kStages > 1 ? j + 1 : j);
      device::CopyAsyncCommit();
      const int first_key = kept().keys.first + j * kKeys;
      const bool masked = kept().keys.Masked(j);
      if (kStages > 1 && masked && !Warp::SeesSome(Visible(), first_key)) continue;
      Scores s;
      MultiplyQk(j % kStages * Shape::kKvBytes, s);
      if (a_.softcap != 0) Warp::Cap(s, a_);
      if (masked) Warp::MaskOut(s, Visible(), first_key);
      typename Warp::LaneRows max;
      Warp::FindMaxima(s, max);
      warp_.Rescale(max, ScaleLog2(), o_);
      Exponentials(s);
      if (kStages == 1) {
        device::CopyAsyncWait<0>();
        __syncthreads();  // V has arrived, and all warps are done with K
        CopyK(j + 1);
        device::CopyAsyncCommit();
      }
      AddPv(j % kStages * Shape::kKvBytes, s);
    }
    device::CopyAsyncWait<0>();
    __syncthreads();
  }

  // S = Q Kᵀ.
  __device__ void MultiplyQk(int stage, Scores& s) const {
    // Four products along a row cover a line of 128 bytes, within which chunks are shifted.
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
    const int lane = Warp::Lane();
    uint32_t q_address = AddressOf(0, Warp::First() + lane % 16, lane / 16);
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

  // Computes P and its sums. The sum over a tile begins at zero, as that of P V does.
  __device__ void Exponentials(Scores& s) {
    const float scale_log2 = ScaleLog2();
#pragma unroll
    for (int r = 0; r < Warp::kLaneRows; ++r) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 2 * kN; i += 2) {
        s.At(r, i) = warp_.State(r).Weight(s.At(r, i), scale_log2);
        s.At(r, i + 1) = warp_.State(r).Weight(s.At(r, i + 1), scale_log2);
        sum += s.At(r, i) + s.At(r, i + 1);
      }
      warp_.State(r).sum += sum;
    }
  }

  // O += P V.
  __device__ void AddPv(int stage, const Scores& p) {
    constexpr int kParts = kColumns / 32, kCount = kDim / kColumns * kN * kParts;
    // Of eight keys, keys 2 t and 2 t + 1 are k t and t + 4 of a product. Of 32 columns, columns 4
    // g to 4 g + 3 are column g of four products.
    const uint32_t v_address = AddressOf(Shape::kV + stage, 2 * Warp::Pair(), Warp::Quad());
    // The odd keys of eight: their rows are shifted by 1 against the rows before them.
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
    for (int group = 0; group < kDim / kColumns; ++group) {
      // Columns beyond dv are zero and stay zero. The branch also keeps the compiler from
      // multiplying for the next columns before it adds up these, for which there are no registers.
      if (group > 0 && group * kColumns >= a_.dv) break;
#pragma unroll
      for (int rest = 0; rest < kN * kParts; ++rest) {
        const int i = group * kN * kParts + rest, part = rest % kParts, k = rest / kParts;
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
      }
#pragma unroll
      for (int n = 0; n < kM * kColumns / 8 * 4; ++n) {
        const int m = n / 4 / (kColumns / 8), block = n / 4 % (kColumns / 8);
        o_.x[m][group * (kColumns / 8) + block].x[n % 4] += sums[m][block].x[n % 4];
      }
    }
  }

  // Writes O and LSE to global memory. O passes through the shared memory that this warp's Q had.
  __device__ void Store() {
    warp_.Finish();
    warp_.StoreLse(a_, kept().tile);
    __syncwarp();
    // Of 32 columns a lane has eight: in each of four blocks, two columns that are four apart.
    char* const rows = shared_ + Warp::First() * Shape::kRowBytes;
#pragma unroll
    for (int r = 0; r < Warp::kLaneRows; ++r) {
      const float inverse = warp_.State(r).Inverse();
#pragma unroll
      for (int i = 0; i < kDim / 16; ++i) {
        const int chunk = i / 2 * 8 + 2 * Warp::Pair() + i % 2, x = i / 2 * 8 + i % 2;
        *reinterpret_cast<float4*>(rows + Place::At(Warp::Row(r) - Warp::First(), chunk) *
                                              device::kChunkBytes) =
            make_float4(o_.At(r, x) * inverse, o_.At(r, x + 2) * inverse, o_.At(r, x + 4) * inverse,
                        o_.At(r, x + 6) * inverse);
      }
    }
    __syncwarp();
    Output::Store(rows, a_, kept().tile, Warp::First());
  }

  const device::Arguments& a_;
  char* const shared_;
  int count_;  // tiles of keys
  Warp warp_;
  typename Warp::Output o_;
};

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TF32_TILE_CUH_
