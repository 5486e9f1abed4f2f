#include "attention/baseline/options.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention/core/dtype.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::baseline {
namespace {

using ::testing::HasSubstr;

DeviceInfo Gpu(int capability, int64_t gib = 100) {
  DeviceInfo info;
  info.device = Device::Cuda(0);
  info.compute_capability = capability;
  info.memory_bytes = gib << 30;
  return info;
}

AttentionProblem Problem(const std::string& line) {
  // Head dim 64 if the line does not say.
  const bool has_dim = line.find(",d=") != std::string::npos;
  const absl::StatusOr<AttentionProblem> p =
      AttentionProblem::Parse(has_dim ? line : line + ",d=64");
  EXPECT_TRUE(p.ok()) << p.status();
  return p.value_or(AttentionProblem());
}

absl::StatusOr<Options> Configured(const std::string& problem, int capability,
                                   const std::string& config) {
  return OptionsFor(Problem(problem), Gpu(capability), LaunchConfig::Parse(config).value());
}

TEST(OptionsTest, TakeWhatIsConfigured) {
  const auto o = Configured("b=4,hq=8,sq=100,dtype=fp32", 90,
                            "block=256,permute=always,math=tf32,softmax=fused,heads=3");
  ASSERT_TRUE(o.ok()) << o.status();
  EXPECT_EQ(o->permute_block, 256);
  EXPECT_EQ(o->softmax_block, 256);
  EXPECT_TRUE(o->always_permute);
  EXPECT_TRUE(o->tf32);
  EXPECT_TRUE(o->fused);
  EXPECT_EQ(o->heads, 3);
}

TEST(OptionsTest, LeftOutTheyFollowTheProblem) {
  const auto small = Configured("hq=8,sq=100", 90, "");
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->softmax_block, 32);
  EXPECT_EQ(small->heads, 8);  // all
  EXPECT_EQ(Configured("hq=8,sq=1024", 90, "")->softmax_block, 32);
  EXPECT_EQ(Configured("hq=8,sq=1025", 90, "")->softmax_block, 64);
  EXPECT_EQ(Configured("hq=8,sq=1,skv=100000", 90, "")->softmax_block, 512);
  // 16384² scores in fp32 and probabilities in 16 bits take 1.5 GiB; a quarter of the memory is 25
  // GiB.
  EXPECT_EQ(Configured("b=4,hq=32,sq=16384", 90, "")->heads, 16);
  // More heads than exist mean all.
  EXPECT_EQ(Configured("hq=8,sq=100", 90, "heads=1000")->heads, 8);
}

TEST(OptionsTest, NonsenseIsAnErrorThatNamesKeyValueAndChoices) {
  const std::vector<std::pair<std::string, std::string>> kCases = {
      {"block=48", "block=48 is not one of 32, 64, 128, 256, 512"},
      {"block=1024", "block: \"1024\" is not an integer in 32..512"},
      {"permute=never", "permute=never is not one of auto, always"},
      {"math=bf16", "math=bf16 is not one of fp32, tf32"},
      {"softmax=3", "softmax=3 is not one of unfused, fused"},
      {"heads=0", "heads: \"0\""},
      {"tile=3", "tile"},
  };
  for (const auto& [config, message] : kCases) {
    const absl::Status s = Configured("hq=8,sq=100,dtype=fp32", 90, config).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << config;
    EXPECT_THAT(s.message(), HasSubstr(message));
  }
  EXPECT_EQ(Configured("hq=8,sq=100,dtype=fp16", 90, "math=tf32").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(OptionsTest, TuringHasNeitherTf32NorBf16) {
  const absl::Status s = Configured("hq=8,sq=100,dtype=fp32", 75, "math=tf32").status();
  EXPECT_EQ(s.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(s.message(), HasSubstr("needs compute capability 8.0; cuda:0 has 7.5"));
  EXPECT_EQ(ComputeElement(Problem("hq=1,sq=1,dtype=bf16"), Gpu(75)), device::Element::kFloat32);
  EXPECT_EQ(ComputeElement(Problem("hq=1,sq=1,dtype=bf16"), Gpu(80)), device::Element::kBFloat16);
  EXPECT_EQ(ComputeElement(Problem("hq=1,sq=1,dtype=fp16"), Gpu(75)), device::Element::kFloat16);
}

TEST(CheckMemoryTest, SaysHowMuchIsNeeded) {
  const AttentionProblem p = Problem("hq=1,sq=262144,d=64,dtype=bf16");
  const Options one = *OptionsFor(p, Gpu(90), {});
  const absl::Status s = CheckMemory(p, Gpu(90), one);
  EXPECT_EQ(s.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(s.message(),
              HasSubstr("384 of them for scores and probabilities of 1 KV head at once"));
  EXPECT_THAT(s.message(), HasSubstr("cuda:0 has 100 GiB"));
  EXPECT_TRUE(CheckMemory(p, Gpu(90, 1000), one).ok());
}

TEST(CheckMemoryTest, SizesThatWrapAroundAreTooLarge) {
  DeviceInfo unknown = Gpu(90, 0);
  const AttentionProblem p = Problem("hq=134217728,hkv=1,sq=2147483647,d=1");
  EXPECT_FALSE(CheckMemory(p, unknown, *OptionsFor(p, unknown, {})).ok());
}

// Each part begins where the one before it ends, at a multiple of 256 bytes.
void ExpectParts(const Layout& layout, const std::vector<std::pair<int64_t, int64_t>>& parts) {
  int64_t end = 0;
  for (const auto& [at, bytes] : parts) {
    EXPECT_EQ(at % 256, 0);
    EXPECT_GE(at, end);
    end = at + bytes;
  }
  EXPECT_LE(end, layout.total);
}

TEST(LayoutTest, PartsDoNotOverlap) {
  for (const char* line : {"b=2,hq=6,hkv=2,sq=33,skv=45,d=40,dv=72,dtype=fp16",
                           "b=3,hq=1,sq=1,skv=7,d=1,dtype=bf16", "hq=2,sq=5,skv=0,dtype=fp16"}) {
    const AttentionProblem p = Problem(line);
    const Options options = *OptionsFor(p, Gpu(90), {});
    const Layout l(p, Gpu(90), options);
    const int64_t rows = options.heads * p.GroupSize() * p.sq;
    EXPECT_EQ(l.q_stride % 8, 0);
    EXPECT_EQ(l.probability_stride % 8, 0);
    EXPECT_EQ(l.score_stride % 4, 0);
    ExpectParts(l, {{l.q, p.b * p.hq * p.sq * p.d * 2},
                    {l.k, p.b * p.hkv * p.skv * p.d * 2},
                    {l.v, p.b * p.hkv * p.skv * p.dv * 2},
                    {l.o, p.b * p.hq * p.sq * p.dv * 2},
                    {l.scores, rows * p.skv * 4},
                    {l.probabilities, rows * p.skv * 2},
                    {l.cublas, l.cublas_bytes}});
  }
}

TEST(LayoutTest, Fp32ProbabilitiesTakeThePlaceOfTheScores) {
  const AttentionProblem p = Problem("hq=2,sq=50,dtype=fp32");
  const Layout l(p, Gpu(90), *OptionsFor(p, Gpu(90), {}));
  EXPECT_EQ(l.scores, l.probabilities);
}

}  // namespace
}  // namespace attnlab::baseline
