#include "tools/command/bench_report.h"

#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "attention/attention.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/command/command.h"

namespace attnlab::command {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A made-up row with that median, on a made-up machine.
bench::Row Row(absl::string_view kernel, Device device, double median,
               absl::string_view config = "", const char* problem = "hq=1,sq=4,d=8") {
  bench::Row row;
  row.plan.problem = *AttentionProblem::Parse(problem);
  row.plan.kernel = *Registry::Global().Find(kernel);
  row.plan.config = *LaunchConfig::Parse(config);
  row.plan.device.device = device;
  row.plan.device.name = device.kind == DeviceKind::kCpu ? "A processor" : "A GPU";
  row.plan.device.threads = 16;
  row.plan.device.compute_capability = 90;
  row.plan.device.multiprocessors = 132;
  row.verified = true;
  row.verification.o.max_error = 1e-7;
  row.timing.median = row.timing.p10 = row.timing.p90 = median;
  row.timing.repetitions = 20;
  row.calls_per_repetition = 1;
  row.input_sets = 3;
  row.set_bytes = device.kind == DeviceKind::kCpu ? 1 << 20 : 2 << 20;
  row.past_cache = true;
  row.compulsory.flops = 1e9;
  row.compulsory.bytes_read = 1000000;
  return row;
}

std::string Printed(const std::vector<bench::Row>& rows, const BenchReport& report = {}) {
  std::ostringstream out;
  PrintBench(rows, report, {out, out});
  return out.str();
}

TEST(BenchReportTest, OneDeviceIsAboveTheTable) {
  const std::string text = Printed({Row("reference", Device::Cpu(), 0.1)});
  EXPECT_THAT(text, StartsWith("b=1,hq=1,hkv=1,sq=4,skv=4,d=8,dtype=bf16,mask=none\n"
                               "A processor, 16 threads\n\n| kernel "));
  EXPECT_THAT(text, HasSubstr("\n20 repetitions, kernels in random order; 3 sets of inputs of "
                              "1 MiB in turn, more than the last-level cache holds.\n"));
  EXPECT_THAT(text, Not(HasSubstr("| device")));
}

TEST(BenchReportTest, OneRepetitionIsOne) {
  bench::Row row = Row("reference", Device::Cpu(), 0.1);
  row.timing.repetitions = 1;
  EXPECT_THAT(Printed({row}), HasSubstr("\n1 repetition, kernels in random order; "));
}

TEST(BenchReportTest, SeveralDevicesHaveAColumnAndSpeedUpsGoAcross) {
  const std::vector<bench::Row> rows = {Row("via_host", Device::Cuda(0), 0.001),
                                        Row("reference", Device::Cpu(), 0.1)};
  BenchReport against_reference;
  against_reference.baseline = "reference";
  const std::string text = Printed(rows, against_reference);
  EXPECT_THAT(text,
              AllOf(HasSubstr("\ncuda:0: A GPU, sm_90, 132 SMs\ncpu: A processor, 16 threads\n"),
                    HasSubstr("| kernel    | device |"), HasSubstr("| via_host  | cuda:0 |"),
                    HasSubstr("| reference | cpu    |"), HasSubstr("vs reference"),
                    HasSubstr(" 100x |"), HasSubstr(" 1.00x |")));
  EXPECT_THAT(text, HasSubstr("20 repetitions, kernels of a device in random order; on cuda:0 3 "
                              "sets of inputs of 2 MiB in turn, more than the last-level cache "
                              "holds; on cpu 3 sets of inputs of 1 MiB in turn, more than"));
  const std::vector<Json> json = BenchJson(rows, against_reference);
  EXPECT_EQ(json[0]["machine"]["device"], "cuda:0");
  EXPECT_EQ(json[0]["machine"]["compute_capability"], 90);
  for (const char* version : {"driver", "cuda_driver", "cuda_runtime"}) {
    EXPECT_TRUE(json[0]["machine"].contains(version)) << version;
    EXPECT_FALSE(json[1]["machine"].contains(version)) << version;
  }
  EXPECT_EQ(json[1]["machine"]["device"], "cpu");
  EXPECT_EQ(json[0]["baseline"], "reference");
  EXPECT_DOUBLE_EQ(json[0]["speed_up"], 100);
}

TEST(BenchReportTest, TheFastestConfigurationIsNamed) {
  std::vector<bench::Row> rows = {Row("via_host", Device::Cuda(0), 0.003, "block=32"),
                                  Row("via_host", Device::Cuda(0), 0.002, "block=64"),
                                  Row("via_host", Device::Cuda(0), 0.004, "block=128"),
                                  Row("reference", Device::Cpu(), 0.1)};
  std::string text = Printed(rows);
  EXPECT_THAT(text, HasSubstr("| block=32 "));
  EXPECT_THAT(text, HasSubstr("via_host: fastest with block=64, 2.00 times as fast as with "
                              "block=128\n"));
  EXPECT_THAT(text, Not(HasSubstr("reference: fastest")));
  const std::vector<Json> json = BenchJson(rows, {});
  EXPECT_EQ(json[0]["fastest_config"], false);
  EXPECT_EQ(json[1]["fastest_config"], true);
  EXPECT_TRUE(json[3]["fastest_config"].is_null());

  // Rows that are wrong or failed are no candidates.
  rows[1].verified = false;
  rows[2].status = absl::InternalError("out of luck");
  text = Printed(rows);
  EXPECT_THAT(text, Not(HasSubstr("fastest")));
  rows.push_back(Row("via_host", Device::Cuda(0), 0.001, "block=256"));
  EXPECT_THAT(Printed(rows), HasSubstr("via_host: fastest with block=256, 3.00 times as fast as "
                                       "with block=32\n"));
}

// No winner is named within the noise, nor within the spread.
TEST(BenchReportTest, NoWinnerWithinTheNoise) {
  std::vector<bench::Row> rows = {Row("via_host", Device::Cuda(0), 0.0100, "block=32"),
                                  Row("via_host", Device::Cuda(0), 0.0101, "block=64"),
                                  Row("via_host", Device::Cuda(0), 0.0200, "block=128")};
  rows[0].timing.noise = rows[1].timing.noise = 0.02;
  std::string text = Printed(rows);
  EXPECT_THAT(text, AllOf(HasSubstr("via_host: fastest with block=32 or block=64 (equal within the "
                                    "noise), 2.00 times as fast as with block=128\n"),
                          HasSubstr(" ~0.990x |"), HasSubstr(" 0.500x |")));
  std::vector<Json> json = BenchJson(rows, {});
  EXPECT_TRUE(json[0]["fastest_config"].is_null());
  EXPECT_TRUE(json[1]["fastest_config"].is_null());
  EXPECT_EQ(json[2]["fastest_config"], false);
  EXPECT_EQ(json[1]["speed_up_within_noise"], true);
  EXPECT_EQ(json[2]["speed_up_within_noise"], false);
  rows.pop_back();
  text = Printed(rows);
  EXPECT_THAT(text, AllOf(HasSubstr("via_host: no configuration is faster than the others beyond "
                                    "the noise\n"),
                          Not(HasSubstr("fastest"))));
}

TEST(BenchReportTest, NoisyRowsSaySoAndWhy) {
  bench::Row row = Row("reference", Device::Cpu(), 0.1);
  row.timing.noise = 0.015;
  EXPECT_THAT(Printed({row}), AllOf(HasSubstr(" ±1.50 % |"), Not(HasSubstr("Noisy"))));
  row.timing.noise = 0.62;
  row.noisy = true;
  EXPECT_THAT(Printed({row}),
              HasSubstr("Noisy, the median is not known to 2.00 %: reference. --timeout=SECONDS"));
  row.processors = {/*available=*/2, /*others=*/1.9};
  EXPECT_THAT(Printed({row}),
              AllOf(HasSubstr(" ±62.0 % |"), HasSubstr("other programs used 1.90 of 2 processors"),
                    HasSubstr("OMP_WAIT_POLICY=passive")));
  const std::vector<Json> json = BenchJson({row}, {});
  EXPECT_EQ(json[0]["noisy"], true);
  EXPECT_EQ(json[0]["noise"], 0.62);
  EXPECT_EQ(json[0]["noise_cause"], "other programs used 1.90 of 2 processors");
}

TEST(BenchReportTest, SmallRatesAreInASmallUnit) {
  bench::Row row = Row("reference", Device::Cpu(), 0.1);
  row.compulsory.flops = 1e7;
  EXPECT_THAT(Printed({row}), AllOf(HasSubstr("| MFLOP/s |"), HasSubstr("100 |")));
}

TEST(BenchReportTest, SweepsOfSeveralProblemsSayWhich) {
  const char* other = "hq=1,sq=8,d=8";
  const std::string text = Printed({Row("via_host", Device::Cuda(0), 0.003, "block=32"),
                                    Row("via_host", Device::Cuda(0), 0.002, "block=64"),
                                    Row("via_host", Device::Cuda(0), 0.005, "block=32", other),
                                    Row("via_host", Device::Cuda(0), 0.010, "block=64", other)});
  EXPECT_THAT(text, HasSubstr("via_host (sq=4,skv=4): fastest with block=64, 1.50 times"));
  EXPECT_THAT(text, HasSubstr("via_host (sq=8,skv=8): fastest with block=32, 2.00 times"));
}

}  // namespace
}  // namespace attnlab::command
