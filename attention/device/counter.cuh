// Counts what blocks have taken or finished, without a launch that clears it first. The counter is in
// workspace, which may hold anything when the kernel starts. The upper half of a counter that counts is
// kCounts, the lower half what it has counted; the last take clears it, for the next launch. If n
// takes are to come, other contents pass for a counter with a chance of n / 2^64.
#ifndef ATTENTION_DEVICE_COUNTER_CUH_
#define ATTENTION_DEVICE_COUNTER_CUH_

#include <cstdint>

namespace attnlab::device {

class Counter {
 public:
  // `takes`: how often all blocks together call Take().
  __device__ Counter(unsigned long long* word, uint32_t takes) : word_(word), takes_(takes) {}

  // Every block calls these before its first Take(). The counter takes a while to read, so a block may
  // do something else between the two.
  __device__ void Read() { found_ = *static_cast<volatile unsigned long long*>(word_); }
  __device__ void Begin() {
    if (found_ >> 32 != kCounts || static_cast<uint32_t>(found_) >= takes_) {
      atomicCAS(word_, found_, kCounts << 32);
    }
  }
  // Returns 0, 1, 2 and so on, over all blocks.
  __device__ uint32_t Take() {
    const auto taken = static_cast<uint32_t>(atomicAdd(word_, 1ULL));
    if (taken + 1 == takes_) atomicExch(word_, kCounts << 32);
    return taken;
  }

 private:
  static constexpr unsigned long long kCounts = 0xA77E0C07;
  unsigned long long* const word_;
  unsigned long long found_ = 0;
  const uint32_t takes_;
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_COUNTER_CUH_
