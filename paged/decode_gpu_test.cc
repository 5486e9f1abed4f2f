// On a GPU: a decode loop from an empty cache gives the same bits in each step as attention over
// contiguous K and V, also from a graph of one step.
#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "paged/testing/decode_check.h"

namespace attnlab::paged {
namespace {

TEST(PagedDecodeOnGpu, EachStepIsAsWithContiguousKv) {
  const DecodeCase kCases[] = {
      {"b=3,hq=8,hkv=2,sq=1,skv=4096,d=128,dtype=bf16,lens=padded,page=16", "split_k",
       "batch_invariant=true", /*prefix_caching=*/true},
      {"b=3,hq=8,hkv=2,sq=1,skv=4096,d=128,dtype=bf16,lens=padded,page=16", "", "",
       /*prefix_caching=*/false},
      // Pages that are shorter than a tile of keys.
      {"b=3,hq=4,hkv=1,sq=1,skv=4096,d=64,dtype=fp16,lens=padded,page=4", "", "",
       /*prefix_caching=*/true},
      {"b=3,hq=2,hkv=1,sq=1,skv=4096,d=16,dtype=fp32,lens=padded,page=16", "", "",
       /*prefix_caching=*/true},
  };
  for (const DecodeCase& c : kCases) {
    EXPECT_EQ(CheckDecode(c, Device::Cuda(0)), absl::OkStatus()) << c.problem << " " << c.config;
  }
}

}  // namespace
}  // namespace attnlab::paged
