#include "profiling/ceilings_cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::profiling {
namespace {

using ::testing::HasSubstr;

class CeilingsCacheTest : public ::testing::Test {
 protected:
  CeilingsCacheTest()
      : directory_(absl::StrCat(::testing::TempDir(), "/",
                                ::testing::UnitTest::GetInstance()->current_test_info()->name(),
                                "/attnlab")) {
    std::filesystem::remove_all(directory_);
  }

  // Returns the cached `hbm_read`, and whether it was measured by this call.
  KeptCeilings Keep(double hbm_read, bool anew = false) {
    const absl::StatusOr<KeptCeilings> kept =
        KeepCeilings(directory_, key_, anew, [&]() -> absl::StatusOr<Ceilings> {
          Ceilings ceilings;
          ceilings.hbm_read = hbm_read;
          ceilings.hbm_write = ceilings.hbm_copy = 3e12;
          ceilings.fp32 = 6e13;
          ceilings.bf16 = 8e14;
          return ceilings;
        });
    EXPECT_TRUE(kept.ok()) << kept.status();
    return kept.value_or(KeptCeilings());
  }

  std::string Path() const { return directory_ + "/ceilings-" + key_.uuid + ".json"; }
  std::string Text() const {
    std::ifstream file(Path());
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void Write(const std::string& text) { std::ofstream(Path()) << text; }

  std::string directory_;
  CeilingsKey key_ = {"NVIDIA H200", "GPU-1234", "580.1", "13.0"};
};

TEST_F(CeilingsCacheTest, MeasuresOnce) {
  EXPECT_TRUE(Keep(4e12).measured);
  const KeptCeilings again = Keep(5e12);
  EXPECT_FALSE(again.measured);
  EXPECT_EQ(again.remark, "");
  EXPECT_EQ(again.ceilings.hbm_read, 4e12);
  EXPECT_EQ(again.ceilings.bf16, 8e14);
  EXPECT_EQ(again.ceilings.fp8, 0);  // not measured
}

TEST_F(CeilingsCacheTest, MeasuresAnewWhenAskedTo) {
  Keep(4e12);
  EXPECT_TRUE(Keep(5e12, /*anew=*/true).measured);
  EXPECT_EQ(Keep(6e12).ceilings.hbm_read, 5e12);
}

TEST_F(CeilingsCacheTest, AnotherDriverOrGpuIsAnotherThing) {
  Keep(4e12);
  key_.driver = "580.2";
  const KeptCeilings other = Keep(5e12);
  EXPECT_TRUE(other.measured);
  EXPECT_EQ(other.remark, "");
  key_.uuid = "GPU-5678";
  EXPECT_TRUE(Keep(6e12).measured);
  EXPECT_EQ(Keep(7e12).ceilings.hbm_read, 6e12);
}

TEST_F(CeilingsCacheTest, ADamagedFileIsReportedAndReplaced) {
  Keep(4e12);
  const std::string whole = Text();
  const std::string damages[] = {"",
                                 "{}",
                                 "[1]",
                                 "no JSON",
                                 whole.substr(0, whole.size() / 2),
                                 [&] {
                                   std::string negative = whole;
                                   return negative.replace(negative.find("4000000000000"), 1, "-4");
                                 }(),
                                 [&] {
                                   std::string missing = whole;
                                   return missing.replace(missing.find("hbm_copy"), 8, "hbm_kopy");
                                 }()};
  for (const std::string& damage : damages) {
    Write(damage);
    const KeptCeilings kept = Keep(5e12);
    EXPECT_TRUE(kept.measured) << damage;
    EXPECT_THAT(kept.remark, HasSubstr("damaged")) << damage;
    EXPECT_THAT(kept.remark, HasSubstr(Path())) << damage;
    EXPECT_EQ(Keep(6e12).ceilings.hbm_read, 5e12) << damage;
    EXPECT_EQ(Keep(6e12).remark, "") << damage;
  }
}

TEST_F(CeilingsCacheTest, FiguresThatNoGpuHasAreReportedAndReplaced) {
  Keep(4e12);
  const std::string whole = Text(), figure = "4000000000000.0";
  ASSERT_NE(whole.find(figure), std::string::npos) << whole;
  for (const char* implausible : {"0", "0.0", "-4e12", "1e30", "1e999", "NaN", "nan", "4", "null",
                                  "true", "\"4e12\"", "[4e12]"}) {
    std::string text = whole;
    Write(text.replace(text.find(figure), figure.size(), implausible));
    const KeptCeilings kept = Keep(5e12);
    EXPECT_TRUE(kept.measured) << implausible;
    EXPECT_THAT(kept.remark, HasSubstr("damaged")) << implausible;
    EXPECT_THAT(kept.remark, HasSubstr("measured again")) << implausible;
    EXPECT_EQ(kept.ceilings.hbm_read, 5e12) << implausible;
    EXPECT_EQ(Keep(6e12).ceilings.hbm_read, 5e12) << implausible;
  }
  std::string text = whole;
  Write(text.replace(text.find(figure), figure.size(), "1e30"));
  EXPECT_THAT(Keep(5e12).remark, HasSubstr("hbm_read_bytes_per_second: 1e+30 is not plausible"));
}

TEST_F(CeilingsCacheTest, FiguresThatNoGpuHasAreNotKept) {
  for (const double measured : {0.0, -1.0, 1e30, std::nan("")}) {
    const KeptCeilings kept = Keep(measured);
    EXPECT_TRUE(kept.measured) << measured;
    EXPECT_THAT(kept.remark, HasSubstr("the ceilings are for this run only")) << measured;
    EXPECT_FALSE(std::filesystem::exists(Path())) << measured;
  }
  // They do not replace a good file either.
  Keep(4e12);
  Keep(1e30, /*anew=*/true);
  EXPECT_EQ(Keep(5e12).ceilings.hbm_read, 4e12);
}

// Each process reads one complete set of figures or measures; none reports damage.
TEST_F(CeilingsCacheTest, ProcessesThatWriteAtOnce) {
  constexpr int kProcesses = 4, kTimes = 50;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool good = true;
      for (int i = 0; i < kTimes; ++i) {
        const KeptCeilings wrote = Keep((p + 1) * 1e12, /*anew=*/true);
        const KeptCeilings read = Keep(9e12);
        const double figure = read.ceilings.hbm_read / 1e12;
        good = good && wrote.remark.empty() && read.remark.empty() && !read.measured &&
               figure >= 1 && figure <= kProcesses && figure == std::floor(figure);
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  // No temporary file is left behind.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_),
                          std::filesystem::directory_iterator()),
            1);
}

TEST_F(CeilingsCacheTest, ADirectoryThatCannotBeIsNoError) {
  directory_ = "/proc/none/attnlab";
  const KeptCeilings kept = Keep(4e12);
  EXPECT_TRUE(kept.measured);
  EXPECT_THAT(kept.remark, HasSubstr("are not kept"));
  directory_ = "";
  EXPECT_THAT(Keep(4e12).remark, HasSubstr("are not kept"));
}

TEST_F(CeilingsCacheTest, WhatCannotBeMeasuredIsAnError) {
  const auto fails = [] { return absl::StatusOr<Ceilings>(absl::UnavailableError("no GPU")); };
  EXPECT_EQ(KeepCeilings(directory_, key_, false, fails).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(Path()));
}

}  // namespace
}  // namespace attnlab::profiling
