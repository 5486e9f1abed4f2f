// On a GPU: counts from any contents, and again.
#include <cstdint>
#include <set>

#include "attention/cuda/launch.h"
#include "attention/cuda/managed_array.h"
#include "attention/device/counter.cuh"
#include "cuda_runtime.h"
#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

// Every block takes once.
__global__ void TakeOnce(unsigned long long* word, uint32_t* taken) {
  if (threadIdx.x != 0) return;
  Counter counter(word, gridDim.x);
  counter.Read();
  counter.Begin();
  taken[blockIdx.x] = counter.Take();
}

TEST(CounterTest, CountsFromAnyContentsAndAgain) {
  constexpr uint64_t kCounts = uint64_t{0xA77E0C07} << 32;
  ManagedArray<unsigned long long> word(1);
  for (const uint64_t content : {uint64_t{0}, ~uint64_t{0}, uint64_t{0x7FA57FA57FA57FA5}, kCounts,
                                 kCounts | 2000, kCounts | 0xFFFFFFFF}) {
    word[0] = content;
    // The launches differ in how often they count, as those of different problems do.
    for (const uint32_t takes : {1u, 4u, 1999u, 7u, 7u}) {
      ManagedArray<uint32_t> taken(takes);
      for (uint32_t i = 0; i < takes; ++i) taken[i] = 0xFFFFFFFF;
      ASSERT_EQ(Launch(TakeOnce, dim3(takes), dim3(32), 0, nullptr, word.data(), taken.data()),
                cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      std::set<uint32_t> all;
      for (uint32_t i = 0; i < takes; ++i) all.insert(taken[i]);
      EXPECT_EQ(all.size(), takes) << std::hex << content;
      EXPECT_EQ(*all.rbegin(), takes - 1) << std::hex << content;
    }
  }
}

}  // namespace
}  // namespace attnlab::device
