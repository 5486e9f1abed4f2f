// The Hopper kernel: what the warps of a block share, and the producer.
//
// A block has one warpgroup of producers and two or three of consumers. It walks query tiles until
// there are no more. Each consumer has 64 rows of the query tile.
//
//   producers   warp 0   Produce()    copies Q and K of each tile to shared memory (TMA)
//               warp 1   Produce()    copies V
//               warp 2   Schedule()   works out which tiles these are (hopper_work.cuh)
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
    work_ring.Init(kWarps + 2);  // and the two warps of Produce()
    q_ring.Init(kWarps);
    k_ring.Init(kWarps);
    v_ring.Init(kWarps);
    work_wanted.Init(1);
    cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
  }
};

// One warp, which copies V, or K and before it Q.
//
// A tile of keys is copied in boxes of h.box_keys rows: one box or, if K and V are paged, so many that
// each lies in one page. Only where a box begins depends on pages. Each lane works that out for a box of
// its own, and reads the table's entry one tile ahead. The copies themselves take operands that all lanes
// have, so the warp starts them box by box.
template <bool kOfV, typename Shape>
__device__ void Produce(const HopperArguments& h, HopperShared<Shape>& shared) {
  constexpr int kKeys = Shape::kKeys;
  constexpr int kBlocks = kOfV ? Shape::kBlocksV : Shape::kBlocks;
  const device::Pages& pages = h.a.pages;
  auto& ring = kOfV ? shared.v_ring : shared.k_ring;
  typename device::Ring<Shape::kWorks>::Place work_at;
  typename device::Ring<Shape::kQStages>::Place q_at;
  typename device::Ring<Shape::kStages>::Place at;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool first = lane == 0;
  const int row = lane * h.box_keys;  // the lane's box begins there in a tile of keys
  for (;; work_at.Advance()) {
    shared.work_ring.WaitFull(work_at);
    const Work& work = shared.work[work_at.stage];
    const int tiles = work.tiles;
    if (tiles == Work::kNoMore) return;
    // For the lane's box of a tile. Entries of keys that do not exist are not read. Of tile -1 none does.
    const auto entry_of = [&](int tile) {
      const int key = tile * kKeys + row;
      if (row >= kKeys || static_cast<uint32_t>(key) >= static_cast<uint32_t>(work.keys)) return 0;
      return pages.EntryOf(work.kv.batch, work.kv.token + key);
    };
    int entry = entry_of(tiles - 1);
    if constexpr (!kOfV) {
      shared.q_ring.WaitEmpty(q_at);
      uint64_t* const full = shared.q_ring.FillWith(q_at, Shape::kQBytes, first);
      if (device::ElectLane()) {
        device::LoadTile<kBlocks>(h.q, work.q, shared.q[q_at.stage], Shape::kRows, full);
      }
      q_at.Advance();
    }
    for (int i = tiles - 1; i >= 0; --i) {
      if (!kOfV && first && i == min(tiles, 2) - 1) shared.work_wanted.Arrive();
      // A box without keys begins behind the last row of its page: TMA reads nothing and writes zeros.
      const int key = i * kKeys + row;
      const device::TileOrigin from = {
          key < work.keys ? pages.RowOf(work.kv.token + key) : pages.Rows(), work.kv.head,
          pages.PageOf(entry)};
      entry = entry_of(i - 1);
      ring.WaitEmpty(at);
      uint64_t* const full = ring.FillWith(at, kBlocks * kKeys * 128, first);
      char* const to = kOfV ? shared.v[at.stage] : shared.k[at.stage];
      for (int box = 0; box * h.box_keys < kKeys; ++box) {
        const device::TileOrigin box_from = {__shfl_sync(0xFFFFFFFF, from.token, box), from.head,
                                             __shfl_sync(0xFFFFFFFF, from.batch, box)};
        if (device::ElectLane()) {
          device::LoadTile<kBlocks>(kOfV ? h.v : h.k, box_from, to + box * h.box_keys * 128, kKeys,
                                    full);
        }
      }
      at.Advance();
    }
    // Not earlier: `work` takes no registers meanwhile. Consumers still need it.
    __syncwarp();
    if (first) shared.work_ring.Release(work_at);
  }
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_TILE_CUH_
