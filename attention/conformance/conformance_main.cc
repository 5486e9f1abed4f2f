// The conformance suite as a program: a test for each kernel, check and problem.
//
//   conformance_test [--kernel=NAME] [--seed=N] [--cases=N] [--reduced] [--bare_memory]
//                    [--coverage]
//                    [GoogleTest's flags]
//
// Without --kernel, it tests all linked kernels. Another --seed gives other problems, and --cases
// sets how many of them follow the fixed ones: for an hour of search. --reduced: a few dozen small
// problems (ReducedCases()). --bare_memory is for tools that watch a program: no fences or poison
// (bare_memory.h), and only checks that launch what others do not. A test is skipped if the kernel
// declines the problem or the machine lacks the device. A kernel that supports none of the problems
// fails.
//
// --coverage runs no test. It prints how many problems each check has, by feature and by compute
// capability, as Markdown (docs/coverage.md).
//
// With $ATTNLAB_COMPUTE_CAPABILITY (a target of gpu_test), the program also fails for
//   - a launch of code for another capability;
//   - a CUDA kernel that passes without any launch;
//   - --kernel on a GPU that the kernel is not built for.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attention/conformance/conformance.h"
#include "attention/conformance/coverage.h"
#include "attention/conformance/launched_code.h"
#include "attention/conformance/problems.h"
#include "attention/core/registry.h"
#include "attention/oracle/bare_memory.h"
#include "gtest/gtest.h"
#include "tools/lib/arguments.h"

namespace attnlab::conformance {
namespace {

// The flags that select problems, as given: "--seed=7 --cases=1000"; "" by default.
std::string* Selection() {
  static std::string* const kSelection = new std::string;
  return kSelection;
}

// The launches of a CUDA kernel, counted if $ATTNLAB_COMPUTE_CAPABILITY asks for proof.
struct Launches {
  int64_t seen = 0;
  int due = 0;  // passed tests that need at least one launch
};
std::map<std::string, Launches>* LaunchesByKernel() {
  static auto* const kLaunches = new std::map<std::string, Launches>;
  return kLaunches;
}

// Counts launches. Fails the current test if one ran code for another capability.
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
                                  << " tests without any device::Launch()";
    }
  }
};

class Conformance : public ::testing::Test {
 public:
  Conformance(const Kernel& kernel, const Check& check, const Case& c)
      : kernel_(kernel),
        check_(check),
        case_(kernel.traits().needs_aligned_rows ? WithAlignedRows(c) : c) {}

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
  const Case case_;
};

class SupportsSomething : public ::testing::Test {
 public:
  SupportsSomething(const Kernel& kernel, const std::vector<Case>& cases, bool must_run)
      : kernel_(kernel), cases_(cases), must_run_(must_run) {}

  void TestBody() override {
    const absl::StatusOr<Subject> subject = SubjectFor(kernel_);
    // A target of a compute capability must run the kernel that it names.
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

// A test name without characters that are special in --gtest_filter.
std::string TestName(size_t index, const Case& c) {
  const AttentionProblem& p = c.problem;
  const char* const kMasks[] = {"full", "causal", "window"};
  const char* const kLens[] = {"fixed", "packed", "padded"};
  return absl::StrCat(absl::StrFormat("%03d_", index), Name(p.dtype), "_d", p.d, "_",
                      kMasks[static_cast<int>(p.mask.kind)], "_", kLens[static_cast<int>(p.lens)],
                      "_", Name(c.inputs.layout));
}

void Register(const Kernel& kernel, const std::vector<Case>& cases, bool must_run) {
  const std::string& name = kernel.traits().name;
  ::testing::RegisterTest(name.c_str(), "supports_something", nullptr, nullptr, __FILE__, __LINE__,
                          [&kernel, &cases, must_run]() -> SupportsSomething* {
                            return new SupportsSomething(kernel, cases, must_run);
                          });
  for (const Check& check : Checks()) {
    if (!AppliesTo(check, kernel)) continue;
    const std::string suite = absl::StrCat(name, "_", check.name);
    for (size_t i : CasesOf(check, cases)) {
      const Case& c = cases[i];
      ::testing::RegisterTest(
          suite.c_str(), TestName(i, c).c_str(), nullptr, c.ToString().c_str(), __FILE__, __LINE__,
          [&kernel, &check, &c]() -> Conformance* { return new Conformance(kernel, check, c); });
    }
  }
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::string only;
  int64_t seed = 1, count = 320;
  bool reduced = false, bare_memory = false, coverage = false;
  ArgumentParser parser("conformance_test",
                        "The conformance suite: takes GoogleTest's flags, too.");
  parser.AddString("kernel", "NAME", &only, "The kernel to test [all linked kernels].");
  parser.AddInteger("seed", "N", &seed, 0, INT64_MAX, "Another seed gives other problems [1].");
  parser.AddInteger("cases", "N", &count, 0, 1000000,
                    "Random problems after the fixed ones [320].");
  parser.AddBool("reduced", &reduced, "Only a few dozen small problems.");
  parser.AddBool("bare_memory", &bare_memory, "No fences or poison around buffers.");
  parser.AddBool("coverage", &coverage, "Print coverage as Markdown and run no test.");
  if (const std::optional<int> code = parser.ParseMain(argc, argv)) return *code;
  oracle::UseBareMemory(bare_memory);
  *Selection() = absl::StrCat(parser.Given("seed") ? absl::StrCat(" --seed=", seed) : "",
                              parser.Given("cases") ? absl::StrCat(" --cases=", count) : "",
                              reduced ? " --reduced" : "", bare_memory ? " --bare_memory" : "");
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
  if (coverage) {
    std::cout << CoverageTables(kernels);
    return 0;
  }
  const std::vector<Case> cases =
      reduced ? ReducedCases()
              : ConformanceCases(static_cast<uint64_t>(seed), static_cast<int>(count));
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
    Register(*kernel, cases, /*must_run=*/proof && !only.empty());
  }
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace attnlab::conformance

int main(int argc, char** argv) { return attnlab::conformance::Main(argc, argv); }
