// A warpgroup of consumers of the Hopper kernel.
//
// S of a tile and P V of the tile before are computed together, and the softmax runs beside P V. The
// last P V of a query tile runs beside the first S of the next one.
//
//   tensor cores   | S 0 |      | S 1 | P V 0 |      | S 2 | P V 1 |
//   CUDA cores            soft 0         soft 1               soft 2
//
// Consumers take turns to start their products: one's softmax leaves the tensor cores to the others.
// All take as many turns, release each stage, and come to each barrier, also for what they leave out.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_CONSUMER_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_CONSUMER_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "attention/device/convert.cuh"
#include "attention/device/early_start.cuh"
#include "attention/device/fragments.cuh"
#include "attention/device/hopper/mbarrier.cuh"
#include "attention/device/hopper/warpgroup.cuh"
#include "attention/device/hopper/wgmma.cuh"
#include "attention/device/mma.cuh"
#include "attention/device/thread_index.cuh"
#include "attention/warp_specialized/hopper_call.h"
#include "attention/warp_specialized/hopper_output.cuh"
#include "attention/warp_specialized/hopper_scales.cuh"
#include "attention/warp_specialized/hopper_softmax.cuh"
#include "attention/warp_specialized/hopper_sum.cuh"
#include "attention/warp_specialized/hopper_tile.cuh"
#include "attention/warp_specialized/hopper_work.cuh"

namespace attnlab::warp_specialized {

namespace wgmma = device::wgmma;

// kCaps: whether there may be a softcap, which takes registers.
template <typename T, typename Shape, bool kCaps>
class Consumer {
 public:
  __device__ Consumer(const HopperArguments& h, HopperShared<Shape>& shared)
      : h_(h), shared_(shared), softmax_(h) {}

  __device__ void Consume() {
    if (group_ == Shape::kConsumers - 1) PassTurn();  // the first group begins
    bool others_begun = false, begun = false;
    while (WaitForWork()) {
      const Work& work = TheWork();
      if (HasRows(work)) {
        if (!begun) First(work);
        for (int i = work.tiles - 2 - SkipsTile(work); i >= 0;) {
          i = Steps(work, i);
          if constexpr (Shape::kFp8) {
            if (summed_ == kMostSummed) SetAside();
          }
        }
        begun = Last(work);
      } else {
        LeaveOut(work, others_begun);
        begun = false;
      }
      others_begun = Shape::kGoesAcross;
    }
    FinishStore();
    if (group_ == 0) WaitForTurn();  // the last group has passed it once more than it was taken
  }

 private:
  static constexpr int kKeys = Shape::kKeys;
  static constexpr int kSteps = Shape::kDim * Shape::kBytes / 32;  // of a product that sums over d
  static constexpr int kMostSummed = 2048 / kKeys;                 // tiles
  static constexpr bool kAsideInRegisters = Shape::kFp8 && Shape::kAsideBytes == 0;
  static constexpr int kOfRow = Shape::kDimV / 4;  // numbers of O that a lane has of a row
  static constexpr int kPairs = kOfRow / 2;        // that are neighbours
  static constexpr int kNobody = -1;
  using Softmax = HopperSoftmax<Shape, kCaps>;
  using Rows = typename Softmax::Rows;
  using LaneRows = typename Softmax::LaneRows;
  using Scores = typename Softmax::Scores;

  // The tile that is walked first has no P V beside it.
  __device__ void First(const Work& work) {
    Scores s;
    softmax_.LoadRowScales(work);
    TakeQ();
    if (SkipsTile(work)) SkipK();
    shared_.k_ring.WaitFull(k_at_);
    WaitForTurn();
    StartScores(s);
    PassTurn();
    FinishStore();
    wgmma::Wait<0>();
    wgmma::Keep(s.x);
    Begin(work, s);
  }

  // After the scores of the first tile.
  __device__ void Begin(const Work& work, Scores& s) {
    const bool skips = SkipsTile(work);
    const int i = work.tiles - 1 - skips;
    const TileScales<Shape>& scales = ScalesAt(shared_, scales_at_);
    ReleaseK();
    if (i == 0) ReleaseQAfterScores();
    softmax_.Begin(work, group_);
    sum_.Clear();
    if constexpr (Shape::kFp8) summed_ = 0, aside_[0] = aside_[1] = 0, is_aside_ = false;
    // Each consumer needs a stage of V, which takes two tiles. A box of rows that do not exist would overwrite those of
    // another sequence. Parts of O are added in registers.
    if constexpr (Shape::kStoresByTma) {
      stores_by_tma_ =
          device::Uniform(work.tiles > 1 && work.rows == Shape::kRows && !work.IsPart());
    }
    LaneRows factors;
    softmax_.Weigh(
        s, work, i, scales, factors, [] {}, [&] { sum_.Round(s); });
    ClearV(work, /*waits=*/true);
    SkipV(skips);
  }

  // Tile i of keys, and maybe some after it. Returns the next one.
  __device__ int Steps(const Work& work, int i) {
    if constexpr (Softmax::kSpeculates) {
      const int plain = softmax_.PlainTiles(i);
      if (plain > 0) return PlainSteps(work, i, plain);
    }
    Step(work, i);
    return i - 1;
  }

  // A tile whose maxima are looked for.
  __device__ void Step(const Work& work, int i) {
    Scores s;
    shared_.k_ring.WaitFull(k_at_);
    Start(s);
    const TileScales<Shape>& scales = ScalesAt(shared_, scales_at_);
    wgmma::Wait<1>();
    wgmma::Keep(s.x);
    ReleaseK();
    if (i == 0) ReleaseQAfterScores();
    LaneRows factors;
    const bool rescale = softmax_.Weigh(
        s, work, i, scales, factors, [&] { AwaitSum(i == 0 ? 0 : kNobody); },
        [&] { sum_.Round(s); });
    if (rescale) Rescale(factors);
    if constexpr (Shape::kFp8) ++summed_;
  }

  // Up to `steps` steps of plain tiles, from tile i on. Returns the next one. What is rare stands behind the loop, as each
  // branch around it would cost 12 cycles of 1900, and ptxas would not move instructions across.
  __device__ int PlainSteps(const Work& work, int i, int steps) {
    if constexpr (Shape::kFp8) steps = min(steps, kMostSummed - summed_), summed_ += steps;
    Scores s;
    LaneRows sums, tops;
    bool fits;
    shared_.k_ring.WaitFull(k_at_);
    for (;;) {
      Start(s);
      const TileScales<Shape>& scales = ScalesAt(shared_, scales_at_);
      const auto exponents = softmax_.ExponentsOf(scales);
      wgmma::Wait<1>();
      wgmma::Keep(s.x);
      fits = softmax_.WeighPlain(
          s, exponents, scales, sums, tops, [&] { AwaitSum(); }, [&] { sum_.Round(s); });
      auto next = k_at_;
      next.Advance();
      // ptxas puts this before the vote of WeighPlain().
      const bool full = shared_.k_ring.IsFull(next);
      if (!fits) break;
      softmax_.Add(sums);
      ReleaseK();
      --i;
      if (--steps == 0) break;
      if (!full) shared_.k_ring.WaitFull(k_at_);
    }
    if (!fits) {
      LaneRows factors;
      softmax_.MakeSmaller(s, work, i, ScalesAt(shared_, scales_at_), sums, tops, factors,
                           [&](Scores& again, const auto&... of) { ScoresAgain(again, of...); });
      sum_.Round(s);
      Rescale(factors);
      ReleaseK();
      --i, --steps;
    }
    if (i < 0) ReleaseQAfterScores();
    if constexpr (Shape::kFp8) summed_ -= steps;
    return i;
  }

  // S of a tile, and P V of the tile before. K is there already.
  __device__ void Start(Scores& s) {
    WaitForTurn();
    StartScores(s);
    shared_.v_ring.WaitFull(v_at_);
    sum_.Start(VAddress());
    PassTurn();
  }
  // `keeper`: which consumer keeps this stage of V if it stores O by TMA (StoreTiles()).
  __device__ void AwaitSum(int keeper = kNobody) {
    wgmma::Wait<0>();
    wgmma::Keep(sum_.o().x);
    if constexpr (Shape::kStoresByTma) {
      if (ActsForWarp() & !(stores_by_tma_ & (group_ == keeper))) shared_.v_ring.Release(v_at_);
      v_at_.Advance();
    } else {
      ReleaseV();
    }
  }
  // Says that this consumer has read that stage, too.
  __device__ void TellKeeper(int keeper) {
    if constexpr (Shape::kStoresByTma) {
      if (stores_by_tma_ && group_ != keeper) device::NamedArrive(kRead + keeper, 256);
    }
  }
  __device__ void Rescale(const LaneRows& factors) {
    Rows::Multiply(sum_.o(), factors);
    if constexpr (Shape::kFp8) aside_[0] *= factors[0], aside_[1] *= factors[1];
  }

  // The last P V, beside S of the next query tile if there is one. Returns whether there was.
  __device__ bool Last(const Work& work) {
    LaneRows earlier;
    LoadEarlierLse(work, earlier);
    if constexpr (Shape::kGoesAcross) {
      if (BeginsNext(work)) {
        const Work& next = NextWork();
        Scores s;
        softmax_.LoadRowScales(next);
        TakeQ();
        if (SkipsTile(next)) SkipK();
        shared_.k_ring.WaitFull(k_at_);
        WaitForTurn();
        shared_.v_ring.WaitFull(v_at_);
        sum_.Start(VAddress());
        StartScores(s);
        PassTurn();
        wgmma::Wait<1>();
        wgmma::Keep(sum_.o().x);
        ReleaseV();
        Finish();
        Store(work, earlier);
        ReleaseWork();
        wgmma::Wait<0>();
        wgmma::Keep(s.x);
        Begin(next, s);
        return true;
      }
    }
    TellKeeper(0);
    WaitForTurn();
    shared_.v_ring.WaitFull(v_at_);
    sum_.Start(VAddress());
    PassTurn();
    AwaitSum(1);
    TellKeeper(1);
    Finish();
    if (work.Takes()) TakePart(work.takes);
    if (work.Leaves()) {
      LeavePart(work.leaves);
    } else {
      Store(work, earlier);
    }
    ReleaseWork();
    return false;
  }

  // The next query tile. Returns whether there is one.
  __device__ bool WaitForWork() {
    shared_.work_ring.WaitFull(work_at_);
    return TheWork().tiles != Work::kNoMore;
  }
  __device__ const Work& TheWork() const { return shared_.work[work_at_.stage]; }
  __device__ const Work& NextWork() {
    auto at = work_at_;
    at.Advance();
    shared_.work_ring.WaitFull(at);
    return shared_.work[at.stage];
  }
  __device__ void ReleaseWork() {
    __syncwarp();
    if (ActsForWarp()) shared_.work_ring.Release(work_at_);
    work_at_.Advance();
  }

  // Short sequences and the ends of long ones leave consumers without rows.
  __device__ bool HasRows(const Work& work) const { return group_ * 64 < work.rows; }

  // For a query tile of which this consumer has no rows. Others take a turn for each tile of keys, and
  // one more to begin unless they have. In the last turn they begin the next query tile. If this
  // consumer has rows of that, it takes this turn in First().
  __device__ void LeaveOut(const Work& work, bool others_begun) {
    FinishStore();
    shared_.q_ring.WaitFull(q_at_);
    __syncwarp();
    ReleaseQ();
    if (!others_begun || work.follows_part) LeaveOutTurn();
    for (int i = work.tiles - 1; i >= 0; --i) {
      SkipK();
      // Without rows in the whole block, nobody would wait for the others' arrivals.
      if (i == work.tiles - 1 && work.rows > 0) ClearV(work, /*waits=*/false);
      shared_.v_ring.WaitFull(v_at_);
      __syncwarp();
      ReleaseV();
      if (i > 0 || !BeginsNext(work)) LeaveOutTurn();
    }
    if constexpr (Shape::kAdds) {
      if (h_.adds && !work.Leaves()) {
        WaitForEarlier();
        ReleaseEarlier();
      }
    }
    ReleaseWork();
  }
  // Not before the last tile of keys: only then is the next query tile worked out. To leave or take a part, there
  // are too few registers beside the next tile's products.
  __device__ bool BeginsNext(const Work& work) {
    if constexpr (!Shape::kGoesAcross) return false;
    const bool is_part = work.IsPart();
    const Work& next = NextWork();
    const bool exists = next.tiles != Work::kNoMore, has_rows = HasRows(next);
    return !is_part & exists & has_rows;  // one branch: each read of `work` or `next` takes a while
  }

  // Whether this consumer's rows see nothing of the tile that is walked first, as may be under a causal
  // mask. It then leaves that tile out.
  __device__ bool SkipsTile(const Work& work) const {
    if constexpr (Shape::kRows * Shape::kCluster - 64 < kKeys) return false;
    const int last = static_cast<int>(h_.pack.Divide(group_ * 64 + 63));
    return work.tiles > 1 && work.sees_end + last <= (work.tiles - 1) * kKeys;
  }
  __device__ void SkipK() {
    shared_.k_ring.WaitFull(k_at_);
    __syncwarp();
    ReleaseK();
  }
  // Without a branch around Advance(), or ptxas takes the warp for divergent from there on.
  __device__ void SkipV(bool skips) {
    if (skips) {
      LeaveOutTurn();
      shared_.v_ring.WaitFull(v_at_);
      __syncwarp();
      ReleaseStageOfV();
    }
    auto next = v_at_;
    next.Advance();
    v_at_.stage = skips ? next.stage : v_at_.stage;
    v_at_.parity = skips ? next.parity : v_at_.parity;
  }

  // Waits for Q. Where it is kept in registers, reads it and releases its place.
  __device__ void TakeQ() {
    shared_.q_ring.WaitFull(q_at_);
    if constexpr (Shape::kKeepsQ) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) LoadQ(q_[i], i);
      __syncwarp();
      ReleaseQ();
    }
  }
  // Step i of the warp's 16 rows, as an A fragment.
  __device__ void LoadQ(uint32_t (&q)[4], int i) const {
    const int row = static_cast<int>(threadIdx.x) / 32 * 16 + Lane() % 16;
    device::LoadMatrices(
        q, Chunk(device::SharedAddress(shared_.q[q_at_.stage]), Shape::kRows, row, i, Lane() / 16));
  }
  // The address of bytes 32 i + 16 half to 32 i + 16 half + 15 of a row, in a tile of so many rows: blocks
  // of 128 bytes in the 128-byte swizzle.
  static __device__ uint32_t Chunk(uint32_t tile, int rows, int row, int i, int half) {
    return tile + i / 4 * rows * 128 + row * 128 + ((i % 4 * 2 + half) ^ row % 8) * 16;
  }
  __device__ void ReleaseQ() {
    if (ActsForWarp()) shared_.q_ring.Release(q_at_);
    q_at_.Advance();
  }

  __device__ void StartScores(Scores& s) {
    const wgmma::SumAlongRows k(device::SharedAddress(shared_.k[k_at_.stage]), kKeys);
    if constexpr (Shape::kKeepsQ) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) wgmma::Keep(q_[i]);
      wgmma::Fence();
#pragma unroll
      for (int i = 0; i < kSteps; ++i) wgmma::MultiplyRows<T>(s, q_[i], k.Step(i), i > 0);
    } else {
      const wgmma::SumAlongRows q(device::SharedAddress(shared_.q[q_at_.stage]) + group_ * 64 * 128,
                                  Shape::kRows);
      wgmma::Fence();
#pragma unroll
      for (int i = 0; i < kSteps; ++i) wgmma::MultiplyRows<T>(s, q.Step(i), k.Step(i), i > 0);
    }
    wgmma::Commit();
  }

  // The scores of StartScores() once more, bit for bit (wgmma_test), by mma.sync. A warp can do that
  // alone, and needs it rarely.
  __device__ void ScoresAgain(Scores& s) const {
    const uint32_t k = device::SharedAddress(shared_.k[k_at_.stage]);
#pragma unroll
    for (float& x : s.x) x = 0;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      device::AFragment q;
      if constexpr (Shape::kKeepsQ) {
#pragma unroll
        for (int j = 0; j < 4; ++j) q.x[j] = q_[i][j];
      } else {
        LoadQ(q.x, i);
      }
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        const int key = 16 * n + Lane() / 16 * 8 + Lane() % 8;
        uint32_t b[4];
        device::LoadMatrices(b, Chunk(k, kKeys, key, i, Lane() / 8 % 2));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float* const x = s.x + 8 * n + 4 * half;
          device::AccumulatorFragment d = {{x[0], x[1], x[2], x[3]}};
          device::Mma<T>(d, q, {{b[2 * half], b[2 * half + 1]}});
#pragma unroll
          for (int j = 0; j < 4; ++j) x[j] = d.x[j];
        }
      }
    }
    __syncwarp();  // all lanes have read K and Q, before one releases them
  }

  // Of fp8, those of some of the lane's rows. mma.sync would make other bits too, so CUDA cores do it, with few
  // registers.
  __device__ void ScoresAgain(Scores& s, const bool (&far)[2]) const {
    const uint32_t q_tile = device::SharedAddress(shared_.q[q_at_.stage]),
                   k_tile = device::SharedAddress(shared_.k[k_at_.stage]);
    float scores[2][kKeys / 4];
#pragma unroll 1
    for (int j = 0; j < kKeys / 4; ++j) {
      float sums[2] = {0, 0};
#pragma unroll 1
      for (int word = 0; word < Shape::kDim / 4; ++word) {
        const auto load = [&](uint32_t tile, int rows, int row) {
          return device::UnpackFp8(
              device::LoadShared(Chunk(tile, rows, row, word / 8, word / 4 % 2) + word % 4 * 4));
        };
        const float4 k = load(k_tile, kKeys, j / 2 * 8 + Rows::Pair() * 2 + j % 2);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float4 q = load(q_tile, Shape::kRows, Rows::Row(r));
          sums[r] = fmaf(q.x, k.x, sums[r]), sums[r] = fmaf(q.y, k.y, sums[r]);
          sums[r] = fmaf(q.z, k.z, sums[r]), sums[r] = fmaf(q.w, k.w, sums[r]);
        }
      }
      scores[0][j] = sums[0], scores[1][j] = sums[1];
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!far[r]) continue;
#pragma unroll
      for (int j = 0; j < kKeys / 4; ++j) s.At(r, j) = scores[r][j];
    }
    __syncwarp();
  }

  // Rows of V beyond the sequence may be NaN, and 0 · NaN is NaN. All consumers clear those of the
  // last tile of keys. One that leaves the query tile out does not wait for the others. Of fp8 that is
  // done already (hopper_transpose.cuh).
  __device__ void ClearV(const Work& work, bool waits) {
    if constexpr (Shape::kFp8) return;
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
    if (waits) {
      device::NamedSync(kAllConsumers, kThreads);
    } else {
      device::NamedArrive(kAllConsumers, kThreads);
    }
  }

  __device__ void WaitForTurn() {
    if constexpr (Shape::kTakesTurns) device::NamedSync(kTurns + group_, 256);
  }
  __device__ void PassTurn() {
    const int next = group_ + 1 == Shape::kConsumers ? 0 : group_ + 1;
    if constexpr (Shape::kTakesTurns) device::NamedArrive(kTurns + next, 256);
  }
  __device__ void LeaveOutTurn() {
    WaitForTurn();
    PassTurn();
  }

  // After the scores of a tile.
  __device__ void ReleaseK() {
    if constexpr (Shape::kFp8) {
      __syncwarp();  // all lanes have read the scales of the tile before
      scales_at_ = NextScales<Shape>(scales_at_);
    }
    Release(shared_.k_ring, k_at_);
    k_at_.Advance();
  }
  // After those of tile 0, the last one.
  __device__ void ReleaseQAfterScores() {
    if constexpr (!Shape::kKeepsQ) ReleaseQ();
  }
  // In all blocks of the cluster: each copies to all.
  template <class Ring, class At>
  __device__ void Release(Ring& ring, const At& at) {
    if constexpr (Shape::kCluster > 1) {
      if (Lane() < Shape::kCluster) ring.ReleaseIn(Lane(), at);
    } else {
      if (ActsForWarp()) ring.Release(at);
    }
  }
  __device__ uint32_t VAddress() const { return device::SharedAddress(shared_.v[v_at_.stage]); }
  // If the block transposes V, its own warps have filled it.
  __device__ void ReleaseStageOfV() {
    if constexpr (Shape::kTransposes) {
      if (ActsForWarp()) shared_.v_ring.Release(v_at_);
    } else {
      Release(shared_.v_ring, v_at_);
    }
  }
  __device__ void ReleaseV() {
    ReleaseStageOfV();
    v_at_.Advance();
  }

  // Sums of fp8 keep about 14 bits, so they must not be long. After kMostSummed tiles, O is set aside as bf16, with
  // what was there, and a new sum begins: in registers, if there are enough.
  __device__ void SetAside() {
    AddAside();
#pragma unroll
    for (int c = 0; c < Shape::kDimV / 16; ++c) {
      uint32_t words[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const int r = (4 * c + w) / kPairs, i = (4 * c + w) % kPairs;
        words[w] =
            device::PackPair<__nv_bfloat16>(sum_.o().At(r, 2 * i), sum_.o().At(r, 2 * i + 1));
        if constexpr (kAsideInRegisters) aside_o_[r][i] = words[w];
      }
      if constexpr (!kAsideInRegisters) {
        AsidePlace()[c * 128] = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
    aside_[0] = aside_[1] = 1;
    is_aside_ = true;
    summed_ = 0;
    sum_.Clear();
  }
  __device__ void AddAside() {
    if (!is_aside_) return;
    constexpr int kAhead = 4;  // so many loads start together
#pragma unroll
    for (int first = 0; first < Shape::kDimV / 16; first += kAhead) {
      uint4 chunks[kAhead];
#pragma unroll
      for (int c = 0; c < kAhead; ++c) {
        if constexpr (!kAsideInRegisters) chunks[c] = AsidePlace()[(first + c) * 128];
      }
#pragma unroll
      for (int c = 0; c < kAhead; ++c) {
        const uint32_t words[4] = {chunks[c].x, chunks[c].y, chunks[c].z, chunks[c].w};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const int pair = 4 * (first + c) + w, r = pair / kPairs, i = pair % kPairs;
          const uint32_t both = kAsideInRegisters ? aside_o_[r][i] : words[w];
          float &x = sum_.o().At(r, 2 * i), &y = sum_.o().At(r, 2 * i + 1);
          const float2 more = device::UnpackPair<__nv_bfloat16>(both);
          x = fmaf(more.x, aside_[r], x), y = fmaf(more.y, aside_[r], y);
        }
      }
    }
  }
  // The lane's first 16 bytes of the workspace; a warpgroup's are side by side.
  __device__ uint4* AsidePlace() const {
    return h_.aside + (blockIdx.x * Shape::kConsumers + group_) * 8 * Shape::kDimV +
           static_cast<int>(threadIdx.x) % 128;
  }

  // After the last key.
  __device__ void Finish() {
    if constexpr (Shape::kFp8) AddAside();
    softmax_.rows().Finish();
  }
  // `earlier`: LSE of other keys, to which this query tile is added.
  __device__ void Store(const Work& work, const LaneRows& earlier) {
    const device::Arguments& a = h_.a;
    Rows& rows = softmax_.rows();
    if constexpr (Shape::kAdds) {
      if (h_.adds) AddEarlier(earlier);
    }
    const RowPlace at[2] = {PlaceOf(h_, work, Rows::Row(0)), PlaceOf(h_, work, Rows::Row(1))};
    // Of the four lanes that share these rows, one stores the LSE of the first, and one that of the second.
    const int pair = Rows::Pair();
    if (a.lse.data != nullptr && pair < 2 && Rows::Row(0) + 8 * pair < work.rows) {
      device::OnlineSoftmax state = rows.State(0);
      RowPlace place = at[0];
      if (pair == 1) state = rows.State(1), place = at[1];
      static_cast<float*>(a.lse.data)[a.lse.Offset(work.q.batch, place.token, place.head)] =
          state.Lse();
    }
    const float factors[2] = {rows.State(0).Inverse(), rows.State(1).Inverse()};
    if constexpr (Shape::kStoresByTma) {
      if (stores_by_tma_) return StoreTiles(work, factors);
    }
    StoreO(work, at, factors);
  }

  // O by way of a stage of V, while the next query tile begins: consumer 0 keeps the last but one, consumer 1 the last.
  __device__ void StoreTiles(const Work& work, const float (&factors)[2]) {
    constexpr int kBlockBytes = 64 * 128;
    static_assert(Shape::kVBytes >= Shape::kDimV / 64 * kBlockBytes);
    static_assert(!Softmax::kSpeculates);  // PlainSteps() keeps no stage
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    kept_.stage = (v_at_.stage + Shape::kStagesV - 2 + group_) % Shape::kStagesV;
    char* const to = shared_.v[kept_.stage] + warp * (kRowsOfAWarp * 128);
    device::NamedSync(kRead + group_, 256);
    if (h_.o_is_fp16) {
      WriteRows<__half>(sum_.o(), factors, device::SharedAddress(to), kBlockBytes);
    } else {
      WriteRows<__nv_bfloat16>(sum_.o(), factors, device::SharedAddress(to), kBlockBytes);
    }
    device::FenceSharedStores();
    __syncwarp();
    if (Lane() == 0) {
      device::TileOrigin origin = work.q;
      origin.token += static_cast<int>(h_.pack.Divide(group_ * 64 + warp * kRowsOfAWarp));
      device::StoreTile<Shape::kDimV / 64>(h_.o, origin, to, kBlockBytes);
    }
    owes_v_ = true;
  }
  // Releases that stage, once TMA has read it.
  __device__ void FinishStore() {
    if constexpr (Shape::kStoresByTma) {
      if (owes_v_ && Lane() == 0) {
        device::AwaitReadsOfStores();
        shared_.v_ring.Release(kept_);
      }
      __syncwarp();
      owes_v_ = false;
    }
  }

  // Leaves the rows' states and O for the block that has the rest of the query tile's keys.
  __device__ void LeavePart(int block) {
    float* const to = PartOf(block);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      to[r * 256] = softmax_.rows().State(r).neg_max;
      to[r * 256 + 128] = softmax_.rows().State(r).sum;
    }
#pragma unroll
    for (int i = 0; i < 2 * kOfRow; ++i) to[(4 + i) * 128] = sum_.o().At(i / kOfRow, i % kOfRow);
    __syncwarp();
    if (ActsForWarp()) {
      __threadfence();
      *LeftOf(block) = kLeft;
    }
  }
  // Adds what the block before has left, for which it waits.
  __device__ void TakePart(int block) {
    const float* const from = PartOf(block);
    while (!__all_sync(0xFFFFFFFF, *LeftOf(block) == kLeft)) {
    }
    __threadfence();
    device::OnlineSoftmax::MergeFactors factors[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factors[r] =
          softmax_.rows().State(r).Merge({__ldcg(from + r * 256), __ldcg(from + r * 256 + 128)});
    }
#pragma unroll
    for (int i = 0; i < 2 * kOfRow; ++i) {
      const auto& f = factors[i / kOfRow];
      float& o = sum_.o().At(i / kOfRow, i % kOfRow);
      o = fmaf(__ldcg(from + (4 + i) * 128), f.parts, o * f.mine);
    }
    __syncwarp();
    if (ActsForWarp()) *LeftOf(block) = 0;  // for the next launch
  }
  // The lane's first number. Its others are 128 apart: with four side by side, ptxas needs registers that are so,
  // and spills.
  __device__ float* PartOf(int block) const {
    const int thread = device::ThreadIndex();
    return h_.parts + (block * Shape::kConsumers + thread / 128) * (Shape::kPartFloats * 128) +
           thread % 128;
  }
  // The workspace may hold anything when the kernel starts: this, by a chance of 1 / 2^64 a word.
  static constexpr unsigned long long kLeft = 0xA77E0C08'5A4E5EED;
  __device__ volatile unsigned long long* LeftOf(int block) const {
    return h_.left + block * (4 * Shape::kConsumers) + device::ThreadIndex() / 32;
  }

  // Early, because that takes a while.
  __device__ void LoadEarlierLse(const Work& work, LaneRows& lse) const {
    if constexpr (Shape::kAdds) {
      if (!h_.adds || work.Leaves()) return;
      device::WaitForKernelAhead();
      const device::Arguments& a = h_.a;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const RowPlace at = PlaceOf(h_, work, Rows::Row(r));
        lse[r] =
            Rows::Row(r) < work.rows
                ? static_cast<float*>(a.lse.data)[a.lse.Offset(work.q.batch, at.token, at.head)]
                : -INFINITY;
      }
    }
  }
  // Adds O of other keys, which has this LSE.
  __device__ void AddEarlier(const LaneRows& lse) {
    device::OnlineSoftmax::MergeFactors factors[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factors[r] = softmax_.rows().State(r).Merge(device::OnlineSoftmax::OfLse(lse[r]));
    }
    const int stage = WaitForEarlier();
    const uint32_t tile = device::SharedAddress(EarlierPlace(shared_, stage));
    const int row = static_cast<int>(threadIdx.x) / 32 * 16 + Lane() % 16;
#pragma unroll
    for (int i = 0; i < Shape::kDimV / 16; ++i) {
      uint32_t words[4];  // of rows 0 and 8, then 8 columns on
      device::LoadMatrices(words, Chunk(tile, Shape::kRows, row, i, Lane() / 16));
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const T* const there = reinterpret_cast<const T*>(&words[w]);
        const int r = w % 2;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& x = sum_.o().At(r, 4 * i + w / 2 * 2 + j);
          x = fmaf(device::ToFloat(there[j]), factors[r].parts, x * factors[r].mine);
        }
      }
    }
    ReleaseEarlier();
  }
  // Returns the stage for EarlierPlace().
  __device__ int WaitForEarlier() {
    if constexpr (Shape::kGoesAcross) {
      shared_.v_ring.WaitFull(v_at_);
      return v_at_.stage;
    } else {
      shared_.q_ring.WaitFull(q_at_);
      return q_at_.stage;
    }
  }
  // All lanes have read O and LSE.
  __device__ void ReleaseEarlier() {
    __syncwarp();
    if constexpr (Shape::kGoesAcross) {
      ReleaseV();
    } else {
      ReleaseQ();
    }
  }

  // Stores O, times these factors. `at`: where the lane's two rows lie.
  __device__ void StoreO(const Work& work, const RowPlace (&at)[2], const float (&factors)[2]) {
    const device::Arguments& a = h_.a;
    uint16_t* o[2];
    bool exists[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      exists[r] = Rows::Row(r) < work.rows;
      o[r] = static_cast<uint16_t*>(a.o.data) + a.o.Offset(work.q.batch, at[r].token, at[r].head);
    }
    if constexpr (!Shape::kFp8) {
      StoreRows<T, false>(sum_.o(), factors, o, exists, a.dv, a.o.whole_chunks);
    } else if (h_.o_is_fp16) {
      StoreRows<__half, true>(sum_.o(), factors, o, exists, a.dv, a.o.whole_chunks);
    } else {
      StoreRows<__nv_bfloat16, true>(sum_.o(), factors, o, exists, a.dv, a.o.whole_chunks);
    }
  }

  static __device__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }
  // With elect.sync in 16 bits, ptxas spills at head dim 128.
  static __device__ bool ActsForWarp() {
    if constexpr (Shape::kFp8) return device::IsElected();
    return Lane() == 0;
  }

  // Named barriers.
  static constexpr int kAllConsumers = 1, kTurns = 2, kRead = kTurns + Shape::kConsumers;

  const HopperArguments& h_;
  HopperShared<Shape>& shared_;
  const int group_ = device::Uniform(static_cast<int>(threadIdx.x) / 128);
  Softmax softmax_;
  HopperSum<T, Shape> sum_;
  // Of fp8: tiles that O has summed, whether some were set aside, and what they are to be multiplied with.
  int summed_ = 0;
  bool is_aside_ = false;
  LaneRows aside_ = {0, 0};
  uint32_t aside_o_[2][kAsideInRegisters ? kPairs : 1];
  uint32_t q_[Shape::kKeepsQ ? kSteps : 1][4];  // Q
  typename device::Ring<Shape::kWorks>::Place work_at_;
  typename device::Ring<Shape::kQStages>::Place q_at_;
  typename device::Ring<Shape::kStages>::Place k_at_;
  typename device::Ring<Shape::kStagesV>::Place v_at_;
  int scales_at_ = 0;
  // Whether O of this query tile is stored by TMA; and of the one before, V's stage that is not released yet.
  bool stores_by_tma_ = false, owes_v_ = false;
  typename device::Ring<Shape::kStagesV>::Place kept_;
};

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_CONSUMER_CUH_
