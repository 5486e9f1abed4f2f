#include "tools/command/profile_report.h"

#include <limits>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "attention/attention.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/cuda/machine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/command/command.h"

namespace attnlab::command {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A call of 1 ms that moved twice what it had to, on a GPU of 1 TB/s and 100 TFLOP/s.
ProfileRow Row(const char* problem = "hq=1,sq=4,d=8") {
  ProfileRow row;
  row.verdict = "ok";
  profiling::KernelProfile& p = row.profile;
  p.plan.problem = *AttentionProblem::Parse(problem);
  p.plan.kernel = *Registry::Global().Find("reference");
  p.plan.prepared = *p.plan.kernel->Prepare(p.plan.problem, CpuInfo(), {});
  p.plan.device.device = Device::Cuda(0);
  p.plan.device.name = "A GPU";
  p.plan.device.compute_capability = 90;
  p.plan.device.multiprocessors = 132;
  p.compulsory.flops = 2e10;
  p.compulsory.bytes_read = 64 << 20;
  p.compulsory.bytes_written = 32 << 20;
  p.expected = p.compulsory;
  p.counted = {{"hbm_bytes_read", "B", 128.0 * (1 << 20)},
               {"hbm_bytes_written", "B", 48.0 * (1 << 20)},
               {"occupancy", "%", 12.5},
               {"missing", "", kNan}};
  p.seconds = 1e-3;
  p.timeline = {{profiling::Activity::Kind::kFill, "memset", 0, 1e-6},
                {profiling::Activity::Kind::kKernel, "void a::Kernel<3>(int)", 3e-6, 997e-6}};
  p.launches = {{"void a::Kernel<3>(int)", {66, 2, 1}, {128, 1, 1}, 255, 1024, 2048, 8, 2, 0.125}};
  p.counted_calls = 3;
  p.overhead_seconds = 0.25;
  return row;
}

ProfileReport Report() {
  ProfileReport report;
  report.rows = {Row()};
  report.ceilings.emplace();
  report.ceilings->hbm_read = report.ceilings->hbm_write = 1e12;
  report.ceilings->bf16 = 100e12;
  report.chip = "GH100";
  report.repetitions = 3;
  return report;
}

std::string Printed(const ProfileReport& report) {
  std::ostringstream out;
  PrintProfile(report, {out, out});
  return out.str();
}

TEST(ProfileReportTest, FiguresAreBesideModelAndLeast) {
  const std::string text = Printed(Report());
  EXPECT_THAT(text, HasSubstr("A GPU, sm_90, 132 SMs, GH100\n"));
  EXPECT_THAT(text, AllOf(HasSubstr("| 1.00 ms |"), HasSubstr("|  128 MiB | 2.00x | 2.00x |"),
                          HasSubstr("| 1.50x | 1.50x |"), HasSubstr("| ok ")));
  // 20 TFLOP/s. Memory allows 108 with the bytes moved, 199 with the least. Tensor cores allow 100.
  EXPECT_THAT(text, HasSubstr("|    20.0 |"));
  EXPECT_THAT(text,
              HasSubstr("Ceilings: HBM read 1.00, write 1.00, copy - TB/s; bf16 100, fp16 -"));
}

TEST(ProfileReportTest, WritesThatStayInL2HaveNoRatio) {
  ProfileReport report = Report();
  profiling::KernelProfile& p = report.rows[0].profile;
  p.counted[1].value = 2048;
  EXPECT_THAT(Printed(report), Not(HasSubstr("in L2")));  // the size of L2 is unknown
  p.plan.device.last_level_cache_bytes = 50 << 20;
  EXPECT_THAT(Printed(report),
              HasSubstr("|  128 MiB | 2.00x | 2.00x |       2 KiB | in L2 | in L2 |"));
  p.expected.bytes_written = 64 << 20;  // the model's writes exceed L2
  EXPECT_THAT(Printed(report), AllOf(HasSubstr("x | in L2 |"), HasSubstr("\nin L2: when")));
}

TEST(ProfileReportTest, AGuessOfTheModelIsInBrackets) {
  ProfileReport report = Report();
  EXPECT_EQ(ProfileJson(report)["rows"][0]["l2_decides"], false);
  EXPECT_THAT(Printed(report), Not(HasSubstr("L2 decides")));
  report.rows[0].profile.expected.l2_decides = true;
  EXPECT_EQ(ProfileJson(report)["rows"][0]["l2_decides"], true);
  EXPECT_THAT(Printed(report), AllOf(HasSubstr("|  128 MiB | (2.00x) | 2.00x |"),
                                     HasSubstr("\n(1.23x): the model guesses")));
}

TEST(ProfileReportTest, OtherCountersHaveATableOfTheirOwn) {
  const std::string text = Printed(Report());
  EXPECT_THAT(text, HasSubstr("| occupancy |    12.5 % |"));
  EXPECT_THAT(text, HasSubstr("| missing   |         - |"));
}

TEST(ProfileReportTest, TheDurationOfTheRangeIsToldFromTheTime) {
  ProfileReport report = Report();
  EXPECT_THAT(Printed(report), Not(HasSubstr("range_duration")));
  report.rows[0].profile.counted.push_back({"range_duration", "s", 1.2e-3});
  EXPECT_THAT(Printed(report),
              AllOf(HasSubstr("| range_duration |   1.20 ms |"),
                    HasSubstr("range_duration is of the counted call from outside")));
}

TEST(ProfileReportTest, LaunchesShowFactsAndGaps) {
  const std::string text = Printed(Report());
  EXPECT_THAT(text, HasSubstr("| memset "));
  EXPECT_THAT(text, HasSubstr("| Kernel |  997 µs |    2.00 µs | 66x2x1 | 128x1x1 |       255 | "));
  EXPECT_THAT(text, AllOf(HasSubstr("3 KiB"), HasSubstr("8 B"), HasSubstr("12.5 %")));
}

TEST(ProfileReportTest, WithoutCeilingsOrCountersColumnsAreEmpty) {
  ProfileReport report = Report();
  report.ceilings.reset();
  report.rows[0].profile.counted.clear();
  const std::string text = Printed(report);
  EXPECT_THAT(text, Not(HasSubstr("Ceilings")));
  EXPECT_THAT(text, Not(HasSubstr("| counted")));
  const Json row = ProfileJson(report)["rows"][0];
  EXPECT_TRUE(row["fraction_of_roofline"].is_null());
  EXPECT_TRUE(row["counted"].empty());
  EXPECT_TRUE(ProfileJson(report)["ceilings"].is_null());
}

TEST(ProfileReportTest, WhereLengthsVaryThereIsNoModel) {
  ProfileReport report = Report();
  report.rows = {Row("b=2,hq=1,sq=4,d=8,lens=packed")};
  EXPECT_THAT(Printed(report), HasSubstr("|  128 MiB |     - | 2.00x |"));
  for (const char* field : {"expected_bytes_read", "expected_bytes_written", "l2_decides"}) {
    EXPECT_TRUE(ProfileJson(report)["rows"][0][field].is_null()) << field;
  }
}

TEST(ProfileReportTest, NothingLaunchedIsNoNumber) {
  ProfileReport report = Report();
  report.rows[0].profile.seconds = 0;
  report.rows[0].profile.compulsory = report.rows[0].profile.expected = {};
  const std::string text = Printed(report);
  EXPECT_THAT(text, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
}

TEST(ProfileReportTest, AWrongResultSaysWhatIsWrong) {
  ProfileReport report = Report();
  report.rows[0].verdict = "WRONG";
  report.rows[0].remark = "o[0] is 2, not 1";
  EXPECT_THAT(Printed(report), AllOf(HasSubstr("| WRONG "), HasSubstr("\no[0] is 2, not 1\n")));
  EXPECT_EQ(ProfileJson(report)["rows"][0]["message"], "o[0] is 2, not 1");
}

TEST(ProfileReportTest, AKernelThatFailedSaysWhy) {
  ProfileReport report = Report();
  report.rows.push_back(Row("hq=1,sq=8,d=8"));
  report.rows[1].profile.status = absl::InternalError("reference: out of luck");
  const std::string text = Printed(report);
  EXPECT_THAT(text, AllOf(HasSubstr("| sq=4,skv=4 "), HasSubstr("| FAILED "),
                          HasSubstr("\nreference: out of luck\n")));
  const Json row = ProfileJson(report)["rows"][1];
  EXPECT_EQ(row["verdict"], "failed");
  EXPECT_EQ(row["message"], "reference: out of luck");
  EXPECT_TRUE(row["seconds"].is_null());
}

TEST(ProfileReportTest, JsonHasEverything) {
  ProfileReport report = Report();
  report.commit = "abc123";
  const Json json = ProfileJson(report);
  EXPECT_EQ(json["command"], "profile");
  EXPECT_EQ(json["chip"], "GH100");
  EXPECT_EQ(json["machine"]["name"], "A GPU");
  EXPECT_EQ(json["ceilings"]["hbm_read_bytes_per_second"], 1e12);
  EXPECT_TRUE(json["ceilings"]["fp8_flops_per_second"].is_null());
  const Json& row = json["rows"][0];
  EXPECT_EQ(row["counted"]["hbm_bytes_read"], 128 << 20);
  EXPECT_TRUE(row["counted"]["missing"].is_null());
  EXPECT_EQ(row["expected_bytes_read"], 64 << 20);
  EXPECT_EQ(row["ceiling_flops_per_second"], 100e12);
  EXPECT_NEAR(row["fraction_of_roofline"].get<double>(), 0.2, 1e-9);
  EXPECT_NEAR(row["fraction_of_compulsory_roofline"].get<double>(), 0.2, 1e-9);
  EXPECT_EQ(row["launches"][0]["kernel"], "Kernel");
  EXPECT_EQ(row["launches"][0]["grid"], Json({66, 2, 1}));
  EXPECT_EQ(row["timeline"][1]["begin_seconds"], 3e-6);
  EXPECT_EQ(row["commit"], "abc123");
  EXPECT_EQ(row["overhead_seconds"], 0.25);
}

}  // namespace
}  // namespace attnlab::command
