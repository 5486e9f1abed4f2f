// The conformance suite as a program: a test for each kernel, check and problem.
//
//   conformance_test [--kernel=NAME] [--seed=N] [--cases=N] [--reduced] [--bare_memory]
//                    [GoogleTest's flags]
//
// Without --kernel, all kernels that are linked. Another seed gives other problems, and --cases
// how many of them come after those that are always there: for an hour of search. --reduced and
// --bare_memory are for tools that watch a program: a few dozen small problems (ReducedCases())
// without the checks of what goes on at the same time, and no fences and poison (bare_memory.h). A
// test is skipped where the kernel's Supports() declines the problem, or where the machine lacks
// the device; a kernel that supports none of the problems fails.
//
// With $ATTNLAB_COMPUTE_CAPABILITY (a target of gpu_test), a launch of other code than that of the
// capability fails, and a CUDA kernel that passes without any launch, and --kernel on a GPU that
// the kernel is not made for.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "attention/registry.h"
#include "attention/testing/bare_memory.h"
#include "attention/testing/conformance.h"
#include "attention/testing/launched_code.h"
#include "attention/testing/problems.h"
#include "gtest/gtest.h"

namespace attnlab::testing {
namespace {

// "--seed=7 --cases=1000" as this program was given them; "" by default.
std::string* Selection() {
  static std::string* const kSelection = new std::string;
  return kSelection;
}

// What is known of a CUDA kernel's launches where $ATTNLAB_COMPUTE_CAPABILITY asks for proof.
struct Launches {
  int64_t seen = 0;
  int due = 0;  // tests that cannot pass without one
};
std::map<std::string, Launches>* LaunchesByKernel() {
  static auto* const kLaunches = new std::map<std::string, Launches>;
  return kLaunches;
}

// Fails the current test for launches of other code than that of the capability, and counts.
void JudgeLaunches(const Subject& subject, const Check& check, const Case& c,
                   const absl::Status& s) {
  const LaunchReport report = TakeLaunchReport();
  for (const std::string& fault : report.faults) ADD_FAILURE() << fault;
  if (subject.device.kind != DeviceKind::kCuda) return;
  Launches& launches = (*LaunchesByKernel())[subject.kernel->traits().name];
  launches.seen += report.launches;
  const AttentionProblem& p = c.problem;
  const bool has_work = p.lens == Lengths::kFixed && p.b > 0 && p.sq > 0 && p.skv > 0;
  if (s.ok() && has_work && check.name == "matches_oracle") ++launches.due;
}

class LaunchesWereSeen : public ::testing::Environment {
 public:
  void TearDown() override {
    for (const auto& [kernel, launches] : *LaunchesByKernel()) {
      if (launches.due == 0) continue;
      EXPECT_GT(launches.seen, 0) << kernel << " passed " << launches.due
                                  << " tests, but not by launching anything with device::Launch()";
    }
  }
};

class Conformance : public ::testing::Test {
 public:
  Conformance(const Kernel& kernel, const Check& check, const Case& c)
      : kernel_(kernel), check_(check), case_(c) {}

  void TestBody() override {
    const absl::StatusOr<Subject> subject = SubjectFor(kernel_);
    if (absl::IsUnavailable(subject.status())) GTEST_SKIP() << subject.status().message();
    ASSERT_TRUE(subject.ok()) << subject.status();
    const absl::Status s = check_.run(*subject, case_);
    JudgeLaunches(*subject, check_, case_, s);
    if (s.code() == absl::StatusCode::kUnimplemented) {
      GTEST_SKIP() << kernel_.traits().name << " declines: " << s.message();
    }
    const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
    EXPECT_TRUE(s.ok()) << case_.ToString() << "\n"
                        << s.message()
                        << "\nThis test alone, as --test_arg of its target: --kernel="
                        << kernel_.traits().name << *Selection()
                        << " --gtest_filter=" << test.test_suite_name() << "." << test.name();
  }

 private:
  const Kernel& kernel_;
  const Check& check_;
  const Case& case_;
};

class SupportsSomething : public ::testing::Test {
 public:
  SupportsSomething(const Kernel& kernel, const std::vector<Case>& cases, bool must_run)
      : kernel_(kernel), cases_(cases), must_run_(must_run) {}

  void TestBody() override {
    const absl::StatusOr<Subject> subject = SubjectFor(kernel_);
    // A target of a compute capability is for GPUs that have the kernel that it names.
    const bool skips = absl::IsUnavailable(subject.status()) && !must_run_;
    if (skips) GTEST_SKIP() << subject.status().message();
    ASSERT_TRUE(subject.ok()) << subject.status();
    const int supported = CountSupported(*subject, cases_);
    RecordProperty("supported", supported);
    std::cout << kernel_.traits().name << " supports " << supported << " of " << cases_.size()
              << " problems\n";
    EXPECT_GT(supported, 0) << kernel_.traits().name << " declines every problem";
  }

 private:
  const Kernel& kernel_;
  const std::vector<Case>& cases_;
  const bool must_run_;
};

// A name without the characters that mean something in --gtest_filter.
std::string TestName(size_t index, const Case& c) {
  const AttentionProblem& p = c.problem;
  const char* const kMasks[] = {"full", "causal", "window"};
  const char* const kLens[] = {"fixed", "packed", "padded"};
  return absl::StrCat(absl::StrFormat("%03d_", index), Name(p.dtype), "_d", p.d, "_",
                      kMasks[static_cast<int>(p.mask.kind)], "_", kLens[static_cast<int>(p.lens)],
                      "_", Name(c.inputs.layout));
}

void Register(const Kernel& kernel, const std::vector<Case>& cases, bool watched, bool must_run) {
  const std::string& name = kernel.traits().name;
  ::testing::RegisterTest(name.c_str(), "supports_something", nullptr, nullptr, __FILE__, __LINE__,
                          [&kernel, &cases, must_run]() -> SupportsSomething* {
                            return new SupportsSomething(kernel, cases, must_run);
                          });
  for (const Check& check : Checks()) {
    if (!AppliesTo(check, kernel) || (watched && check.where == Where::kOnGpuUnwatched)) continue;
    const std::string suite = absl::StrCat(name, "_", check.name);
    int applicable = 0;
    for (size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      if (!check.applies(c) || applicable++ % check.stride != 0) continue;
      ::testing::RegisterTest(
          suite.c_str(), TestName(i, c).c_str(), nullptr, c.ToString().c_str(), __FILE__, __LINE__,
          [&kernel, &check, &c]() -> Conformance* { return new Conformance(kernel, check, c); });
    }
  }
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::string only;
  uint64_t seed = 1;
  int count = 320;
  bool reduced = false;
  for (int i = 1; i < argc; ++i) {
    absl::string_view value = argv[i];
    bool understood = false;
    if (absl::ConsumePrefix(&value, "--kernel=")) {
      only = std::string(value);
      understood = !only.empty();
    } else if (absl::ConsumePrefix(&value, "--seed=")) {
      understood = absl::SimpleAtoi(value, &seed);
    } else if (absl::ConsumePrefix(&value, "--cases=")) {
      understood = absl::SimpleAtoi(value, &count) && count >= 0;
    } else if (value == "--reduced") {
      understood = reduced = true;
    } else if (value == "--bare_memory") {
      UseBareMemory(true);
      understood = true;
    }
    if (!understood) {
      std::cerr << argv[i]
                << " is not one of --kernel=NAME, --seed=N, --cases=N, --reduced, --bare_memory\n";
      return 2;
    }
    if (!absl::StartsWith(argv[i], "--kernel=")) absl::StrAppend(Selection(), " ", argv[i]);
  }
  if (const absl::Status s = Registry::Global().Check(); !s.ok()) {
    std::cerr << s << "\n";
    return 1;
  }
  std::vector<const Kernel*> kernels = Registry::Global().All();
  if (!only.empty()) {
    const absl::StatusOr<const Kernel*> kernel = Registry::Global().Find(only);
    if (!kernel.ok()) {
      std::cerr << kernel.status() << "\n";
      return 1;
    }
    kernels = {*kernel};
  }
  if (kernels.empty()) {
    std::cerr << "no kernel is linked into this test\n";
    return 1;
  }
  const std::vector<Case> cases = reduced ? ReducedCases() : ConformanceCases(seed, count);
  const char* const capability = std::getenv("ATTNLAB_COMPUTE_CAPABILITY");
  const bool proof = capability != nullptr && *capability != '\0';
  if (proof) {
    if (const absl::Status s = WatchLaunchesByEnvironment(); !s.ok()) {
      std::cerr << s << "\n";
      return 1;
    }
    ::testing::AddGlobalTestEnvironment(new LaunchesWereSeen);
  }
  for (const Kernel* kernel : kernels) {
    Register(*kernel, cases, reduced, /*must_run=*/proof && !only.empty());
  }
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace attnlab::testing

int main(int argc, char** argv) { return attnlab::testing::Main(argc, argv); }
