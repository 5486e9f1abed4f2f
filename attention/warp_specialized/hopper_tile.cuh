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
  char q[Shape::kQStages][Shape::kQBytes];
  char k[Shape::kStages][Shape::kKBytes];
  char v[Shape::kStages][Shape::kVBytes];
  Work work[Shape::kWorks];
  device::Ring<Shape::kWorks> work_ring;
  device::Ring<Shape::kQStages> q_ring;
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

// One thread calls this. K of a tile comes before V of the tile before, as consumers need them. With
// room for two query tiles, that holds from one query tile to the next, too.
template <typename Shape>
__device__ void Produce(const HopperArguments& h, HopperShared<Shape>& shared) {
  typename device::Ring<Shape::kWorks>::Place work_at;
  typename device::Ring<Shape::kQStages>::Place q_at;
  typename device::Ring<Shape::kStages>::Place k_at, v_at;
  bool owes_v = false;
  device::TileOrigin v_from;
  const auto load_v = [&] {
    shared.v_ring.WaitEmpty(v_at);
    device::LoadTile<Shape::kBlocksV>(h.v, v_from, shared.v[v_at.stage], Shape::kKeys,
                                      shared.v_ring.FillWith(v_at, Shape::kVBytes));
    v_at.Advance();
    owes_v = false;
  };
  for (;; work_at.Advance()) {
    shared.work_ring.WaitFull(work_at);
    const Work& work = shared.work[work_at.stage];
    int i = work.tiles;
    const device::TileOrigin q = work.q;
    device::TileOrigin kv = work.kv;
    shared.work_ring.Release(work_at);
    if (owes_v && (Shape::kQStages == 1 || i == Work::kNoMore)) load_v();
    if (i == Work::kNoMore) return;
    shared.q_ring.WaitEmpty(q_at);
    device::LoadTile<Shape::kBlocks>(h.q, q, shared.q[q_at.stage], Shape::kRows,
                                     shared.q_ring.FillWith(q_at, Shape::kQBytes));
    q_at.Advance();
    for (kv.token += i * Shape::kKeys; i > 0; --i) {
      kv.token -= Shape::kKeys;
      shared.k_ring.WaitEmpty(k_at);
      device::LoadTile<Shape::kBlocks>(h.k, kv, shared.k[k_at.stage], Shape::kKeys,
                                       shared.k_ring.FillWith(k_at, Shape::kKBytes));
      k_at.Advance();
      if (owes_v) load_v();
      v_from = kv;
      owes_v = true;
    }
  }
}

// A warpgroup of consumers: what both orders of work have in common. kCaps: whether there may be a
// softcap, which takes registers.
template <typename T, typename Shape, bool kCaps>
class Consumer {
 public:
  __device__ Consumer(const HopperArguments& h, HopperShared<Shape>& shared)
      : h_(h), shared_(shared), scale_log2_(device::ScaleLog2(h.a, kCaps)) {}

 protected:
  static constexpr int kKeys = Shape::kKeys;
  using Scores = wgmma::Accumulators<kKeys>;
  using Output = wgmma::Accumulators<Shape::kDimV>;
  using Rows = device::WarpRows<16, kKeys, Shape::kDimV>;
  using LaneRows = typename Rows::LaneRows;

  static __device__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }

  // The next query tile. Returns whether there is one.
  __device__ bool WaitForWork() {
    shared_.work_ring.WaitFull(work_at_);
    return TheWork().tiles != Work::kNoMore;
  }
  __device__ const Work& TheWork() const { return shared_.work[work_at_.stage]; }
  __device__ void ReleaseWork() {
    __syncwarp();
    if (Lane() == 0) shared_.work_ring.Release(work_at_);
    work_at_.Advance();
  }

  __device__ void StartScores(Scores& s) {
    const wgmma::SumAlongRows q(device::SharedAddress(shared_.q[q_at_.stage]) + group_ * 64 * 128, Shape::kRows);
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

  // Replaces scores of tile i by their exponentials. Returns whether O has to be multiplied by
  // `factors`.
  __device__ bool Softmax(Scores& s, const Work& work, int i, LaneRows& factors) {
    if constexpr (kCaps) Rows::Cap(s, h_.a);
    if (i >= work.full_end || i < work.full_begin) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int query = static_cast<int>(h_.pack.Divide(Rows::Row(r)));
        Rows::MaskOut(s, r, work.sees_begin + query - i * kKeys,
                      min(work.sees_end + query, work.keys) - i * kKeys);
      }
    }
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

  // Rows of V beyond the sequence may be NaN, and 0 · NaN is NaN. All consumers clear those of the
  // last tile of keys.
  __device__ void ClearV(const Work& work) {
    const int first_row = work.keys - (work.tiles - 1) * kKeys;
    if (!h_.rows_beyond || first_row >= kKeys) return;
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
    if (i == 0) q_at_.Advance();
  }
  __device__ void ReleaseV() {
    if (Lane() == 0) shared_.v_ring.Release(v_at_);
    v_at_.Advance();
  }

  __device__ void Store(const Work& work) {
    const device::Arguments& a = h_.a;
    rows_.Finish();
    const int first_head = work.q.head * static_cast<int>(h_.pack.Value());
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = Rows::Row(r);
      const bool exists = row < work.rows;
      const int query = static_cast<int>(h_.pack.Divide(row));
      const int head = first_head + row - query * static_cast<int>(h_.pack.Value());
      if (exists && Rows::Pair() == 0 && a.lse.data != nullptr) {
        static_cast<float*>(a.lse.data)[a.lse.Offset(work.q.batch, work.q.token + query, head)] =
            rows_.State(r).Lse();
      }
      T* const to = static_cast<T*>(a.o.data) + a.o.Offset(work.q.batch, work.q.token + query, head);
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
  uint32_t p_[kKeys / 16][4];  // P
  typename device::Ring<Shape::kWorks>::Place work_at_;
  typename device::Ring<Shape::kQStages>::Place q_at_;
  typename device::Ring<Shape::kStages>::Place k_at_, v_at_;
};

// S of a tile and P V of the tile before are computed together, and the softmax runs beside P V:
//
//   tensor cores   | S 0 |      | S 1 | P V 0 |      | S 2 | P V 1 |
//   CUDA cores            soft 0         soft 1               soft 2
//
// One consumer's softmax leaves the tensor cores to the other.
template <typename T, typename Shape, bool kCaps>
class ConsumerBehind : Consumer<T, Shape, kCaps> {
  using Base = Consumer<T, Shape, kCaps>;
  using typename Base::LaneRows, typename Base::Rows, typename Base::Scores;
  using Base::h_, Base::shared_, Base::group_, Base::rows_, Base::o_, Base::q_at_, Base::k_at_,
      Base::v_at_;

 public:
  using Base::Base;

  __device__ void Consume() {
    if (group_ == Shape::kConsumers - 1) this->PassTurn();  // the first group begins
    bool begun = false;
    while (this->WaitForWork()) {
      const Work& work = this->TheWork();
      if (!begun) First(work);
      for (int i = work.tiles - 2; i >= 0; --i) Step(work, i);
      begun = Last(work);
    }
    if (group_ == 0) this->WaitForTurn();  // the last group has passed it once more than it was taken
  }

 private:
  // The tile that is walked first has no P V beside it.
  __device__ void First(const Work& work) {
    Scores s;
    shared_.q_ring.WaitFull(q_at_);
    shared_.k_ring.WaitFull(k_at_);
    this->WaitForTurn();
    this->StartScores(s);
    this->PassTurn();
    wgmma::Wait<0>();
    wgmma::Keep(s.x);
    Begin(work, s);
  }

  __device__ void Begin(const Work& work, Scores& s) {
    this->ReleaseK(work.tiles - 1);
    rows_ = Rows();
    o_.Clear();
    LaneRows factors;
    this->Softmax(s, work, work.tiles - 1, factors);
    if (work.tiles > 1) shared_.k_ring.WaitFull(k_at_);
    this->Round(s);
    this->ClearV(work);
  }

  // S of tile i, while P V of the tile before is computed. K of tile i is there already.
  __device__ void Step(const Work& work, int i) {
    Scores s;
    this->WaitForTurn();
    this->StartScores(s);
    shared_.v_ring.WaitFull(v_at_);
    this->StartOutput();
    this->PassTurn();
    wgmma::Wait<1>();
    wgmma::Keep(s.x);
    this->ReleaseK(i);
    LaneRows factors;
    const bool rescale = this->Softmax(s, work, i, factors);
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
    this->ReleaseV();
    if (rescale) Rows::Multiply(o_, factors);
    this->Round(s);
  }

  // The last P V, beside S of the next query tile, if there is one and there is room for its Q.
  // Returns whether there was.
  __device__ bool Last(const Work& work) {
    if constexpr (Shape::kQStages > 1) {
      auto at = this->work_at_;
      at.Advance();
      shared_.work_ring.WaitFull(at);
      const Work& next = shared_.work[at.stage];
      if (next.tiles != Work::kNoMore) {
        Scores s;
        shared_.q_ring.WaitFull(q_at_);
        shared_.k_ring.WaitFull(k_at_);
        this->WaitForTurn();
        shared_.v_ring.WaitFull(v_at_);
        this->StartOutput();
        this->StartScores(s);
        this->PassTurn();
        wgmma::Wait<1>();
        wgmma::Keep(o_.x);
        this->ReleaseV();
        this->Store(work);
        this->ReleaseWork();
        wgmma::Wait<0>();
        wgmma::Keep(s.x);
        Begin(next, s);
        return true;
      }
    }
    this->WaitForTurn();
    shared_.v_ring.WaitFull(v_at_);
    this->StartOutput();
    this->PassTurn();
    wgmma::Wait<0>();
    wgmma::Keep(o_.x);
    this->ReleaseV();
    this->Store(work);
    this->ReleaseWork();
    return false;
  }
};

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_TILE_CUH_
