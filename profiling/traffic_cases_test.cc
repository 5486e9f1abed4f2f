// Which of the contract's cases the models know, on an H200.
#include "profiling/traffic_cases.h"

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/strings/string_view.h"
#include "attention/baseline/options.h"
#include "attention/baseline/traffic.h"
#include "attention/fa1/options.h"
#include "attention/fa1/traffic.h"
#include "attention/fa2/options.h"
#include "attention/fa2/traffic.h"
#include "attention/launch_config.h"
#include "attention/machine.h"
#include "attention/problem.h"
#include "gtest/gtest.h"

namespace attnlab::profiling {
namespace {

DeviceInfo H200() {
  DeviceInfo gpu;
  gpu.device = Device::Cuda(0);
  gpu.compute_capability = 90;
  gpu.multiprocessors = 132;
  gpu.memory_bytes = int64_t{140} << 30;
  gpu.last_level_cache_bytes = 60 << 20;
  gpu.shared_memory_per_block = 227 << 10;
  gpu.registers_per_multiprocessor = 65536;
  return gpu;
}

Traffic ModelOf(absl::string_view kernel, const std::string& line) {
  const AttentionProblem p = AttentionProblem::Parse(line).value();
  const DeviceInfo gpu = H200();
  if (kernel == "baseline") {
    return baseline::ExpectedTraffic(p, gpu, baseline::OptionsFor(p, gpu, {}).value());
  }
  if (kernel == "fa1") return fa1::ExpectedTraffic(p, gpu, fa1::TileFor(p, gpu, {}).value());
  return fa2::ExpectedTraffic(p, gpu, fa2::OptionsFor(p, gpu, 90, {}).value());
}

class KnownTest : public ::testing::TestWithParam<TrafficCase> {};

TEST_P(KnownTest, HasAValue) {
  EXPECT_FALSE(ModelOf(GetParam().kernel, GetParam().problem).reads_between.has_value());
}

INSTANTIATE_TEST_SUITE_P(InL2, KnownTest, ::testing::ValuesIn(kInL2));
INSTANTIATE_TEST_SUITE_P(BeyondL2, KnownTest, ::testing::ValuesIn(kBeyondL2));
INSTANTIATE_TEST_SUITE_P(Decode, KnownTest, ::testing::ValuesIn(kDecode));

class InDoubtTest : public ::testing::TestWithParam<TrafficCase> {};

TEST_P(InDoubtTest, HasAnIntervalAroundItsValue) {
  const Traffic model = ModelOf(GetParam().kernel, GetParam().problem);
  ASSERT_TRUE(model.reads_between.has_value());
  EXPECT_LE(model.reads_between->least, model.bytes_read);
  EXPECT_GE(model.reads_between->most, model.bytes_read);
  EXPECT_GE(model.reads_between->least,
            CompulsoryTraffic(AttentionProblem::Parse(GetParam().problem).value()).bytes_read);
}

INSTANTIATE_TEST_SUITE_P(InDoubt, InDoubtTest, ::testing::ValuesIn(kInDoubt));

// MB that were counted on an H200, the least and the most where runs differed.
struct Counted {
  TrafficCase of;
  double least, most;
};

std::ostream& operator<<(std::ostream& out, const Counted& c) { return out << c.of; }

class CountedTest : public ::testing::TestWithParam<Counted> {};

TEST_P(CountedTest, LiesInTheContract) {
  const Traffic::Between contract =
      ContractOf(ModelOf(GetParam().of.kernel, GetParam().of.problem));
  EXPECT_GE(GetParam().least * 1e6, static_cast<double>(contract.least));
  EXPECT_LE(GetParam().most * 1e6, static_cast<double>(contract.most));
}

constexpr Counted kCounted[] = {
    {kInDoubt[0], 55, 82},       {kInDoubt[1], 1350, 1440},   {kInDoubt[2], 44, 44},
    {kInDoubt[3], 22600, 26900}, {kInDoubt[4], 83, 95},       {kInDoubt[5], 147, 236},
    {kInDoubt[6], 703, 1505},    {kInDoubt[7], 16200, 16700},
};

INSTANTIATE_TEST_SUITE_P(Counted, CountedTest, ::testing::ValuesIn(kCounted));

}  // namespace
}  // namespace attnlab::profiling
