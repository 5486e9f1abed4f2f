// Every path has its test: whatever a kernel supports, at each compute capability, has a problem in
// the suite. It also has one in the reduced suite, which code for older GPUs and sanitizers run.
#include "attention/conformance/coverage.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "attention/conformance/conformance.h"
#include "attention/core/registry.h"
#include "gtest/gtest.h"

namespace attnlab::conformance {
namespace {

TEST(CoverageTest, EveryFeatureHasItsCases) {
  const std::vector<Column> columns = Columns(Registry::Global().All());
  ASSERT_FALSE(columns.empty());
  // A sample of all possible problems, which the suite must cover.
  const std::vector<Case> many = EdgeCases(/*seed=*/2, 2000);
  const std::vector<Case> full = ConformanceCases(), reduced = ReducedCases();
  for (const Column& column : columns) {
    SCOPED_TRACE(column.name);
    const Counts possible = Count(column, many);
    Counts in_full = Count(column, full), in_reduced = Count(column, reduced);
    EXPECT_GE(possible.size(), 30);
    for (const auto& [feature, checks] : possible) {
      for (const auto& [check, count] : checks) {
        EXPECT_GT(in_full[feature][check], 0) << feature << ", " << check;
      }
      EXPECT_GT(in_reduced[feature]["matches_oracle"], 0) << feature;
    }
  }
}

TEST(CoverageTest, EveryExampleOfAConfigurationRuns) {
  std::map<std::string, int> counts;
  for (const Column& column : Columns(Registry::Global().All())) {
    for (const auto& [config, count] : CountConfigs(column, ReducedCases())) {
      counts[column.kernel->traits().name + " " + config] += count;
    }
  }
  for (const auto& [config, count] : counts) EXPECT_GT(count, 0) << config;
}

TEST(CoverageTest, TheDocumentIsTrue) {
  const std::vector<const Kernel*> kernels = Registry::Global().All();
  const bool gpu = std::any_of(kernels.begin(), kernels.end(), [](const Kernel* kernel) {
    return kernel->traits().device == DeviceKind::kCuda;
  });
  if (!gpu) GTEST_SKIP() << "no CUDA kernel is linked";
  std::ifstream file("docs/coverage.md");
  std::stringstream document;
  document << file.rdbuf();
  EXPECT_TRUE(document.str() == CoverageTables(kernels))
      << "bazel run //attention/conformance:coverage -- --coverage >docs/coverage.md";
}

}  // namespace
}  // namespace attnlab::conformance
