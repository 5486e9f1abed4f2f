// The Hopper kernel: what the warps of a block share, and the producer.
//
// A block has one warpgroup of producers and two or three of consumers. It walks query tiles until
// there are no more. Each consumer has 64 rows of the query tile.
//
//   producers   warp 0   Produce()    copies Q, K and V of each tile to shared memory (TMA), and O if it is added to
//               warp 1   Produce()    copies every other box of K and V, if the block has several (pages)
//               warp 2   Schedule()   works out which tiles these are (hopper_work.cuh)
//   of fp8      warps 1, 3  Transpose()  V (hopper_transpose.cuh), unless a kernel before has (hopper_pretranspose.cu)
//   consumers            Consume()    S = Q Kᵀ, softmax, O += P V (wgmma), stores O
//                                     (hopper_consumer.cuh)
//
// They meet at rings of stages (device/hopper/mbarrier.cuh). Keys are walked from the last tile to the
// first, so that the masked tiles of a causal mask come first.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_TILE_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_TILE_CUH_

#include <cstdint>
#include <type_traits>

#include "attention/device/early_start.cuh"
#include "attention/device/hopper/mbarrier.cuh"
#include "attention/device/hopper/tma.cuh"
#include "attention/warp_specialized/hopper_call.h"
#include "attention/warp_specialized/hopper_scales.cuh"
#include "attention/warp_specialized/hopper_work.cuh"

namespace attnlab::warp_specialized {

// V as it was copied, where it has to be transposed: a block of columns per stage.
template <typename Shape, bool = Shape::kTransposes>
struct CopiedV {};
template <typename Shape>
struct CopiedV<Shape, true> {
  char copied_v[Shape::kCopiedStages][Shape::kCopiedVBytes];
};
template <typename Shape>
struct HopperTiles : CopiedV<Shape> {
  char q[Shape::kQStages][Shape::kQBytes];
  char k[Shape::kStages][Shape::kKBytes];
  char v[Shape::kStagesV][Shape::kVBytes];
  Work work[Shape::kWorks];
};

// One base after the other: a second base of a class lies at an offset, and nvcc then loses sight of it being
// in shared memory.
template <typename Shape, bool = Shape::kFp8>
struct HopperScales : HopperTiles<Shape> {};
template <typename Shape>
struct HopperScales<Shape, true> : HopperTiles<Shape> {
  TileScales<Shape> scales[Shape::kScales];
};
template <typename Shape, bool = Shape::kTransposes>
struct CopiedVRing : HopperScales<Shape> {};
template <typename Shape>
struct CopiedVRing<Shape, true> : HopperScales<Shape> {
  device::Ring<Shape::kCopiedStages> copied_v_ring;
};

// In a pair, which query tiles the first block takes for both.
template <typename Shape, bool = (Shape::kCluster > 1)>
struct HopperNext : CopiedVRing<Shape> {};
template <typename Shape>
struct HopperNext<Shape, true> : CopiedVRing<Shape> {
  device::Barrier next_sent, next_read;
  float2 next;
};

template <typename Shape>
struct HopperShared : HopperNext<Shape> {
  device::Ring<Shape::kWorks> work_ring;
  device::Ring<Shape::kQStages> q_ring;
  device::Ring<Shape::kStages> k_ring;
  device::Ring<Shape::kStagesV> v_ring;
  device::Barrier work_wanted;

  // One thread calls this. Each warp of consumers releases a stage once; work is for the warps that copy
  // and transpose, too.
  __device__ void Init(int producers) {
    constexpr uint32_t kWarps = 4 * Shape::kConsumers;
    work_ring.Init(kWarps + producers + Shape::kTransposers);
    q_ring.Init(kWarps);
    k_ring.Init(kWarps * Shape::kCluster);
    if constexpr (Shape::kTransposes) {
      this->copied_v_ring.Init(Shape::kTransposers * Shape::kCluster);
      v_ring.Init(kWarps, /*fills=*/Shape::kTransposers);
    } else {
      v_ring.Init(kWarps * Shape::kCluster);
    }
    work_wanted.Init(1);
    if constexpr (Shape::kCluster > 1) this->next_sent.Init(1), this->next_read.Init(1);
    cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
  }
};

// How many warps copy. If a block has one box of a tile, there is nothing to share; of fp8, the other warp
// may have other work.
template <typename Shape>
__device__ int Producers(const HopperArguments& h) {
  return h.box_keys * Shape::kCluster < Shape::kKeys && !Shape::kFp8 ? 2 : 1;
}

// Where V is copied to.
template <typename Shape>
__device__ auto& VRing(HopperShared<Shape>& shared) {
  if constexpr (Shape::kTransposes) {
    return shared.copied_v_ring;
  } else {
    return shared.v_ring;
  }
}
template <typename Shape>
__device__ char* VPlace(HopperShared<Shape>& shared, int stage) {
  if constexpr (Shape::kTransposes) {
    return shared.copied_v[stage];
  } else {
    return shared.v[stage];
  }
}

// Where O of other keys is copied to (HopperShape::kOBytes).
template <typename Shape>
__device__ char* EarlierPlace(HopperShared<Shape>& shared, int stage) {
  return Shape::kGoesAcross ? shared.v[stage] : shared.q[stage];
}

// The place of a tile's scales. There is one more than stages of K, so it holds them until K of the next
// tile is released.
template <typename Shape>
__device__ decltype(auto) ScalesAt(HopperShared<Shape>& shared, int place) {
  if constexpr (Shape::kFp8) {
    return (shared.scales[place]);
  } else {
    return TileScales<Shape>();
  }
}
template <typename Shape>
__device__ int NextScales(int place) {
  return place + 1 == Shape::kScales ? 0 : place + 1;
}

// One warp. K of a tile comes before V of the tile before, as consumers need them, and so it is from one
// query tile to the next if consumers go across. V that the block has to transpose comes right after K.
//
// A tile of keys is copied in boxes of h.box_keys rows, each by a lane of its own: one box, two in a pair, or, if
// K and V are paged, so many that each lies in one page. Only where a box begins depends on pages. A lane reads
// the table's entry for its box one tile ahead, and of fp8 its scale.
//
// A copy takes a warp about 100 cycles, so for many boxes there is a second warp, `producer` 1, which
// has every other one. Producer 0 alone says how many bytes are to come. No stage is full before that. In a
// pair, each block copies every other box to both.
template <typename Shape>
__device__ void Produce(const HopperArguments& h, HopperShared<Shape>& shared, int producer) {
  constexpr int kKeys = Shape::kKeys, kColumns = Shape::kBlockColumns, kCluster = Shape::kCluster;
  const device::Pages& pages = h.a.pages;
  typename device::Ring<Shape::kWorks>::Place work_at;
  typename device::Ring<Shape::kQStages>::Place q_at;
  typename device::Ring<Shape::kStages>::Place k_at;
  typename std::remove_reference_t<decltype(VRing(shared))>::Place v_at;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool first = lane == 0 && producer == 0;
  // The lane's box, and where it begins in a tile of keys.
  const int box = (lane * Producers<Shape>(h) + producer) * kCluster + BlockOfPair<Shape>();
  const int row = box * h.box_keys;
  const bool copies = row < kKeys;
  bool owes_v = false, owes_o = false;
  int scales_at = 0;
  device::TileOrigin v_from, o_from;
  // O of other keys, after the last V. Producer 1 must not wait for its stage, which goes on without it.
  const auto load_o = [&](auto& ring, auto& at) {
    if (producer == 0) {
      device::WaitForKernelAhead();
      ring.WaitEmpty(at);
      uint64_t* const full = ring.FillWith(at, Shape::kOBytes, first);
      if (first) {
        device::LoadTile<Shape::kBlocksV, kColumns>(h.o, o_from, EarlierPlace(shared, at.stage),
                                                    Shape::kRows, full);
      }
    }
    at.Advance();
  };
  const auto load_v = [&] {
    constexpr int kBlocks = Shape::kCopiedBlocksV;
#pragma unroll
    for (int block = 0; block < Shape::kBlocksV; block += kBlocks) {
      VRing(shared).WaitEmpty(v_at);
      uint64_t* const full = VRing(shared).FillWith(v_at, Shape::kCopiedVBytes, first);
      char* const to = VPlace(shared, v_at.stage);
      if constexpr (Shape::kPretransposed) {
        // One box, a row per column. In a pair, each block copies half of them to both.
        if (lane == 0) {
          device::WaitForKernelAhead();
          device::LoadTile<1, kColumns, kCluster>(h.v, v_from, to + v_from.token * 128, kKeys,
                                                  full);
        }
      } else if (copies) {
        device::LoadTile<kBlocks, kColumns, kCluster>(h.v, v_from, to + row * 128, kKeys, full,
                                                      block * kColumns);
      }
      v_at.Advance();
    }
    owes_v = false;
    if (!owes_o) return;
    owes_o = false;
    if constexpr (Shape::kAdds && Shape::kGoesAcross) {
      load_o(shared.v_ring, v_at);
    } else if constexpr (Shape::kAdds) {
      load_o(shared.q_ring, q_at);
    }
  };
  for (;; work_at.Advance()) {
    shared.work_ring.WaitFull(work_at);
    const Work& work = shared.work[work_at.stage];
    int i = work.tiles;
    if (owes_v && (!Shape::kGoesAcross || i == Work::kNoMore)) load_v();
    if (i == Work::kNoMore) return;
    // For the lane's box of a tile. Entries of keys that do not exist are not read. Of tile -1 none does.
    const auto entry_of = [&](int tile) {
      const int key = tile * kKeys + row;
      if (!copies || static_cast<uint32_t>(key) >= static_cast<uint32_t>(work.keys)) return 0;
      return pages.EntryOf(work.kv.batch, work.kv.token + key);
    };
    const auto scale_of = [&](int tile) -> float {
      if constexpr (Shape::kFp8) return TileScales<Shape>::Load(h, work, tile, lane);
      return 1;
    };
    int entry = entry_of(i - 1);
    float scale = scale_of(i - 1);
    // Producer 1 must not wait for Q's place: Q goes on without it (Ring).
    if (producer == 0) {
      shared.q_ring.WaitEmpty(q_at);
      uint64_t* const q_full = shared.q_ring.FillWith(q_at, Shape::kQBytes, first);
      if (first) {
        device::LoadTile<Shape::kBlocks, kColumns>(h.q, work.q, shared.q[q_at.stage], Shape::kRows,
                                                   q_full);
      }
      q_at.Advance();
    }
    const int last_but_one = min(i, 2);
    while (i > 0) {
      if (i == last_but_one && first) shared.work_wanted.Arrive();
      --i;
      // A box without keys begins behind the last row of its page, or outside the tensor: TMA reads nothing and
      // writes zeros.
      const int key = i * kKeys + row;
      const device::TileOrigin from = {
          key < work.keys ? pages.RowOf(work.kv.token + key) : pages.Rows(), work.kv.head,
          pages.PageOf(entry)};
      entry = entry_of(i - 1);
      shared.k_ring.WaitEmpty(k_at);
      if constexpr (Shape::kFp8) {
        ScalesAt(shared, scales_at).Set(lane, scale);
        scales_at = NextScales<Shape>(scales_at);
        scale = scale_of(i - 1);
        __syncwarp();
      }
      uint64_t* const full = shared.k_ring.FillWith(k_at, Shape::kKBytes, first);
      char* const to = shared.k[k_at.stage] + row * 128;
      if (copies) device::LoadTile<Shape::kBlocks, kColumns, kCluster>(h.k, from, to, kKeys, full);
      k_at.Advance();
      if (owes_v) load_v();
      v_from = from;
      if constexpr (Shape::kPretransposed) {
        v_from = {BlockOfPair<Shape>() * (Shape::kDimV / kCluster),
                  work.kv.head * h.key_tiles + work.kv.token / kKeys + i, work.kv.batch};
      }
      owes_v = true;
      if constexpr (Shape::kTransposes) load_v();
    }
    if (Shape::kAdds && h.adds && !work.Leaves()) owes_o = true, o_from = work.q;
    // Not earlier: `work` takes no registers meanwhile. Consumers still need it.
    __syncwarp();
    if (lane == 0) shared.work_ring.Release(work_at);
  }
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_TILE_CUH_
