// Two warps that share rows, and their exchange through shared memory. Of S each computes half of a
// tile's keys, and of O half of the columns. For its columns a warp needs P of all keys.
#ifndef ATTENTION_DEVICE_WARP_PAIR_CUH_
#define ATTENTION_DEVICE_WARP_PAIR_CUH_

#include <cstdint>

#include "attention/device/convert.cuh"
#include "attention/device/fragment_products.cuh"
#include "attention/device/mma.cuh"
#include "attention/device/thread_index.cuh"
#include "attention/device/warp_barriers.cuh"
#include "attention/device/warp_rows.cuh"

namespace attnlab::device {

// Shape::kWarpExchange: bytes that a warp can send at a time. `exchange` below is the shared memory
// for it, so many bytes per warp.
template <class Shape, typename T>
class WarpPair {
  static constexpr int kKeys = Shape::kKeys / 2, kBytes = Shape::kWarpExchange;
  static constexpr int kM = Shape::kWarpRows / 16;
  static_assert(Shape::kSharing == 2 && kBytes % 512 == 0);

 public:
  using Warp = WarpRows<Shape::kWarpRows, kKeys, Shape::kHeadDim / 2, 2>;
  using LaneRows = typename Warp::LaneRows;
  using Probabilities = typename FragmentProducts<Shape, T>::Probabilities;

  // This warp's number in its pair: 0 or 1.
  static __device__ int Part() { return ThreadIndex() / 32 % 2; }

  // Waits for the other warp. Then both can receive what the other sent before.
  static __device__ void Wait() { WaitForPairOfWarps(); }
  // The same. Returns whether `vote` is true in either warp.
  static __device__ bool WaitAndVote(bool vote) { return WaitForPairOfWarpsAndVote(vote); }

  // Sends P of this warp's keys to the other warp, and receives P of that warp's keys.
  static __device__ void Send(char* exchange, const Probabilities& p) {
#pragma unroll
    for (int i = 0; i < kM * kKeys / 16; ++i) Send(exchange, i, p.x[i % kM][i / kM].x);
  }
  static __device__ void Receive(char* exchange, Probabilities& p) {
#pragma unroll
    for (int i = 0; i < kM * kKeys / 16; ++i) Receive(exchange, i, p.x[i % kM][i / kM].x);
  }

  // For a row's first keys, both warps agree on one maximum, because P is rounded relative to it,
  // however few the keys are.
  static __device__ void Agree(char* exchange, LaneRows& max) {
    LaneRows others;
    Swap(exchange, max, others);
    Wait();  // until the other has received it, before P overwrites it
#pragma unroll
    for (int r = 0; r < Warp::kLaneRows; ++r) max[r] = fmaxf(max[r], others[r]);
  }

  // Makes O and the other warp's P, which is about to be added, relative to the larger of the two
  // maxima. That rounds the other's P a second time.
  static __device__ void Join(char* exchange, Warp& warp, Probabilities& p,
                              typename Warp::Output& o) {
    LaneRows mine, others;
#pragma unroll
    for (int r = 0; r < Warp::kLaneRows; ++r) mine[r] = warp.State(r).neg_max;
    Swap(exchange, mine, others);
#pragma unroll
    for (int r = 0; r < Warp::kLaneRows; ++r) {
      const float factor = warp.Join(r, others[r], o);
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i) {
        uint32_t& pair = p.x[r / 2][i / 2].x[i % 2 * 2 + r % 2];
        const T* const x = reinterpret_cast<const T*>(&pair);
        pair = PackPair<T>(ToFloat(x[0]) * factor, ToFloat(x[1]) * factor);
      }
    }
  }

  // After the last key: adds the other warp's shares of the rows' sums.
  static __device__ void AddSums(char* exchange, Warp& warp) {
    LaneRows mine, others;
#pragma unroll
    for (int r = 0; r < Warp::kLaneRows; ++r) mine[r] = warp.State(r).sum;
    Swap(exchange, mine, others);
#pragma unroll
    for (int r = 0; r < Warp::kLaneRows; ++r) warp.State(r).sum += others[r];
  }

 private:
  // Send() stores this lane's i-th 16 bytes. Receive() loads those of the same lane of the other
  // warp.
  static __device__ void Send(char* exchange, int i, const uint32_t (&x)[4]) {
    *Place(exchange, Part(), i) = make_uint4(x[0], x[1], x[2], x[3]);
  }
  static __device__ void Receive(char* exchange, int i, uint32_t (&x)[4]) {
    const uint4 received = *Place(exchange, 1 - Part(), i);
    x[0] = received.x, x[1] = received.y, x[2] = received.z, x[3] = received.w;
  }

  // Exchanges each lane's numbers with the same lane of the other warp. The pair waits before the
  // exchange and within it.
  template <int kCount>
  static __device__ void Swap(char* exchange, const float (&mine)[kCount],
                              float (&others)[kCount]) {
    static_assert(kCount <= 4);
    uint32_t bits[4] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) bits[i] = __float_as_uint(mine[i]);
    Wait();
    Send(exchange, 0, bits);
    Wait();
    Receive(exchange, 0, bits);
#pragma unroll
    for (int i = 0; i < kCount; ++i) others[i] = __uint_as_float(bits[i]);
  }

  static __device__ uint4* Place(char* exchange, int part, int i) {
    const int warp = ThreadIndex() / 64 * 2 + part;
    return reinterpret_cast<uint4*>(exchange + warp * kBytes) + i * 32 + ThreadIndex() % 32;
  }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_WARP_PAIR_CUH_
