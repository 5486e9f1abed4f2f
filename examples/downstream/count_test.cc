// Counts what this project's own call reads from HBM. Uses attnlab's counter library and nothing
// else of attnlab.
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"
#include "gtest/gtest.h"
#include "profiling/counters.h"

namespace {

using attnlab::profiling::Counters;
using attnlab::profiling::Value;

constexpr size_t kBytes = size_t{1} << 29;  // far larger than L2

TEST(CountTest, ACopyReadsWhatItCopies) {
  absl::StatusOr<std::unique_ptr<Counters>> counters = Counters::Open(/*ordinal=*/0, "traffic");
  // The driver keeps its counters to administrators; the message says what to do.
  if (absl::IsPermissionDenied(counters.status())) GTEST_SKIP() << counters.status().message();
  ASSERT_TRUE(counters.ok()) << counters.status();
  void *from = nullptr, *to = nullptr;
  ASSERT_EQ(cudaMalloc(&from, kBytes), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&to, kBytes), cudaSuccess);
  ASSERT_EQ(cudaMemset(from, 7, kBytes), cudaSuccess);

  while (!(*counters)->Done()) {
    absl::StatusOr<Counters::Pass> pass = (*counters)->Begin();
    ASSERT_TRUE(pass.ok()) << pass.status();
    ASSERT_EQ(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice), cudaSuccess);
    const absl::Status s = pass->End();
    ASSERT_TRUE(s.ok()) << s;
  }
  const absl::StatusOr<std::vector<Value>> values = (*counters)->Read();
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->front().name, "hbm_bytes_read");
  // The end of what was written last may still be in L2.
  EXPECT_GT(values->front().value, 0.8 * kBytes);
  EXPECT_LT(values->front().value, 1.05 * kBytes);
  cudaFree(from);
  cudaFree(to);
}

}  // namespace
