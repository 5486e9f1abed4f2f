// The Hopper kernel. A block has one warpgroup of producers and two of consumers, and walks the query
// tiles that are its share. Each consumer has 64 rows of the query tile.
//
//   producers   warp 0   Produce()    copies Q, K and V of each tile to shared memory (TMA)
//               warp 1   Schedule()   works out which tiles these are (hopper_work.cuh)
//   consumers            Consume()    S = Q Kᵀ, softmax, O += P V (wgmma), stores O
//
// They meet at rings of stages (device/mbarrier.cuh). Consumers walk keys from the last tile to the
// first, so that the masked tiles of a causal mask come first. They compute S of a tile while P V of
// the tile before is still unfinished, and their softmax runs beside P V:
//
//   tensor cores   | S 0 |      | S 1 | P V 0 |      | S 2 | P V 1 |
//   CUDA cores            soft 0         soft 1               soft 2
//
// One consumer's softmax leaves the tensor cores to the other.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_TILE_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_TILE_CUH_

#include <cstdint>

#include "attention/device/fragments.cuh"
#include "attention/device/mbarrier.cuh"
#include "attention/device/mma.cuh"
#include "attention/device/online_softmax.h"
#include "attention/device/tma.cuh"
#include "attention/device/warp_rows.cuh"
#include "attention/device/warpgroup.cuh"
#include "attention/device/wgmma.cuh"
#include "attention/warp_specialized/hopper_call.h"
#include "attention/warp_specialized/hopper_output.cuh"
#include "attention/warp_specialized/hopper_work.cuh"

namespace attnlab::warp_specialized {

namespace wgmma = device::wgmma;

template <typename Shape>
struct HopperShared {
  char q[Shape::kQBytes];
  char k[Shape::kStages][Shape::kKBytes];
  char v[Shape::kStages][Shape::kVBytes];
  Work<Shape> work[2];
  device::Ring<2> work_ring;
  device::Ring<1> q_ring;
  device::Ring<Shape::kStages> k_ring, v_ring;

  // One thread calls this. Each warp of consumers releases a stage once.
  __device__ void Init() {
    constexpr uint32_t kWarps = 4 * Shape::kConsumers;
    work_ring.Init(kWarps + 1);  // and the producer
    q_ring.Init(kWarps);
    k_ring.Init(kWarps);
    v_ring.Init(kWarps);
    cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
  }
};

// One thread calls this. K of a tile comes before V of the tile before, as consumers need them.
template <typename Shape>
__device__ void Produce(const HopperArguments& h, HopperShared<Shape>& shared) {
  device::Ring<2>::Place work_at;
  device::Ring<1>::Place q_at;
  typename device::Ring<Shape::kStages>::Place k_at, v_at;
  const auto load_k = [&](device::TileOrigin from) {
    shared.k_ring.WaitEmpty(k_at);
    device::LoadTile<Shape::kBlocks>(h.k, from, shared.k[k_at.stage], Shape::kKeys,
                                     shared.k_ring.FillWith(k_at, Shape::kKBytes));
    k_at.Advance();
  };
  const auto load_v = [&](device::TileOrigin from) {
    shared.v_ring.WaitEmpty(v_at);
    device::LoadTile<Shape::kBlocksV>(h.v, from, shared.v[v_at.stage], Shape::kKeys,
                                      shared.v_ring.FillWith(v_at, Shape::kVBytes));
    v_at.Advance();
  };
  for (;; work_at.Advance()) {
    shared.work_ring.WaitFull(work_at);
    const Work<Shape>& work = shared.work[work_at.stage];
    const int tiles = work.tiles;
    if (tiles == Work<Shape>::kNoMore) return;
    const device::TileOrigin q = work.q, kv = work.kv;
    shared.work_ring.Release(work_at);
    if (tiles == 0) continue;
    const auto tile = [&](int i) {
      return device::TileOrigin{kv.token + i * Shape::kKeys, kv.head, kv.batch};
    };
    shared.q_ring.WaitEmpty(q_at);
    device::LoadTile<Shape::kBlocks>(h.q, q, shared.q, Shape::kRows,
                                     shared.q_ring.FillWith(q_at, Shape::kQBytes));
    q_at.Advance();
    load_k(tile(tiles - 1));
    for (int i = tiles - 1; i > 0; --i) {
      load_k(tile(i - 1));
      load_v(tile(i));
    }
    load_v(tile(0));
  }
}

// A warpgroup of consumers. kCaps: whether there may be a softcap, which takes registers.
template <typename T, typename Shape, bool kCaps>
class Consumer {
 public:
  __device__ Consumer(const HopperArguments& h, HopperShared<Shape>& shared)
      : h_(h), shared_(shared), scale_log2_(device::ScaleLog2(h.a, kCaps)) {}

  __device__ void Consume() {
    if (group_ == Shape::kConsumers - 1) PassTurn();  // the first group begins
    for (;; work_at_.Advance()) {
      shared_.work_ring.WaitFull(work_at_);
      const Work<Shape>& work = shared_.work[work_at_.stage];
      if (work.tiles == Work<Shape>::kNoMore) break;
      rows_ = Rows();
      o_.Clear();
      if (work.tiles > 0) Walk(work);
      Store(work);
      __syncwarp();  // all lanes have read `work`
      if (Lane() == 0) shared_.work_ring.Release(work_at_);
    }
    if (group_ == 0) WaitForTurn();  // the last group has passed it once more than it was taken
  }

 private:
  static constexpr int kKeys = Shape::kKeys;
  using Scores = wgmma::Accumulators<kKeys>;
  using Output = wgmma::Accumulators<Shape::kDimV>;
  using Rows = device::WarpRows<16, kKeys, Shape::kDimV>;
  using LaneRows = typename Rows::LaneRows;

  static __device__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }

  // All tiles of keys of a query tile.
  __device__ void Walk(const Work<Shape>& work) {
    const int full_begin = work.full_begin, full_end = work.full_end;
    int i = work.tiles - 1;
    shared_.q_ring.WaitFull(q_at_);
    First(work, i--);
    for (; i >= full_end; --i) Step<true>(work, i);
    for (; i >= full_begin; --i) Step<false>(work, i);
    for (; i >= 0; --i) Step<true>(work, i);
    Last();
    q_at_.Advance();
  }

  // The tile that is walked first has no P V beside it.
  __device__ void First(const Work<Shape>& work, int i) {
    Scores s;
    shared_.k_ring.WaitFull(k_at_);
    WaitForTurn();
    StartScores(s);
    PassTurn();
    wgmma::Wait<0>();
    wgmma::Keep(s.x);
    ReleaseK(i);
    LaneRows factors;
    Softmax<true>(s, work, i, factors);
    if (i > 0) shared_.k_ring.WaitFull(k_at_);
    Round(s);
    if (work.rows_of_v < kKeys) ClearV(work.rows_of_v);
  }

  // S of tile i, while P V of the tile before is computed. K of tile i is there already.
  template <bool kMasked>
  __device__ void Step(const Work<Shape>& work, int i) {
    Scores s;
    WaitForTurn();
    StartScores(s);
    shared_.v_ring.WaitFull(v_at_);
    StartOutput();
    PassTurn();
    wgmma::Wait<1>();
    wgmma::Keep(s.x);
    ReleaseK(i);
    LaneRows factors;
    const bool rescale = Softmax<kMasked>(s, work, i, factors);
    wgmma::Keep(s.x);
    // Waiting for K of the next tile also keeps ptxas from moving the exponentials behind Wait<0>(),
    // because the parity depends on their sums. A sum is never negative.
    if (i > 0) {
      auto next = k_at_;
      next.parity ^= rows_.State(0).sum + rows_.State(1).sum < 0;
      shared_.k_ring.WaitFull(next);
    }
    wgmma::Wait<0>();
    wgmma::Keep(o_.x);
    ReleaseV();
    if (rescale) Rows::Multiply(o_, factors);
    Round(s);
  }

  __device__ void Last() {
    shared_.v_ring.WaitFull(v_at_);
    WaitForTurn();
    StartOutput();
    PassTurn();
    wgmma::Wait<0>();
    wgmma::Keep(o_.x);
    ReleaseV();
  }

  __device__ void StartScores(Scores& s) {
    const wgmma::SumAlongRows q(device::SharedAddress(shared_.q) + group_ * 64 * 128, Shape::kRows);
    const wgmma::SumAlongRows k(device::SharedAddress(shared_.k[k_at_.stage]), kKeys);
    wgmma::Fence();
#pragma unroll
    for (int i = 0; i < Shape::kDim / 16; ++i) {
      wgmma::MultiplyRows<T>(s, q.Step(i), k.Step(i), i > 0);
    }
    wgmma::Commit();
  }

  __device__ void StartOutput() {
    const wgmma::SumAlongColumns v(device::SharedAddress(shared_.v[v_at_.stage]), kKeys);
    wgmma::Keep(o_.x);
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) wgmma::Keep(p_[i]);
    wgmma::Fence();
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) wgmma::MultiplyColumns<T>(o_, p_[i], v.Step(i));
    wgmma::Commit();
  }

  // Replaces scores by their exponentials. Returns whether O has to be multiplied by `factors`.
  template <bool kMasked>
  __device__ bool Softmax(Scores& s, const Work<Shape>& work, int i, LaneRows& factors) {
    if constexpr (kCaps) Rows::Cap(s, h_.a);
    if constexpr (kMasked) Rows::MaskOut(s, work.visible, work.first_key + i * kKeys);
    LaneRows max;
    Rows::FindMaxima(s, max);
    const bool rescale = rows_.Grow(max, scale_log2_, factors);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      device::OnlineSoftmax& row = rows_.State(r);
      float sums[2] = {0, 0};
#pragma unroll
      for (int j = 0; j < kKeys / 4; ++j) {
        s.At(r, j) = row.Weight(s.At(r, j), scale_log2_);
        sums[j % 2] += s.At(r, j);
      }
      row.sum += sums[0] + sums[1];
    }
    return rescale;
  }

  // P, as the A fragments of P V.
  __device__ void Round(const Scores& s) {
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        p_[i][j] = device::PackPair<T>(s.x[8 * i + 2 * j], s.x[8 * i + 2 * j + 1]);
      }
    }
  }

  // Rows of V beyond the sequence may be NaN, and 0 · NaN is NaN. All consumers clear them.
  __device__ void ClearV(int first_row) {
    constexpr int kChunks = 8, kThreads = 128 * Shape::kConsumers;  // 16-byte chunks per row
    shared_.v_ring.WaitFull(v_at_);
    for (int block = 0; block < Shape::kBlocksV; ++block) {
      uint4* const chunks = reinterpret_cast<uint4*>(shared_.v[v_at_.stage] + block * kKeys * 128);
      for (int i = first_row * kChunks + static_cast<int>(threadIdx.x); i < kKeys * kChunks;
           i += kThreads) {
        chunks[i] = make_uint4(0, 0, 0, 0);
      }
    }
    device::FenceSharedStores();
    device::NamedSync(kAllConsumers, kThreads);
  }

  // Consumers take turns to start their products, so that one has its softmax while another
  // multiplies.
  __device__ void WaitForTurn() { device::NamedSync(kTurns + group_, 256); }
  __device__ void PassTurn() {
    const int next = group_ + 1 == Shape::kConsumers ? 0 : group_ + 1;
    device::NamedArrive(kTurns + next, 256);
  }

  // After the scores of tile i. Tile 0 is the last one, with which Q is done as well.
  __device__ void ReleaseK(int i) {
    if (Lane() == 0) {
      shared_.k_ring.Release(k_at_);
      if (i == 0) shared_.q_ring.Release(q_at_);
    }
    k_at_.Advance();
  }
  __device__ void ReleaseV() {
    if (Lane() == 0) shared_.v_ring.Release(v_at_);
    v_at_.Advance();
  }

  __device__ void Store(const Work<Shape>& work) {
    const device::Arguments& a = h_.a;
    rows_.Finish();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = Rows::Row(r);
      const bool exists = row < work.rows;
      const int64_t query = h_.pack.Divide(row), head = row - query * h_.pack.Value();
      if (exists && Rows::Pair() == 0 && a.lse.data != nullptr) {
        static_cast<float*>(a.lse.data)[work.lse + a.lse.Offset(0, query, head)] =
            rows_.State(r).Lse();
      }
      T* const to = static_cast<T*>(a.o.data) + work.o + a.o.Offset(0, query, head);
      StoreRow<T>(o_, r, rows_.State(r).Inverse(), to, exists, a.dv, a.o.whole_chunks);
    }
  }

  // Named barriers.
  static constexpr int kAllConsumers = 1, kTurns = 2;

  const HopperArguments& h_;
  HopperShared<Shape>& shared_;
  const int group_ = device::Uniform(static_cast<int>(threadIdx.x) / 128);
  const float scale_log2_;
  Rows rows_;
  Output o_;
  uint32_t p_[kKeys / 16][4];  // P of the tile before
  device::Ring<2>::Place work_at_;
  device::Ring<1>::Place q_at_;
  typename device::Ring<Shape::kStages>::Place k_at_, v_at_;
};

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_TILE_CUH_
