// The conformance suite as a program: a test for each kernel, check and problem.
//
//   conformance_test [--kernel=NAME] [--seed=N] [--cases=N] [GoogleTest's flags]
//
// Without --kernel, all kernels that are linked. Another seed gives other problems, and --cases
// how many of them come after those that are always there: for an hour of search. A test is skipped
// where the kernel's Supports() declines the problem, or where the machine lacks the device; a
// kernel that supports none of the problems fails.
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "attention/registry.h"
#include "attention/testing/conformance.h"
#include "attention/testing/problems.h"
#include "gtest/gtest.h"

namespace attnlab::testing {
namespace {

// "--seed=7 --cases=1000" as this program was given them; "" by default.
std::string* Selection() {
  static std::string* const kSelection = new std::string;
  return kSelection;
}

class Conformance : public ::testing::Test {
 public:
  Conformance(const Kernel& kernel, const Check& check, const Case& c)
      : kernel_(kernel), check_(check), case_(c) {}

  void TestBody() override {
    const absl::StatusOr<Subject> subject = SubjectFor(kernel_);
    if (!subject.ok()) GTEST_SKIP() << subject.status().message();
    const absl::Status s = check_.run(*subject, case_);
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
  SupportsSomething(const Kernel& kernel, const std::vector<Case>& cases)
      : kernel_(kernel), cases_(cases) {}

  void TestBody() override {
    const absl::StatusOr<Subject> subject = SubjectFor(kernel_);
    if (!subject.ok()) GTEST_SKIP() << subject.status().message();
    const int supported = CountSupported(*subject, cases_);
    RecordProperty("supported", supported);
    std::cout << kernel_.traits().name << " supports " << supported << " of " << cases_.size()
              << " problems\n";
    EXPECT_GT(supported, 0) << kernel_.traits().name << " declines every problem";
  }

 private:
  const Kernel& kernel_;
  const std::vector<Case>& cases_;
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

void Register(const Kernel& kernel, const std::vector<Case>& cases) {
  const std::string& name = kernel.traits().name;
  ::testing::RegisterTest(
      name.c_str(), "supports_something", nullptr, nullptr, __FILE__, __LINE__,
      [&kernel, &cases]() -> SupportsSomething* { return new SupportsSomething(kernel, cases); });
  for (const Check& check : Checks()) {
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
    }
    if (!understood) {
      std::cerr << argv[i] << " is not one of --kernel=NAME, --seed=N, --cases=N\n";
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
  const std::vector<Case> cases = ConformanceCases(seed, count);
  for (const Kernel* kernel : kernels) Register(*kernel, cases);
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace attnlab::testing

int main(int argc, char** argv) { return attnlab::testing::Main(argc, argv); }
