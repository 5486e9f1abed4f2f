#include "attention/bench/compare.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "attention/core/kernel.h"
#include "attention/core/parallel.h"
#include "attention/core/registry.h"
#include "attention/cuda/machine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::bench {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The oracle with a constant added. The test's own kernel, so it is not registered.
class Changed : public Kernel {
 public:
  explicit Changed(const char* name) : inner_(*Registry::Global().Find("reference")) {
    traits_ = inner_->traits();
    traits_.name = name;
  }
  const KernelTraits& traits() const override { return traits_; }
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(const AttentionProblem& p,
                                                          const DeviceInfo& d,
                                                          const LaunchConfig& c) const override {
    absl::StatusOr<std::unique_ptr<const Prepared>> inner = inner_->Prepare(p, d, c);
    if (!inner.ok()) return inner.status();
    const int64_t bytes = (*inner)->WorkspaceBytes();
    return PreparedAs(
        bytes, [this, inner = *std::move(inner)](const AttentionTensors& t, const Launch& l) {
          return Run(*inner, t, l);
        });
  }
  absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& d,
                                          const LaunchConfig& c) const override {
    return inner_->ExpectedTraffic(p, d, c);
  }

 protected:
  virtual absl::Status Run(const Prepared& inner, const AttentionTensors& t,
                           const Launch& l) const {
    return inner.Run(t, l);
  }

  const Kernel* inner_;
  KernelTraits traits_;
};

class Slow : public Changed {
 public:
  Slow() : Changed("slow") {}
  absl::Status Run(const Prepared& inner, const AttentionTensors& t,
                   const Launch& l) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return Changed::Run(inner, t, l);
  }
};

class Wrong : public Changed {
 public:
  Wrong() : Changed("wrong") {}
  absl::Status Run(const Prepared& inner, const AttentionTensors& t,
                   const Launch& l) const override {
    absl::Status s = Changed::Run(inner, t, l);
    static_cast<float*>(t.o.data)[0] += 0.5f;
    return s;
  }
};

class Failing : public Changed {
 public:
  Failing() : Changed("failing") {}
  absl::Status Run(const Prepared&, const AttentionTensors&, const Launch&) const override {
    return absl::InternalError("out of luck");
  }
};

Plan PlanOf(const Kernel* kernel = nullptr,
            const char* line = "hq=2,sq=32,d=16,dtype=fp32,mask=causal") {
  if (kernel == nullptr) kernel = *Registry::Global().Find("reference");
  return *MakePlan(*kernel, *AttentionProblem::Parse(line), CpuInfo());
}

Options Quick() {
  Options options;
  options.seconds = 0.02;
  options.min_repetitions = 3;
  options.max_repetitions = 10;
  options.memory_bytes = 1 << 20;
  options.max_noise = 1;
  return options;
}

TEST(CompareTest, RowsSayWhatWasMeasured) {
  Slow slow;
  std::vector<std::string> told;
  Options options = Quick();
  options.progress = [&told](absl::string_view what) { told.emplace_back(what); };
  const auto rows = Compare({PlanOf(), PlanOf(&slow)}, options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  for (const Row& row : *rows) {
    EXPECT_TRUE(row.verified) << row.verification.message;
    EXPECT_GT(row.verification.rows_checked, 0);
    EXPECT_GE(row.timing.repetitions, 3);
    EXPECT_LE(row.timing.repetitions, 10);
    EXPECT_GE(row.calls_per_repetition, 1);
    EXPECT_GT(row.timing.p10, 0);
    EXPECT_LE(row.timing.p10, row.timing.median);
    EXPECT_LE(row.timing.median, row.timing.p90);
    EXPECT_GE(row.input_sets, 1);
    EXPECT_EQ(row.compulsory.flops, CompulsoryTraffic(row.plan.problem).flops);
    EXPECT_GT(row.TflopPerSecond(), 0);
    EXPECT_GT(row.GbPerSecond(), 0);
    EXPECT_GT(row.MovedGbPerSecond(), 0);
  }
  EXPECT_EQ((*rows)[0].plan.kernel->traits().name, "reference");
  EXPECT_EQ((*rows)[1].plan.kernel->traits().name, "slow");
  EXPECT_GE((*rows)[1].timing.median, 0.02);
  EXPECT_LT((*rows)[1].timing.median, 2);
  EXPECT_LT((*rows)[0].timing.median, (*rows)[1].timing.median);
  EXPECT_THAT(told, Contains("verifying slow"));
  EXPECT_THAT(told, Contains("timing"));
}

TEST(CompareTest, AWrongKernelIsTimedAndSaidToBeWrong) {
  Wrong wrong;
  const auto rows = Compare({PlanOf(&wrong)}, Quick());
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_FALSE((*rows)[0].verified);
  EXPECT_FALSE((*rows)[0].verification.message.empty());
  EXPECT_GT((*rows)[0].verification.o.max_error, (*rows)[0].verification.o.bound);
  EXPECT_GT((*rows)[0].timing.median, 0);
}

TEST(CompareTest, WithoutVerificationNothingIsCalledVerified) {
  Options options = Quick();
  options.verify = false;
  const auto rows = Compare({PlanOf()}, options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_FALSE((*rows)[0].verified);
  EXPECT_EQ((*rows)[0].verification.rows_checked, 0);
}

// Fails from its fourth call on: during timing, after verification succeeded.
class FailingLater : public Changed {
 public:
  FailingLater() : Changed("failing_later") {}
  absl::Status Run(const Prepared& inner, const AttentionTensors& t,
                   const Launch& l) const override {
    if (++calls_ > 3) return absl::InternalError("worn out");
    return Changed::Run(inner, t, l);
  }

 private:
  mutable int calls_ = 0;
};

TEST(CompareTest, AKernelThatFailsDoesNotStopTheOthers) {
  Failing failing;
  for (bool verify : {true, false}) {
    FailingLater later;
    Options options = Quick();
    options.verify = verify;
    const auto rows = Compare({PlanOf(&failing), PlanOf(), PlanOf(&later)}, options);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ((*rows)[0].status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string((*rows)[0].status.message()), HasSubstr("failing"));
    EXPECT_THAT(std::string((*rows)[0].status.message()), HasSubstr("out of luck"));
    EXPECT_TRUE((*rows)[1].status.ok());
    EXPECT_GT((*rows)[1].timing.median, 0);
    EXPECT_EQ(std::string((*rows)[2].status.message()), "failing_later: worn out");
  }
  const auto alone = Compare({PlanOf(&failing)}, Quick());
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_FALSE((*alone)[0].status.ok());
}

TEST(CompareTest, PlansAreOfOneProblem) {
  EXPECT_EQ(Compare({PlanOf(), PlanOf(nullptr, "hq=1,sq=1,d=1")}, Quick()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Compare({}, Quick())->empty());
}

// Missing inputs on one device fail only the rows of that device.
TEST(CompareTest, RowsOfADeviceWithoutInputsSayWhy) {
  Plan elsewhere = PlanOf();
  elsewhere.device.device = Device::Cuda(1000);
  Options options = Quick();
  options.verify = false;
  const auto rows = Compare({elsewhere, PlanOf(), elsewhere}, options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (int i : {0, 2}) {
    EXPECT_FALSE((*rows)[i].status.ok());
    EXPECT_THAT(std::string((*rows)[i].status.message()), StartsWith("reference: "));
  }
  EXPECT_TRUE((*rows)[1].status.ok()) << (*rows)[1].status;
  EXPECT_GT((*rows)[1].timing.median, 0);
}

TEST(CompareTest, WhatDoesNotFitIsResourceExhausted) {
  Plan huge = PlanOf();
  huge.workspace_bytes = INT64_MAX / 2;
  Options options = Quick();
  options.verify = false;
  const auto rows = Compare({huge}, options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)[0].status.code(), absl::StatusCode::kResourceExhausted);
}

class Counting : public Changed {
 public:
  explicit Counting(const char* name) : Changed(name) {}
  absl::Status Run(const Prepared& inner, const AttentionTensors& t,
                   const Launch& l) const override {
    ++calls;
    return Changed::Run(inner, t, l);
  }
  mutable std::atomic<int64_t> calls{0};
};

TEST(CompareTest, StoppedBeforeItBeginsNothingRuns) {
  Counting kernel("counting");
  Options options = Quick();
  options.stopped = [] { return true; };
  const auto rows = Compare({PlanOf(&kernel), PlanOf()}, options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (const Row& row : *rows) {
    EXPECT_EQ(row.status.code(), absl::StatusCode::kCancelled) << row.status;
  }
  EXPECT_EQ(kernel.calls, 0);
}

TEST(CompareTest, StoppedWhileTimingKeepsWhatWasTimed) {
  Counting first("first");
  Options options = Quick();
  options.verify = false;
  options.seconds = options.timeout = 1000;
  options.min_repetitions = options.max_repetitions = 100000;
  options.stopped = [&first] { return first.calls > 2000; };
  const auto rows = Compare({PlanOf(&first)}, options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  const Row& row = (*rows)[0];
  ASSERT_TRUE(row.status.ok()) << row.status;
  EXPECT_GE(row.timing.repetitions, 1);
  EXPECT_LT(row.timing.repetitions, 100000);
  EXPECT_GT(row.timing.median, 0);
}

// Every second call takes 4 ms longer, so that the median is not known soon.
class Unsteady : public Changed {
 public:
  Unsteady() : Changed("unsteady") {}
  absl::Status Run(const Prepared& inner, const AttentionTensors& t,
                   const Launch& l) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(++calls_ % 2 == 0 ? 5 : 1));
    return Changed::Run(inner, t, l);
  }

 private:
  mutable int calls_ = 0;
};

TEST(CompareTest, TimingGoesOnUntilTheNoiseIsLowOrTimeIsUp) {
  Unsteady unsteady;
  Options options = Quick();
  options.verify = false;
  options.seconds = 0.001;
  options.max_noise = 0.02;
  options.timeout = 1;
  auto rows = Compare({PlanOf(&unsteady)}, options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE((*rows)[0].noisy);
  EXPECT_GT((*rows)[0].timing.noise, 0.02);
  EXPECT_GT((*rows)[0].timing.repetitions + (*rows)[0].timing.disturbed, 30);
  options.max_noise = 1;
  rows = Compare({PlanOf(&unsteady)}, options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_FALSE((*rows)[0].noisy);
  EXPECT_EQ((*rows)[0].timing.repetitions, 3);
}

// Uses `threads`, and writes down that it was called.
class Threaded : public Changed {
 public:
  Threaded(const char* name, int threads, std::vector<int>* called)
      : Changed(name), threads_(threads), called_(called) {}
  absl::Status Run(const Prepared& inner, const AttentionTensors& t,
                   const Launch& l) const override {
    called_->push_back(threads_);
    ParallelFor(threads_, threads_,
                [](int64_t, int) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
    return Changed::Run(inner, t, l);
  }

 private:
  int threads_;
  std::vector<int>* called_;
};

TEST(CompareTest, AfterAnotherNumberOfThreadsTheFirstCallIsNotTimed) {
  std::vector<int> called;
  Threaded one("one", 2, &called), other("other", 4, &called);
  Options options = Quick();
  options.verify = false;
  options.seconds = 60;  // a call that takes longer is the only one before the timing
  const auto rows = Compare({PlanOf(&one), PlanOf(&other)}, options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)[0].calls_per_repetition, 1);
  called.push_back(0);
  for (size_t i = 1, since = 0; i < called.size(); ++i) {
    if (called[i] == called[i - 1]) continue;
    EXPECT_GE(i - since, 2u) << "at call " << since;
    since = i;
  }
}

TEST(CompareTest, RowsDifferBeyondSpreadAndNoise) {
  const auto timing = [](double p10, double median, double p90, double noise) {
    return Timing{median, p10, p90, noise, /*repetitions=*/20, /*disturbed=*/0};
  };
  const Timing one = timing(0.9, 1, 1.1, 0.01);
  EXPECT_TRUE(Differ(one, timing(1.2, 1.3, 1.4, 0.01)));
  EXPECT_TRUE(Differ(timing(1.2, 1.3, 1.4, 0.01), one));
  EXPECT_FALSE(Differ(one, one));
  EXPECT_FALSE(Differ(one, timing(1.05, 1.3, 1.4, 0.01)));  // by the spread
  EXPECT_FALSE(Differ(one, timing(1.2, 1.3, 1.4, 0.3)));    // by the noise
}

}  // namespace
}  // namespace attnlab::bench
