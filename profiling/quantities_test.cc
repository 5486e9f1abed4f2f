#include "profiling/quantities.h"

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "profiling/chip.h"

namespace attnlab::profiling {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

// One of each generation from 8.0 on.
constexpr const char* kChips[] = {"GA100", "AD102", "GH100", "GB100"};

std::vector<Counted> ResolveOf(const Chip& chip, absl::string_view set) {
  const absl::StatusOr<std::vector<Counted>> counted = Resolve(chip, set);
  EXPECT_TRUE(counted.ok()) << counted.status();
  return counted.value_or(std::vector<Counted>());
}

std::vector<std::string> NamesOf(const std::vector<Counted>& counted) {
  std::vector<std::string> names;
  for (const Counted& c : counted) names.push_back(c.name);
  return names;
}

TEST(QuantitiesTest, EachHasANameOfItsOwnAndASetThatThereIs) {
  std::set<std::string> names;
  for (const Quantity& q : Quantities()) {
    EXPECT_TRUE(names.emplace(q.name).second) << q.name;
    EXPECT_THAT(Sets(), Contains(q.set)) << q.name;
    EXPECT_NE(q.set, "all") << q.name;
    EXPECT_FALSE(q.meaning.empty()) << q.name;
  }
}

TEST(QuantitiesTest, EveryChipCountsTrafficInOnePass) {
  for (const char* name : kChips) {
    const Chip chip = Chip::Open(name).value();
    const std::vector<Counted> counted = ResolveOf(chip, "traffic");
    EXPECT_THAT(NamesOf(counted),
                ElementsAre("hbm_bytes_read", "hbm_bytes_written", "range_duration"))
        << name;
    EXPECT_EQ(chip.Passes(MetricsOf(counted)).value(), 1) << name;
  }
}

TEST(QuantitiesTest, EveryMetricOfEverySetIsOneOfTheChip) {
  for (const char* name : kChips) {
    const Chip chip = Chip::Open(name).value();
    for (const absl::string_view set : Sets()) {
      const std::vector<std::string> metrics = MetricsOf(ResolveOf(chip, set));
      EXPECT_FALSE(metrics.empty()) << name << " " << set;
      for (const std::string& metric : metrics) EXPECT_TRUE(chip.Has(metric)) << name << metric;
    }
  }
}

// What no chip but a few may leave out.
TEST(QuantitiesTest, LittleIsNotCounted) {
  const std::set<std::string> some = {"tma_bytes_read", "stall_gmma", "tensor_flops_fp8"};
  for (const char* name : kChips) {
    const Chip chip = Chip::Open(name).value();
    const std::vector<std::string> names = NamesOf(ResolveOf(chip, "all"));
    for (const Quantity& q : Quantities()) {
      if (some.count(std::string(q.name)) != 0) continue;
      EXPECT_THAT(names, Contains(std::string(q.name))) << name;
    }
  }
  const std::vector<std::string> hopper = NamesOf(ResolveOf(Chip::Open("GH100").value(), "all"));
  for (const std::string& name : some) EXPECT_THAT(hopper, Contains(name));
  EXPECT_THAT(NamesOf(ResolveOf(Chip::Open("GA100").value(), "all")),
              Not(Contains("tma_bytes_read")));
}

// Names that this or that chip has.
TEST(QuantitiesTest, SpellingsGoByTheChip) {
  const auto metrics = [](const char* chip, absl::string_view quantity) {
    for (const Counted& c : ResolveOf(Chip::Open(chip).value(), "all")) {
      if (c.name == quantity) return c.metrics;
    }
    return std::vector<std::string>();
  };
  EXPECT_THAT(metrics("GH100", "tensor_flops_fp16"),
              ElementsAre("sm__ops_path_tensor_src_fp16.sum"));
  EXPECT_THAT(metrics("GA100", "tensor_flops_fp16"),
              ElementsAre("sm__ops_path_tensor_src_fp16_dst_fp16.sum",
                          "sm__ops_path_tensor_src_fp16_dst_fp32.sum"));
  EXPECT_THAT(metrics("GB202", "hbm_bytes_read"), ElementsAre("dram__bytes_op_read.sum"));
}

TEST(QuantitiesTest, PassesOfTheSets) {
  const auto passes = [](const char* name, absl::string_view set) {
    const Chip chip = Chip::Open(name).value();
    return chip.Passes(MetricsOf(ResolveOf(chip, set))).value();
  };
  for (const char* name : kChips) {
    for (const absl::string_view set : Sets()) {
      RecordProperty(absl::StrCat(name, "_", set), std::to_string(passes(name, set)));
      EXPECT_LE(passes(name, set), 24) << name << " " << set;
    }
  }
  EXPECT_LE(passes("GH100", "all"), 12);
}

TEST(QuantitiesTest, AnUnknownSetIsAnErrorThatNamesThoseThereAre) {
  const absl::Status s = Resolve(Chip::Open("GH100").value(), "trafic").status();
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(s.message(), "set: trafic is not one of traffic, l2, compute, stalls, all");
}

}  // namespace
}  // namespace attnlab::profiling
