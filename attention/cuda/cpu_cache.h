// The size of the processor's last-level cache.
#ifndef ATTENTION_CUDA_CPU_CACHE_H_
#define ATTENTION_CUDA_CPU_CACHE_H_

#include <cstdint>
#include <string>

namespace attnlab {

// Where Linux describes the caches of processor 0.
inline constexpr char kCpuCacheDirectory[] = "/sys/devices/system/cpu/cpu0/cache";

// The bytes of the data or unified cache of the highest level that `directory` describes, in
// index0/level, index0/type, index0/size and so on. Where a machine has several caches of that
// level, the one of this processor: what one core can find there. 0 where nothing is described.
int64_t LastLevelCacheBytes(const std::string& directory);

}  // namespace attnlab

#endif  // ATTENTION_CUDA_CPU_CACHE_H_
