// The size of the processor's last-level cache.
#ifndef ATTENTION_CUDA_CPU_CACHE_H_
#define ATTENTION_CUDA_CPU_CACHE_H_

#include <cstdint>
#include <string>

namespace attnlab {

// Where Linux describes the caches of processor 0.
inline constexpr char kCpuCacheDirectory[] = "/sys/devices/system/cpu/cpu0/cache";

// Bytes of the highest-level data or unified cache that `directory` describes, in index0/level,
// index0/type, index0/size and so on. If the machine has several caches of that level, this is the
// one of processor 0: what one core can use. 0 if no cache is described.
int64_t LastLevelCacheBytes(const std::string& directory);

}  // namespace attnlab

#endif  // ATTENTION_CUDA_CPU_CACHE_H_
