#include "profiling/chip.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

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

TEST(ChipTest, CaseDoesNotMatter) { EXPECT_EQ(Open("gh100").name(), "GH100"); }

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
  // These counters do not fit in one pass.
  EXPECT_GT(chip.Passes({"dram__bytes_read.sum", "lts__t_sector_hit_rate.pct"}).value(), 1);
  const absl::Status s = chip.Passes({"dram__bytes_read.sum", "dram__bytes.fetched"}).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(s.message()), HasSubstr("metric: GH100 has no dram__bytes.fetched"));
}

// Not all metrics of one base name fit in one pass; each reports the passes that it takes alone.
TEST(ChipTest, FamiliesHaveThePassesOfEachMetric) {
  const Chip chip = Open("GH100");
  int families = 0, several = 0, none = 0;
  for (const char* text : {"dram__bytes_read", "fbpa__dram_cycles_elapsed",
                           "ctc__rx_bytes_data_user", "lts__throughput.", "sm__mioc_inst_ISSUED"}) {
    const absl::Status s = chip.ForEachFamily(text, [&](const Chip::Family& family) {
      ++families;
      EXPECT_EQ(family.description, chip.Description(family.base_name).value_or("")) << text;
      for (const Chip::Metric& metric : family.metrics) {
        EXPECT_THAT(metric.name, HasSubstr(absl::AsciiStrToLower(text)));
        const absl::StatusOr<int64_t> alone = chip.Passes({metric.name});
        EXPECT_EQ(metric.passes.has_value(), alone.ok()) << metric.name;
        if (alone.ok()) {
          EXPECT_EQ(metric.passes.value_or(-1), *alone) << metric.name;
        }
        several += metric.passes.value_or(0) > 1;
        none += !metric.passes.has_value();
      }
      return true;
    });
    EXPECT_TRUE(s.ok()) << s;
  }
  EXPECT_GT(families, 5);
  EXPECT_GT(several, 0);
  EXPECT_GT(none, 0);
}

TEST(ChipTest, FamiliesStopWhenTheyAreToldTo) {
  const Chip chip = Open("GH100");
  std::vector<std::string> names;
  ASSERT_TRUE(chip.ForEachFamily("",
                                 [&](const Chip::Family& family) {
                                   names.push_back(family.base_name);
                                   return names.size() < 3;
                                 })
                  .ok());
  const std::vector<std::string> all = chip.BaseNames().value();
  EXPECT_EQ(names, std::vector<std::string>(all.begin(), all.begin() + 3));
  ASSERT_TRUE(chip.ForEachFamily("no_such",
                                 [](const Chip::Family&) {
                                   ADD_FAILURE();
                                   return true;
                                 })
                  .ok());
}

TEST(ChipTest, NamesThatAreNearlyRight) {
  const Chip chip = Open("GH100");
  const auto says = [&](const std::string& metric) {
    return std::string(chip.Check(metric).message());
  };
  EXPECT_EQ(says("dram__bytes_reed.sum"),
            "metric: GH100 has no dram__bytes_reed.sum; did you mean dram__bytes_read.sum?");
  EXPECT_THAT(says("DRAM__bytes_read.avg"), HasSubstr("did you mean dram__bytes_read.avg?"));
  EXPECT_THAT(says("dram__bytes_read.summ"), HasSubstr("did you mean dram__bytes_read.sum?"));
  EXPECT_THAT(says("lts__t_sector_hit_rat"), HasSubstr("did you mean lts__t_sector_hit_rate."));
  EXPECT_THAT(says("dram__bytes_read.no_such_rollup"), HasSubstr("; dram__bytes_read has .avg, "));
  EXPECT_EQ(says("nothing_like_it"), "metric: GH100 has no nothing_like_it");
  EXPECT_EQ(says(""), "metric: GH100 has no ");
}

// A dot alone does not make a metric: base names may have one, too.
TEST(ChipTest, BaseNamesAreNoMetrics) {
  const Chip chip = Open("GH100");
  const std::vector<std::string> bases = chip.BaseNames().value();
  for (const std::string& base : bases) EXPECT_FALSE(chip.Has(base)) << base;
}

// CUPTI appends to its lists on every query.
TEST(ChipTest, ListsAreTheSameEachTime) {
  const Chip chip = Open("GH100");
  const std::vector<std::string> once = chip.BaseNames().value();
  EXPECT_EQ(chip.BaseNames().value(), once);
  EXPECT_EQ(std::adjacent_find(once.begin(), once.end()), once.end());
  const std::vector<std::string> metrics = chip.MetricsOf("dram__bytes_read").value();
  EXPECT_EQ(chip.MetricsOf("dram__bytes_read").value(), metrics);
  EXPECT_EQ(std::adjacent_find(metrics.begin(), metrics.end()), metrics.end());
}

// The oldest generation that attnlab has code for.
TEST(ChipTest, Turing) {
  const Chip chip = Open("TU102");
  EXPECT_TRUE(chip.Has("dram__bytes_read.sum"));
  EXPECT_EQ(chip.Passes({"dram__bytes_read.sum", "dram__bytes_write.sum"}).value(), 1);
}

}  // namespace
}  // namespace attnlab::profiling
