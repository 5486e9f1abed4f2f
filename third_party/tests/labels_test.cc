// Tests the labels of the external libraries: each header is found, each library links, and its
// code runs.
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "benchmark/benchmark.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/aligned_allocator.h"
#include "hwy/highway.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(int, labels_test_flag, 7, "A flag, so that the flag library is linked.");

namespace {

absl::StatusOr<int> ParsePositive(absl::string_view text) {
  int value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    return absl::InvalidArgumentError(absl::StrCat("not a number: ", text));
  }
  if (value <= 0) return absl::OutOfRangeError(absl::StrFormat("%d is not positive", value));
  return value;
}

int64_t Sum(absl::Span<const int64_t> values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

TEST(LabelsTest, AbslStatus) {
  EXPECT_EQ(*ParsePositive("12"), 12);
  EXPECT_EQ(ParsePositive("-3").status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(ParsePositive("x").status().ToString(), testing::HasSubstr("not a number: x"));
}

TEST(LabelsTest, AbslContainersFlagsAndSpans) {
  absl::flat_hash_map<std::string, int> map = {{"q", 1}, {"k", 2}};
  EXPECT_EQ(map.at("k"), 2);
  EXPECT_EQ(absl::GetFlag(FLAGS_labels_test_flag), 7);
  EXPECT_EQ(Sum({1, 2, 3}), 6);
}

TEST(LabelsTest, HighwayFindsATargetAndAllocates) {
  EXPECT_NE(hwy::SupportedTargets(), 0);
  const size_t n = 100;
  auto data = hwy::AllocateAligned<float>(n);
  ASSERT_NE(data, nullptr);
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < n; ++i) data[i] = static_cast<float>(i);
  const size_t lanes = hn::Lanes(d);
  auto sum = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) sum = hn::Add(sum, hn::Load(d, data.get() + i));
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += data[i];
  EXPECT_EQ(total, 4950.0f);
}

TEST(LabelsTest, Json) {
  const auto json = nlohmann::json::parse(R"({"kernel": "cpu", "ms": [1.5, 2.5]})");
  EXPECT_EQ(json["kernel"], "cpu");
  EXPECT_EQ(json["ms"][1], 2.5);
  EXPECT_TRUE(nlohmann::json::parse("{", nullptr, /*allow_exceptions=*/false).is_discarded());
}

TEST(LabelsTest, Benchmark) {
  EXPECT_EQ(benchmark::CreateDefaultDisplayReporter(), benchmark::CreateDefaultDisplayReporter());
  int64_t iterations = 0;
  benchmark::RegisterBenchmark("count", [&](benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(++iterations);
  })->Iterations(10);
  EXPECT_EQ(benchmark::RunSpecifiedBenchmarks(), 1u);
  EXPECT_EQ(iterations, 10);
}

}  // namespace
