#include "profiling/chip.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "profiling/cupti.h"

namespace attnlab::profiling {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

Chip Open(const std::string& name) {
  absl::StatusOr<Chip> chip = Chip::Open(name);
  EXPECT_TRUE(chip.ok()) << chip.status();
  return *std::move(chip);
}

TEST(ChipTest, NamesThoseOfEveryGenerationFromTuringOn) {
  const auto names = Chip::Names();
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, IsSupersetOf({"TU102", "GA100", "AD102", "GH100", "GB100"}));
  EXPECT_TRUE(std::is_sorted(names->begin(), names->end()));
}

TEST(ChipTest, AnUnknownOneIsAnErrorThatNamesThoseThereAre) {
  const absl::Status s = Chip::Open("GH1").status();
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(s.message()), HasSubstr("chip: GH1 is not one of "));
  EXPECT_THAT(std::string(s.message()), HasSubstr("GH100"));
}

TEST(ChipTest, KnowsItsMetrics) {
  const Chip chip = Open("GH100");
  EXPECT_EQ(chip.name(), "GH100");
  EXPECT_FALSE(chip.Has("dram__bytes_read"));
  const absl::Status base = chip.Passes({"dram__bytes_read"}).status();
  EXPECT_EQ(base.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(base.message()).find("dram__bytes_read.sum,"), std::string::npos) << base;
  EXPECT_TRUE(chip.Has("dram__bytes_read.sum"));
  EXPECT_FALSE(chip.Has("dram__bytes_read.no_such_rollup"));
  EXPECT_FALSE(chip.Has("dram__bytes_fetched.sum"));
  EXPECT_FALSE(chip.Has(""));
  const auto description = chip.Description("dram__bytes_read.sum");
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_THAT(*description, HasSubstr("DRAM"));
  EXPECT_EQ(chip.Description("dram__bytes_fetched.sum").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(ChipTest, ListsAllOfThem) {
  const Chip chip = Open("GH100");
  const auto base_names = chip.BaseNames();
  ASSERT_TRUE(base_names.ok()) << base_names.status();
  EXPECT_GT(base_names->size(), 1000u);
  EXPECT_THAT(*base_names, IsSupersetOf({"dram__bytes_read", "lts__t_sector_hit_rate"}));
  const auto metrics = chip.MetricsOf("dram__bytes_read");
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_THAT(*metrics, IsSupersetOf({"dram__bytes_read.sum", "dram__bytes_read.avg",
                                      "dram__bytes_read.sum.per_second"}));
  for (const std::string& metric : *metrics) EXPECT_TRUE(chip.Has(metric)) << metric;
  const auto ratio = chip.MetricsOf("lts__t_sector_hit_rate");
  ASSERT_TRUE(ratio.ok()) << ratio.status();
  EXPECT_THAT(*ratio, Contains("lts__t_sector_hit_rate.pct"));
  EXPECT_EQ(chip.MetricsOf("dram__bytes_fetched").status().code(), absl::StatusCode::kNotFound);
}

TEST(ChipTest, CountsPasses) {
  const Chip chip = Open("GH100");
  EXPECT_EQ(chip.Passes({}).value(), 0);
  EXPECT_EQ(chip.Passes({"dram__bytes_read.sum"}).value(), 1);
  // Where counters do not fit together.
  EXPECT_GT(chip.Passes({"dram__bytes_read.sum", "lts__t_sector_hit_rate.pct"}).value(), 1);
  const absl::Status s = chip.Passes({"dram__bytes_read.sum", "dram__bytes.fetched"}).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(s.message(), "metric: GH100 has no dram__bytes.fetched");
}

TEST(CuptiTest, ErrorsSayWhatToDo) {
  const absl::StatusOr<const Cupti*> cupti = LoadCupti();
  ASSERT_TRUE(cupti.ok()) << cupti.status();
  EXPECT_TRUE((*cupti)->Check(CUPTI_SUCCESS, "call").ok());
  const absl::Status denied = (*cupti)->Check(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, "call");
  EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(denied.message()),
              HasSubstr("call: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"));
  EXPECT_THAT(std::string(denied.message()), HasSubstr("CAP_SYS_ADMIN"));
  const absl::Status busy = (*cupti)->Check(CUPTI_ERROR_HARDWARE_BUSY, "call");
  EXPECT_EQ(busy.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(busy.message()), HasSubstr("Another profiler"));
}

}  // namespace
}  // namespace attnlab::profiling
