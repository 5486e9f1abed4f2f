// Two warps that share rows, and their exchange through shared memory.
#ifndef ATTENTION_FA2_WARP_PAIR_CUH_
#define ATTENTION_FA2_WARP_PAIR_CUH_

#include <cstdint>

#include "attention/device/thread_index.cuh"
#include "attention/device/warp_barriers.cuh"

namespace attnlab::fa2 {

// kBytes: how much a warp can send at a time, a multiple of 16 bytes per lane.
template <int kBytes>
class WarpPair {
  static_assert(kBytes % 512 == 0);

 public:
  static constexpr int kWarpBytes = kBytes;

  // This warp's number in its pair: 0 or 1.
  static __device__ int Part() { return device::ThreadIndex() / 32 % 2; }

  // Waits for the other warp. Then both can receive what the other sent before.
  static __device__ void Wait() { device::WaitForPairOfWarps(); }

  // Send() stores this lane's i-th 16 bytes. Receive() loads those of the same lane of the other
  // warp. `shared`: kWarpBytes per warp of the block.
  static __device__ void Send(char* shared, int i, const uint32_t (&x)[4]) {
    *Place(shared, Part(), i) = make_uint4(x[0], x[1], x[2], x[3]);
  }
  static __device__ void Receive(char* shared, int i, uint32_t (&x)[4]) {
    const uint4 received = *Place(shared, 1 - Part(), i);
    x[0] = received.x, x[1] = received.y, x[2] = received.z, x[3] = received.w;
  }

  // Exchanges each lane's numbers with the same lane of the other warp. The pair waits before the
  // exchange and within it.
  template <int kCount>
  static __device__ void Swap(char* shared, const float (&mine)[kCount], float (&others)[kCount]) {
    static_assert(kCount <= 4);
    uint32_t bits[4] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) bits[i] = __float_as_uint(mine[i]);
    Wait();
    Send(shared, 0, bits);
    Wait();
    Receive(shared, 0, bits);
#pragma unroll
    for (int i = 0; i < kCount; ++i) others[i] = __uint_as_float(bits[i]);
  }

 private:
  static __device__ uint4* Place(char* shared, int part, int i) {
    const int warp = device::ThreadIndex() / 64 * 2 + part;
    return reinterpret_cast<uint4*>(shared + warp * kWarpBytes) + i * 32 +
           device::ThreadIndex() % 32;
  }
};

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_WARP_PAIR_CUH_
