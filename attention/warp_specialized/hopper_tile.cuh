// The Hopper kernel: what the warps of a block share, and the producer.
//
// A block has one warpgroup of producers and two or three of consumers. It walks query tiles until
// there are no more. Each consumer has 64 rows of the query tile.
//
//   producers   warp 0   Produce()    copies Q, K and V of each tile to shared memory (TMA)
//               warp 1   Schedule()   works out which tiles these are (hopper_work.cuh)
//   consumers            Consume()    S = Q Kᵀ, softmax, O += P V (wgmma), stores O
//                                     (hopper_consumer.cuh)
//
// They meet at rings of stages (device/hopper/mbarrier.cuh). Keys are walked from the last tile to the
// first, so that the masked tiles of a causal mask come first.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_TILE_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_TILE_CUH_

#include <cstdint>

#include "attention/device/hopper/mbarrier.cuh"
#include "attention/device/hopper/tma.cuh"
#include "attention/warp_specialized/hopper_call.h"
#include "attention/warp_specialized/hopper_work.cuh"

namespace attnlab::warp_specialized {

template <typename Shape>
struct HopperShared {
  char q[Shape::kQStages][Shape::kQBytes];
  char k[Shape::kStages][Shape::kKBytes];
  char v[Shape::kStages][Shape::kVBytes];
  Work work[Shape::kWorks];
  device::Ring<Shape::kWorks> work_ring;
  device::Ring<Shape::kQStages> q_ring;
  device::Ring<Shape::kStages> k_ring, v_ring;
  device::Barrier work_wanted;

  // One thread calls this. Each warp of consumers releases a stage once.
  __device__ void Init() {
    constexpr uint32_t kWarps = 4 * Shape::kConsumers;
    work_ring.Init(kWarps + 1);  // and the producer
    q_ring.Init(kWarps);
    k_ring.Init(kWarps);
    v_ring.Init(kWarps);
    work_wanted.Init(1);
    cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
  }
};

// One thread calls this. K of a tile comes before V of the tile before, as consumers need them, and so
// it is from one query tile to the next if consumers go across.
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
    if (owes_v && (!Shape::kGoesAcross || i == Work::kNoMore)) load_v();
    if (i == Work::kNoMore) return;
    shared.q_ring.WaitEmpty(q_at);
    device::LoadTile<Shape::kBlocks>(h.q, q, shared.q[q_at.stage], Shape::kRows,
                                     shared.q_ring.FillWith(q_at, Shape::kQBytes));
    q_at.Advance();
    const int last_but_one = min(i, 2);
    for (kv.token += i * Shape::kKeys; i > 0; --i) {
      if (i == last_but_one) shared.work_wanted.Arrive();
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

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_TILE_CUH_
