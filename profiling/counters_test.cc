// Counters against kernels whose traffic is known. Needs a GPU; skipped where the driver keeps its
// counters to administrators.
#include "profiling/counters.h"

// Included first: counters.h must not bring in headers of the driver or of CUPTI.
#if defined(CUDA_VERSION) || defined(CUPTI_API_VERSION)
#error "profiling/counters.h includes cuda.h or CUPTI"
#endif

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cuda_runtime_api.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "profiling/known_traffic.h"
#include "profiling/l2_flush.h"

namespace attnlab::profiling {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBytes = int64_t{1} << 30;  // far larger than any L2

class CountersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto counters = Counters::Open(0, "traffic");
    if (absl::IsPermissionDenied(counters.status())) GTEST_SKIP() << counters.status().message();
    ASSERT_TRUE(counters.ok()) << counters.status();
    ASSERT_EQ(cudaMalloc(&from_, kBytes), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&to_, kBytes), cudaSuccess);
    ASSERT_EQ(FillBytes(from_, kBytes, 3, nullptr), cudaSuccess);
    auto flush = L2Flush::Create(0);
    ASSERT_TRUE(flush.ok()) << flush.status();
    flush_ = *std::move(flush);
  }
  void TearDown() override {
    cudaFree(from_);
    cudaFree(to_);
  }

  // Values by name. Each pass begins with an empty L2.
  std::map<std::string, double> Count(Counters& counters,
                                      const std::function<cudaError_t()>& launch) {
    int64_t passes = 0;
    while (!counters.Done()) {
      EXPECT_TRUE(flush_->Flush(nullptr).ok());
      absl::StatusOr<Counters::Pass> pass = counters.Begin();
      EXPECT_TRUE(pass.ok()) << pass.status();
      if (!pass.ok()) return {};
      EXPECT_EQ(launch(), cudaSuccess);
      const absl::Status s = pass->End();
      EXPECT_TRUE(s.ok()) << s;
      if (!s.ok()) return {};
      ++passes;
    }
    EXPECT_EQ(passes, counters.Passes());
    const auto values = counters.Read();
    EXPECT_TRUE(values.ok()) << values.status();
    std::map<std::string, double> by_name;
    if (!values.ok()) return by_name;
    for (const Value& value : *values) by_name[value.name] = value.value;
    return by_name;
  }

  std::map<std::string, double> CountTraffic(const std::function<cudaError_t()>& launch) {
    auto counters = Counters::Open(0, "traffic");
    EXPECT_TRUE(counters.ok()) << counters.status();
    return counters.ok() ? Count(**counters, launch) : std::map<std::string, double>();
  }

  // Reads agree to 1 % and 1 MiB. Up to one L2 of the writes may not have reached memory yet.
  void ExpectTraffic(std::map<std::string, double> counted, double read, double written) {
    EXPECT_NEAR(counted["hbm_bytes_read"], read, 0.01 * read + (1 << 20));
    EXPECT_NEAR(counted["hbm_bytes_written"], written,
                0.01 * written + static_cast<double>(flush_->l2_bytes()));
    EXPECT_GT(counted["range_duration"], kBytes / 20e12);  // a bandwidth below 20 TB/s
    EXPECT_LT(counted["range_duration"], 1);
  }

  void *from_ = nullptr, *to_ = nullptr;
  std::unique_ptr<L2Flush> flush_;
};

TEST_F(CountersTest, CopiesReadsAndFills) {
  ExpectTraffic(CountTraffic([&] { return CopyBytes(from_, to_, kBytes, nullptr); }), kBytes,
                kBytes);
  ExpectTraffic(CountTraffic([&] { return ReadBytes(from_, kBytes, nullptr); }), kBytes, 0);
  ExpectTraffic(CountTraffic([&] { return FillBytes(to_, kBytes, 7, nullptr); }), 0, kBytes);
}

TEST_F(CountersTest, SeveralKernelsAreOneRange) {
  const auto counted = CountTraffic([&] {
    const cudaError_t error = CopyBytes(from_, to_, kBytes, nullptr);
    return error != cudaSuccess ? error : ReadBytes(to_, kBytes, nullptr);
  });
  // The second kernel may find the end of what the first one wrote in L2.
  EXPECT_LE(counted.at("hbm_bytes_read"), 2.01 * kBytes);
  EXPECT_GE(counted.at("hbm_bytes_read"), 1.99 * kBytes - static_cast<double>(flush_->l2_bytes()));
  EXPECT_NEAR(counted.at("hbm_bytes_written"), kBytes, 0.01 * kBytes);
}

TEST_F(CountersTest, CountsAnewAfterRead) {
  auto counters = Counters::Open(0, "traffic");
  ASSERT_TRUE(counters.ok()) << counters.status();
  for (int i = 0; i < 3; ++i) {
    ExpectTraffic(Count(**counters, [&] { return ReadBytes(from_, kBytes >> i, nullptr); }),
                  static_cast<double>(kBytes >> i), 0);
  }
}

TEST_F(CountersTest, SetsOfSeveralPasses) {
  auto counters = Counters::Open(0, "all");
  ASSERT_TRUE(counters.ok()) << counters.status();
  EXPECT_GT((*counters)->Passes(), 1);
  const auto counted = Count(**counters, [&] { return CopyBytes(from_, to_, kBytes, nullptr); });
  ExpectTraffic(counted, kBytes, kBytes);
  EXPECT_NEAR(counted.at("l2_sectors_read") * 32, kBytes, 0.01 * kBytes);
  EXPECT_NEAR(counted.at("l2_sectors_written") * 32, kBytes, 0.01 * kBytes);
  EXPECT_EQ(counted.at("tensor_flops_bf16"), 0);
  EXPECT_EQ(counted.at("shared_bank_conflicts"), 0);
  EXPECT_GT(counted.at("occupancy"), 30);
  EXPECT_LE(counted.at("occupancy"), 100);
  for (const auto& [name, value] : counted) EXPECT_FALSE(std::isnan(value)) << name;
}

TEST_F(CountersTest, MetricsByName) {
  auto counters = Counters::Open(0, "", {"sm__warps_launched.sum", "lts__t_bytes.sum"});
  ASSERT_TRUE(counters.ok()) << counters.status();
  const auto counted = Count(**counters, [&] { return ReadBytes(from_, kBytes, nullptr); });
  EXPECT_GT(counted.at("sm__warps_launched.sum"), 0);
  EXPECT_GE(counted.at("lts__t_bytes.sum"), 0.99 * kBytes);
  const absl::Status s = Counters::Open(0, "", {"sm__warps_lunched.sum"}).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(s.message()), HasSubstr("sm__warps_lunched.sum"));
  EXPECT_EQ(Counters::Open(0, "").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CountersTest, TheOrderOfCallsIsChecked) {
  auto counters = Counters::Open(0, "traffic");
  ASSERT_TRUE(counters.ok()) << counters.status();
  EXPECT_EQ((*counters)->Read().status().code(), absl::StatusCode::kFailedPrecondition);
  absl::StatusOr<Counters::Pass> pass = (*counters)->Begin();
  ASSERT_TRUE(pass.ok()) << pass.status();
  EXPECT_EQ((*counters)->Begin().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(pass->End().ok());
  EXPECT_EQ(pass->End().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE((*counters)->Done());
  EXPECT_EQ((*counters)->Begin().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CountersTest, APassThatIsLeftIsNotCounted) {
  auto counters = Counters::Open(0, "traffic");
  ASSERT_TRUE(counters.ok()) << counters.status();
  {
    absl::StatusOr<Counters::Pass> pass = (*counters)->Begin();
    ASSERT_TRUE(pass.ok()) << pass.status();
    ASSERT_EQ(CopyBytes(from_, to_, kBytes, nullptr), cudaSuccess);
  }
  EXPECT_FALSE((*counters)->Done());
  ExpectTraffic(Count(**counters, [&] { return ReadBytes(from_, kBytes / 2, nullptr); }),
                kBytes / 2, 0);
}

TEST_F(CountersTest, ALaunchThatFailsIsAnErrorOfItsPass) {
  auto counters = Counters::Open(0, "traffic");
  ASSERT_TRUE(counters.ok()) << counters.status();
  absl::StatusOr<Counters::Pass> pass = (*counters)->Begin();
  ASSERT_TRUE(pass.ok()) << pass.status();
  EXPECT_NE(cudaMemcpyAsync(to_, from_, 1, static_cast<cudaMemcpyKind>(99)), cudaSuccess);
  EXPECT_FALSE(pass->End().ok());
  EXPECT_FALSE((*counters)->Done());
  ExpectTraffic(Count(**counters, [&] { return ReadBytes(from_, kBytes, nullptr); }), kBytes, 0);
}

TEST_F(CountersTest, UnknownSetsAndGpus) {
  EXPECT_EQ(Counters::Open(0, "trafic").status().code(), absl::StatusCode::kNotFound);
  for (const int ordinal : {-1, 999}) {
    const absl::Status s = Counters::Open(ordinal, "traffic").status();
    EXPECT_EQ(s.code(), absl::StatusCode::kUnavailable) << s;
  }
}

}  // namespace
}  // namespace attnlab::profiling
