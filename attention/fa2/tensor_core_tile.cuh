// One query tile of FlashAttention-2 on tensor cores, for 16-bit Q, K and V.
//
// Each warp has 16 or 32 rows of the query tile and computes all keys of a tile for them, so rows
// never cross warps. S, P and O stay in the warp's registers, and P goes from the first product to
// the second without leaving them. Warps share only K and V, in shared memory. While one tile of
// keys is worked on, copies bring the next. If O is too large for that, two warps share rows
// (Shape::kPairs). Each then has half of the keys for S and half of the columns for O, and needs
// both halves of P.
#ifndef ATTENTION_FA2_TENSOR_CORE_TILE_CUH_
#define ATTENTION_FA2_TENSOR_CORE_TILE_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/cp_async.cuh"
#include "attention/device/fragment_products.cuh"
#include "attention/device/fragments.cuh"
#include "attention/device/kv_stream.cuh"
#include "attention/device/kv_tiles.h"
#include "attention/device/output_rows.cuh"
#include "attention/device/query_tile.h"
#include "attention/device/swizzle.h"
#include "attention/device/thread_index.cuh"
#include "attention/device/tile_copy.cuh"
#include "attention/device/warp_pair.cuh"
#include "attention/device/warp_rows.cuh"

namespace attnlab::fa2 {

// T: __half or __nv_bfloat16. kCaps: whether the kernel supports a softcap.
template <class Shape, typename T, bool kCaps>
class TensorCoreTile {
  static constexpr int kDim = Shape::kHeadDim, kKeys = Shape::kKeys, kStages = Shape::kStages;
  static constexpr bool kPairs = Shape::kPairs;
  // Whether registers are too few to keep what can be computed again: K's address in shared memory
  // and, with two stages, V's address in global memory. A softcap takes more registers than there
  // are if none are left to keep Q in.
  static constexpr bool kFrugal = kCaps && Shape::kKeptQ == 0;
  static constexpr int kWarpKeys = kKeys / Shape::kSharing, kWarpDim = kDim / Shape::kSharing;
  static constexpr int kM = Shape::kWarpRows / 16, kN = kWarpKeys / 8, kNv = kWarpDim / 8;

  using QCopy = device::TileCopy<T, Shape::kRows, kDim, Shape::kThreads>;
  using Stream = device::KvStream<T, kKeys, kDim, Shape::kThreads>;
  using Warp = device::WarpRows<Shape::kWarpRows, kWarpKeys, kWarpDim, Shape::kSharing>;
  using Pair = device::WarpPair<Shape, T>;  // only if kPairs
  using Output = device::OutputRows<T, kDim, Shape::kWarpRows / Shape::kSharing>;
  static_assert(sizeof(device::Kept) <= Shape::kKeptBytes);
  static_assert(QCopy::kBytes == Shape::kK && Stream::kBytes == Shape::kKvBytes);
  static_assert(!kPairs || kStages == 1);  // pairs receive after the second barrier
  // Columns and rows that are whole groups and shifts of the swizzle lie at a constant distance.
  static_assert(kWarpDim / 8 % device::Swizzle<kDim / 8>::kGroup == 0 && kWarpKeys % 8 == 0);

  using Scores = typename Warp::Scores;
  using Products = device::FragmentProducts<Shape, T>;
  using Probabilities = typename Products::Probabilities;

 public:
  // `shared`: Shape::kSharedBytes, aligned to 128 bytes. A copy of `tile` is kept there.
  __device__ TensorCoreTile(const device::Arguments& a, const device::QueryTile& tile, char* shared)
      : a_(a), shared_(shared) {
    // Copies begin in the order in which they are waited for, each as soon as its address is known.
    CopyQ(tile);
    k_address_ = KAddress();
    const device::KvTiles tiles = tile.Tiles(a.mask, kKeys);
    const bool streams = a.k.whole_chunks && a.v.whole_chunks && a.d == kDim && a.dv == kDim;
    const device::Keys keys = device::Keys::Of(tiles, tile.kv.length, kKeys, streams);
    count_ = device::Uniform(static_cast<int>(tiles.Count(kKeys)));
    k_.Begin(FirstKey(a.k, tile, keys), a.k);
    CopyTile(/*k=*/true, /*v=*/false, 0, keys.whole > 0, device::ThreadIndex(), keys);
    if (kStages == 1) device::CopyAsyncCommit();
    v_.Begin(FirstKey(a.v, tile, keys), a.v);
    CopyTile(/*k=*/false, /*v=*/true, 0, keys.whole > 0, device::ThreadIndex(), keys);
    device::CopyAsyncCommit();
    k_.Advance(a.k);
    v_.Advance(a.v);
    if (device::ThreadIndex() == 0)
      *reinterpret_cast<device::Kept*>(shared + Shape::kKept) = {tile, keys};
    if (keys.full_begin > 0 || keys.full_end < count_) FindVisible(tile);
  }

  __device__ void Run() {
    Walk();
    Finish();
    Store();
  }

 private:
  __device__ const device::Kept& kept() const {
    return *reinterpret_cast<const device::Kept*>(shared_ + Shape::kKept);
  }
  // This warp's part of its pair's work, and the first key of a tile and first column of O in it.
  static __device__ int Part() {
    if constexpr (kPairs) return Pair::Part();
    return 0;
  }
  static __device__ int FirstWarpKey() { return Part() * kWarpKeys; }
  static __device__ int FirstColumn() { return Part() * kWarpDim; }

  __device__ bool Capped() const { return kCaps && a_.softcap != 0; }

  __device__ uint32_t AddressOf(int tile, int row, int chunk) const {
    return device::SharedAddress(shared_) + tile +
           device::Swizzle<kDim / 8>::At(row, chunk) * device::kChunkBytes;
  }

  __device__ void CopyQ(const device::QueryTile& tile) {
    const T* const q = static_cast<const T*>(a_.q.data);
    const int rows = static_cast<int>(tile.end - tile.begin);
    if (tile.pack == 1) {
      const T* const first = q + tile.Offset(a_.q, tile.begin);
      if (a_.q.whole_chunks && rows == Shape::kRows && a_.d == kDim) {
        QCopy::CopyWhole(shared_, first + QCopy::Offset(a_.q.token_stride), a_.q.token_stride,
                         device::ThreadIndex());
      } else {
        QCopy::Copy(shared_, rows, a_.d, a_.q.whole_chunks,
                    [&](int row) { return first + row * a_.q.token_stride; });
      }
    } else {
      QCopy::Copy(shared_, rows, a_.d, a_.q.whole_chunks,
                  [&](int row) { return q + tile.Offset(a_.q, tile.begin + row); });
    }
  }

  // The row of K or V with the first key that the tile walks.
  __device__ const T* FirstKey(const device::Rows& rows, const device::QueryTile& tile,
                               const device::Keys& keys) const {
    return static_cast<const T*>(rows.data) + tile.KvOffset(rows) + keys.first * rows.token_stride;
  }

  // Begins to copy tile j of K, V or both to its stage. The streams must be at tile j. `whole`:
  // whether all of the tile exists.
  __device__ void CopyTile(bool k, bool v, int j, bool whole, int thread,
                           const device::Keys& keys) {
    char* const to = shared_ + j % kStages * Shape::kKvBytes;
    if (kFrugal && kStages > 1 && v && j > 0) {
      v_.Begin(FirstKey(a_.v, kept().tile, keys) + j * kKeys * a_.v.token_stride, a_.v);
    }
    if (whole) {
      if (k) k_.CopyWhole(to + Shape::kK, a_.k, thread);
      if (v) v_.CopyWhole(to + Shape::kV, a_.v, thread);
    } else if (j < count_) {
      const int left = keys.count - j * kKeys;
      if (k) k_.CopyRows(to + Shape::kK, a_.k, left, a_.d);
      if (v) v_.CopyRows(to + Shape::kV, a_.v, left, a_.dv);
    }
  }

  // The keys that each row of the query tile sees, in shared memory.
  __device__ int2* Visible() const { return reinterpret_cast<int2*>(shared_ + Shape::kVisible); }
  __device__ void FindVisible(const device::QueryTile& tile) const {
    for (int row = device::ThreadIndex(); row < Shape::kRows; row += Shape::kThreads) {
      const KvRange seen = tile.Visible(a_.mask, tile.begin + row);
      Visible()[row] = make_int2(static_cast<int>(seen.begin), static_cast<int>(seen.end));
    }
  }

  // Computes O and the sums of P over all tiles of keys.
  __device__ void Walk() {
    o_.Clear();
    if (kStages == 1) {
      device::CopyAsyncWait<1>();  // for Q and K, but not for V
    } else if (Shape::kKeptQ > 0 || count_ == 0) {
      device::CopyAsyncWait<0>();  // for Q, before it is read or O overwrites it
    }
    __syncthreads();  // and all threads see what is kept
    if constexpr (Shape::kKeptQ > 0) Products::KeepQ(QAddress(), q_);
    const device::Keys& keys = kept().keys;
    bool whole = keys.whole > 0, next_whole = keys.whole > 1;
#pragma unroll 1
    for (int j = 0; j < count_; ++j) {
      if (kStages > 1 || j > 0) {
        const int thread = device::ThreadIndex();  // before the barrier, which takes longer
        device::CopyAsyncWait<0>();
        __syncthreads();  // tile j, or its K, has arrived; the next copy's target is free
        if (kStages == 1) {
          CopyTile(/*k=*/false, /*v=*/true, j, whole, thread, keys);
        } else {
          CopyTile(/*k=*/true, /*v=*/true, j + 1, next_whole, thread, keys);
        }
        device::CopyAsyncCommit();
      }
      Scores s;
      const uint32_t k_address = kFrugal ? KAddress() : k_address_;
      Products::MultiplyQk(QAddress(), k_address + j % kStages * Shape::kKvBytes, q_, s);
      if (Capped()) Warp::Cap(s, a_);
      if (keys.Masked(j)) {
        Warp::MaskOut(s, Visible(), keys.first + j * kKeys + FirstWarpKey());
      }
      const bool rescaled = Rescale(s, keys.First(j));
      bool joins = false;
      Probabilities p;
      Products::Weigh(s, ScaleLog2(), warp_, p);
      if constexpr (kPairs) Pair::Send(Exchange(), p);
      if (kStages == 1) {
        device::CopyAsyncWait<0>();
        // V, and what pairs sent, has arrived, and all warps are done with K.
        if constexpr (kPairs) {
          // A join is rare, so the whole block decides on it: the vote comes with the barrier.
          joins = __syncthreads_or(rescaled);
        } else {
          __syncthreads();
        }
        CopyTile(/*k=*/true, /*v=*/false, j + 1, next_whole, device::ThreadIndex(), keys);
        device::CopyAsyncCommit();
      }
      // What the next tile is like is found out here, where nothing waits for it. The streams move
      // on only here as well, because a copy in flight still holds their registers.
      whole = next_whole;
      next_whole = j + 2 < keys.whole;
      k_.Advance(a_.k);
      if (kStages > 1 ? !kFrugal : j > 0) v_.Advance(a_.v);
      const uint32_t v_address = VAddress() + j % kStages * Shape::kKvBytes;
      const int first_key = FirstWarpKey();
      Products::AddPv(v_address + first_key * Shape::kRowBytes, p, o_);
      if constexpr (kPairs) {
        Pair::Receive(Exchange(), p);
        if (joins) Pair::Join(Exchange(), warp_, p, o_);
        Products::AddPv(v_address + (kWarpKeys - first_key) * Shape::kRowBytes, p, o_);
      }
    }
  }

  // Returns whether a running maximum has moved without the other warp of the pair knowing.
  __device__ bool Rescale(const Scores& s, bool first) {
    typename Warp::LaneRows max;
    Warp::FindMaxima(s, max);
    if constexpr (kPairs) {
      if (first) Pair::Agree(Exchange(), max);
    }
    return warp_.Rescale(max, ScaleLog2(), o_) && !first;
  }
  __device__ float ScaleLog2() const { return device::ScaleLog2(a_, Capped()); }
  __device__ char* Exchange() const { return shared_ + Shape::kExchange; }

  // Each lane's address for ldmatrix: lanes point at the rows of four 8 x 8 matrices.
  __device__ uint32_t QAddress() const {
    const int lane = Warp::Lane();
    return AddressOf(0, Warp::First() + lane % 16, lane / 16);
  }
  __device__ uint32_t KAddress() const {
    const int lane = Warp::Lane();
    return AddressOf(Shape::kK, FirstWarpKey() + lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }
  __device__ uint32_t VAddress() const {
    const int lane = Warp::Lane();
    return AddressOf(Shape::kV, lane % 16, lane / 16) + FirstColumn() * sizeof(T);
  }

  // Stores O, divided by the sums of P and rounded, where this warp's Q was.
  __device__ void Finish() {
    const uint32_t q_address = QAddress();
    if constexpr (kPairs) Pair::AddSums(Exchange(), warp_);
    warp_.Finish();
    __syncwarp();
    Products::StoreOutput(o_, warp_, q_address + FirstColumn() * sizeof(T));
    if constexpr (kPairs) {
      Pair::Wait();
    } else {
      __syncwarp();
    }
  }

  // Writes O and LSE to global memory.
  __device__ void Store() const {
    if (Part() == 0) warp_.StoreLse(a_, kept().tile);
    const int first_row = Warp::First() + Part() * (Shape::kWarpRows / Shape::kSharing);
    Output::Store(shared_ + first_row * Shape::kRowBytes, a_, kept().tile, first_row);
  }

  const device::Arguments& a_;
  char* const shared_;
  uint32_t k_address_;
  int count_;  // tiles of keys
  Stream k_, v_;
  Warp warp_;
  typename Warp::Output o_;
  typename Products::KeptQ q_;
};

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TENSOR_CORE_TILE_CUH_
