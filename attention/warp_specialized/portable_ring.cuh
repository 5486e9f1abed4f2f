// A ring of stages in shared memory, through which producer warps hand tiles to consumer warps.
//
// The tiles of a block are its items, numbered from 0 on: K and V of the first tile of keys, K and
// V of the second, and so on. Item i goes to stage i % stages. One producer warp fills a stage; all
// consumer warps read it and release it. Each warp keeps its own Place.
//
// A stage always has the same producer: the number of stages is a multiple of the number of
// producers. Otherwise a producer could come to a stage two rounds early. Barriers there show the
// parity that it waits for, so it would overwrite a tile that nobody has read.
//
//   producer   WaitEmpty(at); copy; Fill(at);             at.Advance(ring)
//   consumer   WaitFull(at); read; Release(at);           at.Advance(ring)
//
// From 8.0 on, a stage has two barriers in shared memory (mbarrier). An arrival there does not
// wait, so consumers may be up to a whole ring apart: one multiplies while another is at its
// softmax. Before 8.0 it has two named barriers. A warp that waits at one also counts as arrived,
// so consumers wait for each other at each item.
#ifndef ATTENTION_WARP_SPECIALIZED_PORTABLE_RING_CUH_
#define ATTENTION_WARP_SPECIALIZED_PORTABLE_RING_CUH_

#include <cstdint>

#include "attention/device/cp_async.cuh"
#include "attention/device/fragments.cuh"
#include "attention/device/thread_index.cuh"
#include "attention/warp_specialized/portable_shape.h"

namespace attnlab::warp_specialized {

class PortableRing {
 public:
  // Which item a warp is at, its stage, and the parity of the ring's round, all in one register.
  class Place {
   public:
    __device__ int item() const { return static_cast<int>(bits_ >> 4); }
    __device__ int stage() const { return static_cast<int>(bits_ >> 1 & 7); }
    __device__ uint32_t parity() const { return bits_ & 1; }

    __device__ void Advance(const PortableRing& ring) {
      bits_ += 16 + 2;
      if (stage() == ring.stages_) bits_ = (bits_ & ~15u) | (parity() ^ 1);
    }

   private:
    static_assert(kMostStages < 8);
    uint32_t bits_ = 0;
  };

  // `shared`: kRingBytes, aligned to 8. `consumers`: warps that read every item.
  __device__ PortableRing(char* shared, int stages, int items, int consumers)
      : full_(device::SharedAddress(shared)),
        empty_(full_ + kMostStages * 8),
        stages_(stages),
        items_(items),
        consumers_(consumers) {}

  // One thread calls this, before a barrier of the block.
  __device__ void Init() const {
#if __CUDA_ARCH__ >= 800
    for (int i = 0; i < stages_; ++i) {
      Init(full_ + 8 * i, 32);
      Init(empty_ + 8 * i, 32 * consumers_);
    }
#endif
  }

  // Whole warps call the rest.

  __device__ void WaitEmpty(const Place& at) const {
#if __CUDA_ARCH__ >= 800
    Wait(empty_ + 8 * at.stage(), at.parity() ^ 1);  // the round before
#else
    if (at.item() >= stages_) NamedSync(kFirstNamed + 2 * at.stage());
#endif
  }

  // After this warp's stores and CopyAsync() to the stage. `asynchronous`: whether there was only
  // CopyAsync(). The stage is then full when they arrive, and this warp goes on.
  __device__ void Fill(const Place& at, bool asynchronous) const {
#if __CUDA_ARCH__ >= 800
    if (asynchronous) {
      asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(full_ + 8 * at.stage())
                   : "memory");
    } else {
      Arrive(full_ + 8 * at.stage());
    }
#else
    NamedArrive(kFirstNamed + 2 * at.stage() + 1);
#endif
  }

  __device__ void WaitFull(const Place& at) const {
#if __CUDA_ARCH__ >= 800
    Wait(full_ + 8 * at.stage(), at.parity());
#else
    NamedSync(kFirstNamed + 2 * at.stage() + 1);
#endif
  }

  __device__ void Release(const Place& at) const {
#if __CUDA_ARCH__ >= 800
    // All lanes arrive: racecheck trusts an arrival only with what the same thread did before it.
    // The condition is always true. Without a branch here, ptxas moves loads up, and spills.
    if (device::ThreadIndex() >= 0) Arrive(empty_ + 8 * at.stage());
#else
    if (at.item() + stages_ < items_) NamedArrive(kFirstNamed + 2 * at.stage());  // someone waits
#endif
  }

  // Waits for the first `warps` warps of the block.
  static __device__ void SyncConsumers(int warps) {
    asm volatile("barrier.cta.sync %0, %1;" ::"n"(kFirstNamed - 1), "r"(32 * warps) : "memory");
  }

 private:
#if __CUDA_ARCH__ >= 800
  static __device__ void Init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
  }
  static __device__ void Arrive(uint32_t barrier) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier)
                 : "memory");
  }
  // Waits for the end of the phase with this parity. Of a new barrier, that of parity 1 counts as
  // ended.
  static __device__ void Wait(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    do {
      asm volatile(
          "{\n.reg .pred p;\n"
#if __CUDA_ARCH__ >= 900
          "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"  // waits a while by itself
#else
          "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
#endif
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(barrier), "r"(parity)
          : "memory");
    } while (!done);
  }
#else
  // One producer warp and all consumers meet there.
  __device__ void NamedSync(int id) const {
    asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(32 * (consumers_ + 1)) : "memory");
  }
  __device__ void NamedArrive(int id) const {
    asm volatile("barrier.cta.arrive %0, %1;" ::"r"(id), "r"(32 * (consumers_ + 1)) : "memory");
  }
#endif
  // Those before are for __syncthreads(), pairs of the first six warps, and SyncConsumers(), which
  // only blocks of at most four consumers call.
  static constexpr int kFirstNamed = 4;
  static_assert(kFirstNamed + 2 * kMostStages <= 16);

  const uint32_t full_, empty_;
  const int stages_, items_, consumers_;
};

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_PORTABLE_RING_CUH_
