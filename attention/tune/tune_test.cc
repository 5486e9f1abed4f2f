#include "attention/tune/tune.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/core/registry.h"
#include "attention/cuda/machine.h"
#include "gtest/gtest.h"
#include "tools/lib/files.h"

namespace attnlab::tune {
namespace {

// A kernel that computes nothing. These tests say themselves what its configurations do.
class Toy : public Kernel {
 public:
  Toy() {
    traits_.name = "toy";
    traits_.summary = "computes nothing";
    traits_.config_keys = {"x: a number", "y: another one"};
    traits_.tunable = {{"x", {"1", "2", "3"}}, {"y", {"1"}}};
    traits_.preference = 1;
  }
  const KernelTraits& traits() const override { return traits_; }
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& problem, const DeviceInfo&,
      const LaunchConfig& config) const override {
    if (config.Get("x", "") == "3") return absl::UnimplementedError("x=3 does not exist");
    if (problem.sq > 100 && !config.empty()) return absl::UnimplementedError("sq");
    return PreparedAs(0, [](const AttentionTensors&, const Launch&) { return absl::OkStatus(); });
  }

 private:
  KernelTraits traits_;
};
ATTNLAB_REGISTER_KERNEL(Toy);

// Says what each configuration is like, and remembers what was asked.
class FakeTrials : public Trials {
 public:
  struct Is {
    std::string config;
    double seconds = 1;
    absl::Status check = {}, time = {};
  };

  explicit FakeTrials(std::vector<Is> all, double noise = 0.001)
      : all_(std::move(all)), noise_(noise) {}

  absl::Status Check(const Plan& plan) override {
    checked.push_back(plan.config.ToString());
    problem = plan.problem.ToString();
    if (on_check) on_check();
    return Of(plan).check;
  }
  absl::StatusOr<std::vector<Timed>> Time(absl::Span<const Plan> plans, double, double) override {
    std::vector<Timed> timed;
    timed_configs.emplace_back();
    for (const Plan& plan : plans) {
      const Is is = Of(plan);
      bench::Timing t;
      t.median = is.seconds;
      t.p10 = is.seconds * (1 - 5 * noise_), t.p90 = is.seconds * (1 + 5 * noise_);
      t.noise = noise_;
      timed.push_back({is.time, t});
      timed_configs.back().push_back(plan.config.ToString());
    }
    return timed;
  }

  std::vector<std::string> checked;
  std::vector<std::vector<std::string>> timed_configs;
  std::string problem;
  std::function<void()> on_check;

 private:
  Is Of(const Plan& plan) const {
    for (const Is& is : all_) {
      if (is.config == plan.config.ToString()) return is;
    }
    return {};
  }
  const std::vector<Is> all_;
  const double noise_;
};

std::string Path() {
  return absl::StrCat(testing::TempDir(), "/",
                      testing::UnitTest::GetInstance()->current_test_info()->name(),
                      "/tuning.json");
}

const AttentionProblem kProblem = *AttentionProblem::Parse("b=3,hq=3,sq=30,d=8,scale=2");

absl::StatusOr<Tuned> Tune(Trials& trials, Options options = {}) {
  return GetOrTune(kProblem, CpuInfo(), options, Cache(Path()), trials);
}

TEST(TuneTest, FindsTheFastestAndKeepsIt) {
  FakeTrials trials({{"x=1", 0.9}, {"x=2", 0.5}, {"x=1,y=1", 0.6}, {"y=1", 2}});
  const absl::StatusOr<Tuned> tuned = Tune(trials);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_EQ(tuned->kernel, "toy");
  EXPECT_EQ(tuned->choice.config.ToString(), "x=2");
  EXPECT_EQ(tuned->choice.seconds, 0.5);
  EXPECT_EQ(tuned->choice.default_seconds, 1);
  EXPECT_FALSE(tuned->from_cache);
  EXPECT_EQ(tuned->candidates, 5);  // x = 1, 2; y = 1; and both
  EXPECT_EQ(tuned->remark, "");
  // The representative of the class is tried, the kernel's own choice first.
  EXPECT_EQ(trials.problem, "b=4,hq=4,hkv=4,sq=32,skv=32,d=8,dtype=bf16,mask=none");
  EXPECT_EQ(trials.checked,
            (std::vector<std::string>{"", "x=1", "x=2", "y=1", "x=1,y=1", "x=2,y=1"}));
  // Those that may be fastest are timed again, beside the kernel's own choice.
  ASSERT_EQ(trials.timed_configs.size(), 2u);
  EXPECT_EQ(trials.timed_configs[0].size(), 6u);
  EXPECT_EQ(trials.timed_configs[1], (std::vector<std::string>{"", "x=2"}));

  FakeTrials none({});
  const absl::StatusOr<Tuned> again = Tune(none);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->from_cache);
  EXPECT_EQ(again->choice.config.ToString(), "x=2");
  EXPECT_TRUE(none.checked.empty());
  Options anew;
  anew.anew = true;
  EXPECT_FALSE(Tune(none, anew)->from_cache);
  EXPECT_EQ(Tune(none)->choice.config.ToString(), "");
}

TEST(TuneTest, WithinTheNoiseTheKernelsOwnChoiceStays) {
  FakeTrials close({{"x=1", 0.99}, {"x=2", 0.98}}, /*noise=*/0.02);
  absl::StatusOr<Tuned> tuned = Tune(close);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_EQ(tuned->choice.config.ToString(), "");
  EXPECT_EQ(close.timed_configs[1].size(), 4u);  // with the fastest three
  EXPECT_EQ(Tune(close)->from_cache, true);      // that is a result, too
}

TEST(TuneTest, ACandidateThatIsWrongOrFailsIsOut) {
  FakeTrials trials({{"x=1", 0.1, absl::DataLossError("wrong")},
                     {"x=2", 0.2, absl::OkStatus(), absl::InternalError("launch failed")},
                     {"x=1,y=1", 0.3},
                     {"y=1", 0.4, absl::InternalError("killed by signal 11")}});
  const absl::StatusOr<Tuned> tuned = Tune(trials);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_EQ(tuned->choice.config.ToString(), "x=1,y=1");
  ASSERT_EQ(tuned->rejected.size(), 3u);
  EXPECT_EQ(tuned->rejected[0].config.ToString(), "x=1");
  EXPECT_EQ(tuned->rejected[0].reason, "wrong");
  EXPECT_EQ(tuned->rejected[1].reason, "killed by signal 11");
  EXPECT_EQ(tuned->rejected[2].config.ToString(), "x=2");
  EXPECT_EQ(tuned->rejected[2].reason, "launch failed");
  for (const std::string& config : trials.timed_configs[0]) EXPECT_NE(config, "x=1");
}

TEST(TuneTest, WhereTheKernelsOwnChoiceIsWrongNothingIsKept) {
  FakeTrials wrong({{"", 1, absl::DataLossError("wrong")}});
  EXPECT_EQ(Tune(wrong).status().code(), absl::StatusCode::kInternal);
  FakeTrials fails({{"", 1, absl::OkStatus(), absl::InternalError("no memory")}});
  const absl::Status s = Tune(fails).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kInternal);
  EXPECT_NE(s.message().find("toy: the kernel's own choice cannot be timed: no memory"),
            std::string::npos)
      << s;
  EXPECT_TRUE(absl::IsNotFound(ReadFile(Path(), 100).status()));
}

TEST(TuneTest, TheTimeIsKept) {
  FakeTrials slow({{"x=1", 0.5}});
  slow.on_check = [] { std::this_thread::sleep_for(std::chrono::milliseconds(60)); };
  Options options;
  options.seconds = 0.2;  // half of it for checks
  std::vector<double> left;
  options.progress = [&](absl::string_view, double seconds) { left.push_back(seconds); };
  const absl::StatusOr<Tuned> tuned = Tune(slow, options);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_EQ(slow.checked.size(), 2u);
  EXPECT_EQ(tuned->candidates, 5);
  EXPECT_EQ(tuned->untried, 4);
  EXPECT_FALSE(tuned->kept);
  EXPECT_EQ(tuned->choice.config.ToString(), "x=1");
  ASSERT_GE(left.size(), 3u);
  EXPECT_LE(left.front(), 0.2);
  EXPECT_GT(left.front(), left.back());
  // A choice among few candidates is not kept: the next search begins anew.
  FakeTrials quick({{"x=2", 0.5}});
  EXPECT_EQ(Tune(quick)->choice.config.ToString(), "x=2");
  EXPECT_TRUE(Tune(quick)->from_cache);
}

TEST(TuneTest, StopsWhenAsked) {
  FakeTrials trials({});
  Options options;
  options.stopped = [&] { return trials.checked.size() == 2; };
  EXPECT_EQ(Tune(trials, options).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(absl::IsNotFound(ReadFile(Path(), 100).status()));
}

TEST(TuneTest, WithoutAUsableCacheTheChoiceIsNotKept) {
  FakeTrials trials({{"x=1", 0.5}});
  const absl::StatusOr<Tuned> tuned =
      GetOrTune(kProblem, CpuInfo(), {}, Cache("/proc/no/tuning.json"), trials);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_EQ(tuned->choice.config.ToString(), "x=1");
  EXPECT_FALSE(tuned->kept);
  EXPECT_NE(tuned->remark.find("the choice is not kept"), std::string::npos) << tuned->remark;
}

TEST(TuneTest, PlansUseTheCache) {
  FakeTrials trials({{"x=1", 0.5}});
  ASSERT_TRUE(Tune(trials).ok());
  const Cache cache(Path());
  const auto config = [&](const AttentionProblem& p, const Cache& from) {
    const absl::StatusOr<Plan> plan = MakeTunedPlan(p, Device::Cpu(), from);
    return plan.ok() ? plan->config.ToString() : plan.status().ToString();
  };
  EXPECT_EQ(config(kProblem, cache), "x=1");
  AttentionProblem p = kProblem;
  p.sq = p.skv = 35;  // of the same class
  EXPECT_EQ(config(p, cache), "x=1");
  p.sq = p.skv = 64;
  EXPECT_EQ(config(p, cache), "");
  EXPECT_EQ(config(kProblem, Cache(Path() + ".none")), "");
  EXPECT_EQ(MakeTunedPlan(kProblem, Device::Cpu(), cache, "unknown").status().code(),
            MakePlan(kProblem, Device::Cpu(), "unknown").status().code());
  // A choice that the kernel declines is not used.
  std::string remark;
  const Key key = *KeyOf(CpuInfo(), "toy", trials.problem);
  ASSERT_TRUE(cache.Store(key, {*LaunchConfig::Parse("x=3"), 1, 1}, &remark).ok());
  EXPECT_EQ(config(kProblem, cache), "");
  EXPECT_FALSE(Tune(trials)->from_cache);
}

}  // namespace
}  // namespace attnlab::tune
