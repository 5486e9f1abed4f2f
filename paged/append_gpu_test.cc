// On a GPU: Append() writes what it writes on the CPU.
#include "gtest/gtest.h"
#include "paged/testing/append_check.h"

namespace attnlab::paged {
namespace {

TEST(AppendOnGpu, EveryRowArrivesAndNothingElseIsWritten) {
  for (const AppendCase& c : AppendCases(/*seed=*/2, /*count=*/150)) {
    ASSERT_EQ(CheckAppend(c, Device::Cuda(0)), "") << c.ToString();
  }
}

}  // namespace
}  // namespace attnlab::paged
