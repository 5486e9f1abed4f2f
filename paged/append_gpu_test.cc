// On a GPU: Append() writes what it writes on the CPU, in the order of the calls.
#include "gtest/gtest.h"
#include "paged/testing/append_check.h"
#include "paged/testing/append_order.h"

namespace attnlab::paged {
namespace {

TEST(AppendOnGpu, EveryRowArrivesAndNothingElseIsWritten) {
  for (AppendCase& c : AppendCases(/*seed=*/2, /*count=*/150)) {
    c.lost_pages = c.seed % 3 == 0;
    ASSERT_EQ(CheckAppend(c, Device::Cuda(0)), "") << c.ToString();
  }
}

TEST(AppendOnGpu, WritesNothingElseWhateverTheLengthsAndThePageTableSay) {
  for (AppendCase& c : AppendCases(/*seed=*/3, /*count=*/60)) {
    c.spoiled = true;
    ASSERT_EQ(CheckAppend(c, Device::Cuda(0)), "") << c.ToString();
  }
}

TEST(AppendOnGpu, WaitsForTheKernelAhead) { EXPECT_EQ(CheckAppendOrder(), ""); }

}  // namespace
}  // namespace attnlab::paged
