// Barriers in shared memory that count arrivals of threads and bytes of copies (mbarrier), and a
// ring of stages on top of them, through which one warp hands tiles to others.
//
// Needs 9.0. Source: PTX ISA 9.0, "mbarrier".
#ifndef ATTENTION_DEVICE_HOPPER_MBARRIER_CUH_
#define ATTENTION_DEVICE_HOPPER_MBARRIER_CUH_

#include <cstdint>
#include <cuda/ptx>

#include "attention/device/hopper/cluster.cuh"

namespace attnlab::device {

// A phase ends with its last arrival and the last byte that it expects. Phases have parity 0, 1, 0,
// and so on.
class Barrier {
 public:
  __device__ void Init(uint32_t arrivals) { cuda::ptx::mbarrier_init(&word_, arrivals); }
  __device__ void Arrive() { cuda::ptx::mbarrier_arrive(&word_); }
  __device__ void ArriveAndExpect(uint32_t bytes) {
    cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta,
                                         cuda::ptx::space_shared, &word_, bytes);
  }
  // Waits for the end of the current phase if it has this parity. Of a new barrier, that of parity 1
  // counts as ended.
  __device__ void Wait(uint32_t parity) {
    while (!cuda::ptx::mbarrier_try_wait_parity(&word_, parity)) {
    }
  }
  // Does not wait. Returns whether it has ended.
  __device__ bool HasEnded(uint32_t parity) {
    return cuda::ptx::mbarrier_test_wait_parity(&word_, parity);
  }
  // Arrives at the same barrier of block `block` of the cluster, which waits for reads that are complete,
  // and for nothing else: with the order of a cluster, a fence of the whole GPU came with it.
  __device__ void ArriveIn(uint32_t block) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];"
                 :
                 : "r"(InBlock(static_cast<uint32_t>(__cvta_generic_to_shared(&word_)), block))
                 : "memory");
  }
  // For copies that report their bytes to it.
  __device__ uint64_t* Word() { return &word_; }

 private:
  uint64_t word_;
};

// kStages stages. The producer fills a stage when consumers have released it. Each side keeps its
// own Place.
//
// Only warps without which a stage cannot go on may wait for it: they fill it, or they release it. The
// parity tells a phase only from the next one, so a warp that waits while two pass waits for ever.
template <int kStages>
class Ring {
 public:
  struct Place {
    int stage = 0;
    uint32_t parity = 0;

    __device__ void Advance() {
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
  };

  // One thread calls this. `releases`: how often consumers release a stage; `fills`: how often it is
  // filled.
  __device__ void Init(uint32_t releases, uint32_t fills = 1) {
    for (int i = 0; i < kStages; ++i) {
      full_[i].Init(fills);
      empty_[i].Init(releases);
    }
  }

  // The producer.
  __device__ void WaitEmpty(const Place& at) { empty_[at.stage].Wait(at.parity ^ 1); }
  __device__ void Fill(const Place& at) { full_[at.stage].Arrive(); }
  // For copies of so many bytes that lanes of a warp start afterwards. All its lanes call this; the
  // `first` one announces the bytes. Returns what the copies report to.
  __device__ uint64_t* FillWith(const Place& at, uint32_t bytes, bool first) {
    if (first) full_[at.stage].ArriveAndExpect(bytes);
    __syncwarp();
    return full_[at.stage].Word();
  }

  // Consumers.
  __device__ void WaitFull(const Place& at) { full_[at.stage].Wait(at.parity); }
  // Whether there is nothing to wait for. The answer takes 40 cycles, as that of WaitFull() does, but may be asked for
  // earlier.
  __device__ bool IsFull(const Place& at) { return full_[at.stage].HasEnded(at.parity); }
  __device__ void Release(const Place& at) { empty_[at.stage].Arrive(); }
  __device__ void ReleaseIn(uint32_t block, const Place& at) { empty_[at.stage].ArriveIn(block); }

 private:
  Barrier full_[kStages], empty_[kStages];
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_HOPPER_MBARRIER_CUH_
