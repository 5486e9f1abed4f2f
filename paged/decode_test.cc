// A decode loop from an empty cache: each step gives the same bits as attention over contiguous K
// and V.
#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "paged/testing/decode_check.h"

namespace attnlab::paged {
namespace {

TEST(PagedDecode, EachStepIsAsWithContiguousKv) {
  DecodeCase c;
  c.problem = "b=3,hq=2,hkv=1,sq=1,skv=4096,d=16,dtype=fp32,lens=padded,page=16";
  c.kernel = "cpu";
  c.config = "threads=1";  // a step is too small for more
  EXPECT_EQ(CheckDecode(c, Device::Cpu()), absl::OkStatus());
}

}  // namespace
}  // namespace attnlab::paged
