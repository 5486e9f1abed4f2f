#include "profiling/quantities.h"

// Included first: quantities.h must not bring in headers of the driver or of CUPTI.
#if defined(CUDA_VERSION) || defined(CUPTI_API_VERSION)
#error "profiling/quantities.h includes cuda.h or CUPTI"
#endif

#include <algorithm>
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

// One chip of each generation.
constexpr const char* kChips[] = {"TU102", "GA100", "AD102", "GH100", "GB100"};

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

// Only the quantities in `some` may be missing on a chip.
TEST(QuantitiesTest, LittleIsNotCounted) {
  const std::set<std::string> some = {"tma_bytes_read", "stall_gmma", "tensor_flops_fp8"};
  for (const char* name : kChips) {
    const Chip chip = Chip::Open(name).value();
    const std::vector<std::string> names = NamesOf(ResolveOf(chip, "all"));
    for (const Quantity& q : Quantities()) {
      if (some.count(std::string(q.name)) != 0) continue;
      // Turing has fp16 tensor cores, but no metric for what they compute.
      if (chip.name() == "TU102" && q.name.find("tensor_flops_") == 0) continue;
      EXPECT_THAT(names, Contains(std::string(q.name))) << name;
    }
  }
  const std::vector<std::string> hopper = NamesOf(ResolveOf(Chip::Open("GH100").value(), "all"));
  for (const std::string& name : some) EXPECT_THAT(hopper, Contains(name));
  EXPECT_THAT(NamesOf(ResolveOf(Chip::Open("GA100").value(), "all")),
              Not(Contains("tma_bytes_read")));
}

// Spellings that differ between chips.
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

// Each stall reason of a chip belongs to exactly one quantity, so their shares add up to 1.
TEST(QuantitiesTest, StallsAreAllReasons) {
  const std::string begin = "smsp__average_warps_issue_stalled_";
  for (const char* name : {"TU102", "GA100", "AD102", "GH100", "GB100", "GB202"}) {
    const Chip chip = Chip::Open(name).value();
    const std::vector<Counted> counted = ResolveOf(chip, "stalls");
    std::multiset<std::string> metrics;
    for (const Counted& c : counted) metrics.insert(c.metrics.begin(), c.metrics.end());
    const std::vector<std::string> bases = chip.BaseNames().value();
    for (const std::string& base : bases) {
      if (base.find(begin) != 0) continue;
      // Some chips also have parts of a reason, which the reason already includes.
      if (base.find("_pipe_l1tex_") != std::string::npos) continue;
      if (base.find("_pipe_mio_") != std::string::npos) continue;
      EXPECT_EQ(metrics.count(base + ".ratio"), 1u) << name << " " << base;
    }
    EXPECT_EQ(counted.back().name, "stalls_and_issue") << name;
  }
}

TEST(QuantitiesTest, AQuantityHasPassesOfItsOwn) {
  const Chip chip = Chip::Open("GH100").value();
  int64_t most = 0;
  const std::vector<Counted> counted = ResolveOf(chip, "all");
  for (const Counted& c : counted) {
    const absl::StatusOr<int64_t> passes = chip.Passes(c.metrics);
    ASSERT_TRUE(passes.ok()) << passes.status();
    EXPECT_GE(*passes, 1) << c.name;
    most = std::max(most, *passes);
  }
  EXPECT_LE(most, chip.Passes(MetricsOf(counted)).value());
}

TEST(QuantitiesTest, AQuantityIsNoMetric) {
  const Chip chip = Chip::Open("GH100").value();
  const auto says = [&](const std::string& metric) {
    const absl::Status s = Resolve(chip, "", {metric}).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kNotFound) << metric;
    return std::string(s.message());
  };
  EXPECT_EQ(says("hbm_bytes_read"),
            "metric: hbm_bytes_read is a quantity of --set=traffic, not a metric of CUPTI");
  EXPECT_EQ(says("l2_hit_rat"),
            "metric: GH100 has no l2_hit_rat; l2_hit_rate is a quantity of --set=l2");
  EXPECT_EQ(says("dram__bytes_reed.sum"),
            "metric: GH100 has no dram__bytes_reed.sum; did you mean dram__bytes_read.sum?");
}

TEST(QuantitiesTest, AnUnknownSetIsAnErrorThatNamesThoseThereAre) {
  const absl::Status s = Resolve(Chip::Open("GH100").value(), "trafic").status();
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(s.message(), "set: trafic is not one of traffic, l2, compute, stalls, all");
}

}  // namespace
}  // namespace attnlab::profiling
