// The whole kernel against a plain loop in double precision, on every instruction set of this
// machine. The conformance suite (//attention/conformance) tests more, but only the best
// instruction set.
#include "attention/cpu/kernel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/attention.h"
#include "attention/core/dtype.h"
#include "attention/core/mask.h"
#include "attention/core/tensor.h"
#include "attention/cpu/targets.h"
#include "attention/cpu/tile.h"
#include "attention/oracle/buffers.h"
#include "attention/oracle/inputs.h"
#include "attention/oracle/layout.h"
#include "attention/oracle/trial.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "hwy/tests/hwy_gtest.h"

namespace attnlab::cpu {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Numbers in -1..1 that look random and depend only on the index.
float Noise(uint64_t index) {
  uint64_t x = (index + 1) * 0x9E3779B97F4A7C15u;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 32;
  return static_cast<float>(x % 20001) / 10000.0f - 1;
}

// A problem with fixed lengths and its tensors. Q, K, V and O lie side by side in the rows of
// tokens, with gaps full of NaN between them, or as [b][h][s][d].
struct Case {
  AttentionProblem p;
  bool interleaved = false;
  std::vector<char> q, k, v, o;
  std::vector<float> lse, k_scale, v_scale;
  AttentionTensors t;

  Case(const char* line, bool tokens_first) : interleaved(tokens_first) {
    const absl::StatusOr<AttentionProblem> parsed = AttentionProblem::Parse(line);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    p = parsed.value_or(AttentionProblem());
    Fill(&q, &t.q, p.dtype, p.sq, p.hq, p.d, 1);
    Fill(&k, &t.k, p.KvDType(), p.skv, p.hkv, p.d, 2);
    Fill(&v, &t.v, p.KvDType(), p.skv, p.hkv, p.dv, 3);
    if (p.KvDType() != p.dtype) {
      FillScales(&k_scale, &t.k_scale, 5);
      FillScales(&v_scale, &t.v_scale, 6);
    }
    ConstTensorView as_input;
    Fill(&o, &as_input, p.dtype, p.sq, p.hq, p.dv, 4);
    for (int64_t i = 0; i < static_cast<int64_t>(o.size()) / SizeOf(p.dtype); ++i) {
      StoreElement(o.data(), p.dtype, i, kNan);
    }
    t.o = {o.data(), p.dtype, Device::Cpu(), as_input.shape, as_input.strides};
    lse.assign(p.b * p.hq * p.sq, kNan);
    t.lse = LseView(lse.data(), Device::Cpu(), p.b, p.sq, p.hq);
  }

  // From 0.5 to 1.
  void FillScales(std::vector<float>* scales, ConstTensorView* view, uint64_t seed) {
    for (int64_t i = 0; i < p.b * p.hkv; ++i) {
      scales->push_back(0.75f + Noise(static_cast<uint64_t>(i) + (seed << 40)) / 4);
    }
    *view =
        BshdView(std::as_const(*scales).data(), DType::kFloat32, Device::Cpu(), p.b, 1, p.hkv, 1);
  }

  void Fill(std::vector<char>* data, ConstTensorView* view, DType dtype, int64_t s, int64_t h,
            int64_t d, uint64_t seed) {
    const int64_t gap = interleaved ? 3 : 0;
    *view = {nullptr, dtype, Device::Cpu(), {p.b, s, h, d}, {}};
    if (interleaved) {
      view->strides = {s * h * (d + gap), h * (d + gap), d + gap, 1};
    } else {
      view->strides = {s * h * d, d, s * d, 1};
    }
    const int64_t elements = std::max<int64_t>(p.b * s * h * (d + gap), 1);
    data->resize(elements * SizeOf(dtype));
    for (int64_t i = 0; i < elements; ++i) StoreElement(data->data(), dtype, i, kNan);
    for (int64_t i = 0; i < p.b * s * h * d; ++i) {
      const int64_t at = view->Offset(i / d / h / s, i / d / h % s, i / d % h, i % d);
      StoreElement(data->data(), dtype, at, Noise(static_cast<uint64_t>(i) + (seed << 40)));
    }
    view->data = data->data();
  }

  static float At(const ConstTensorView& view, int64_t b, int64_t s, int64_t h, int64_t i) {
    return LoadElement(view.data, view.dtype, view.Offset(b, s, h, i));
  }

  absl::Status Run(const char* config_line = "") {
    const absl::StatusOr<LaunchConfig> config = LaunchConfig::Parse(config_line);
    if (!config.ok()) return config.status();
    return ForwardOnce(p, t, "cpu", *config);
  }
};

// One row of O, and its LSE, in double precision.
std::vector<double> Exact(const Case& c, int64_t b, int64_t row, int64_t head, double* lse) {
  const AttentionProblem& p = c.p;
  const int64_t kv_head = head / p.GroupSize();
  const KvRange range = VisibleKv(p.mask, row, p.sq, p.skv);
  std::vector<double> s, o(p.dv);
  double max = -std::numeric_limits<double>::infinity();
  for (int64_t j = range.begin; j < range.end; ++j) {
    double dot = 0;
    for (int64_t i = 0; i < p.d; ++i) {
      dot += double{Case::At(c.t.q, b, row, head, i)} * Case::At(c.t.k, b, j, kv_head, i);
    }
    dot *= double{p.Scale()} * ScaleOf(p, c.t.k_scale, b, kv_head);
    if (p.softcap != 0) dot = p.softcap * std::tanh(dot / p.softcap);
    s.push_back(dot);
    max = std::max(max, dot);
  }
  double sum = 0;
  for (double& x : s) sum += x = std::exp(x - max);
  for (size_t j = 0; j < s.size(); ++j) {
    for (int64_t i = 0; i < p.dv; ++i) {
      o[i] += s[j] / sum * Case::At(c.t.v, b, range.begin + static_cast<int64_t>(j), kv_head, i);
    }
  }
  for (double& x : o) x *= ScaleOf(p, c.t.v_scale, b, kv_head);
  *lse = max + std::log(sum);
  return o;
}

void ExpectCorrect(const Case& c, const std::string& name) {
  const AttentionProblem& p = c.p;
  double worst = 0, worst_lse = 0;
  for (int64_t b = 0; b < p.b; ++b) {
    for (int64_t row = 0; row < p.sq; ++row) {
      for (int64_t head = 0; head < p.hq; ++head) {
        double lse = 0;
        const std::vector<double> exact = Exact(c, b, row, head, &lse);
        for (int64_t i = 0; i < p.dv; ++i) {
          const double error = std::abs(Case::At(c.t.o, b, row, head, i) - exact[i]);
          worst = std::max(worst, std::isnan(error) ? 1e30 : error);
        }
        const float got = Case::At(c.t.lse, b, row, head, 0);
        if (std::isinf(lse)) {
          EXPECT_EQ(got, lse) << name;
        } else {
          const double error = std::abs(got - lse);
          worst_lse = std::max(worst_lse, std::isnan(error) ? 1e30 : error);
        }
      }
    }
  }
  // P is kept in fp32, so the error is that of rounding O, which is at most 1.
  EXPECT_LE(worst, Epsilon(p.dtype) / 2 + 3e-6) << name;
  EXPECT_LE(worst_lse, 1e-5) << name;
}

class KernelTest : public hwy::TestWithParamTarget {};
HWY_TARGET_INSTANTIATE_TEST_SUITE_P(KernelTest);

TEST_P(KernelTest, OddProblems) {
  EXPECT_STREQ(TargetName(), hwy::TargetName(GetParam()));
  for (const char* line : {
           "hq=1,sq=1,skv=1,d=1,dtype=fp32",
           "hq=1,sq=5,skv=1,d=3,dv=2,dtype=fp32",
           "b=2,hq=3,sq=17,skv=33,d=16,dv=24,dtype=fp32,mask=causal",
           "hq=2,sq=64,skv=128,d=64,dtype=fp32",
           "hq=1,sq=65,skv=129,d=65,dv=63,dtype=fp32,mask=causal",
           "hq=1,sq=130,skv=70,d=20,dv=130,dtype=fp32,mask=causal",
           "hq=1,sq=70,skv=300,d=33,dv=1,dtype=fp32,mask=window:5:0",
           "hq=1,sq=200,skv=200,d=8,dv=64,dtype=fp32,mask=window:0:0",
           "hq=1,sq=150,skv=150,d=8,dv=17,dtype=fp32,mask=window:2:1",
           "hq=2,sq=40,skv=260,d=8,dv=9,dtype=fp32,mask=window:100:30",
           "hq=1,sq=3,skv=7,d=512,dv=1,dtype=fp32",
           "hq=1,sq=9,skv=7,d=1,dv=512,dtype=fp32,mask=causal",
           "hq=8,hkv=2,sq=19,skv=45,d=24,dtype=fp32,mask=causal",
           "hq=7,hkv=1,sq=11,skv=150,d=24,dtype=fp32,mask=window:20:3",
           "hq=4,hkv=2,sq=1,skv=300,d=40,dv=72,dtype=fp32",
           "hq=3,hkv=1,sq=1,skv=2500,d=17,dv=33,dtype=fp32,mask=causal",
           "hq=1,sq=4,skv=2100,d=17,dv=33,dtype=fp32,mask=causal",
           "hq=2,sq=3,skv=2300,d=9,dtype=fp32,mask=window:1100:0",
           "hq=12,hkv=2,sq=2,skv=2300,d=9,dtype=fp32,mask=causal",
           "hq=2,sq=33,skv=40,d=16,dtype=fp32,scale=0",
           "hq=2,sq=33,skv=40,d=16,dtype=fp32,scale=3,softcap=2.5,mask=causal",
           "hq=2,sq=2,skv=40,d=16,dtype=fp32,softcap=0.5",
           "hq=2,sq=33,skv=140,d=48,dv=80,dtype=fp16,mask=causal",
           "hq=4,hkv=2,sq=1,skv=140,d=48,dv=81,dtype=fp16",
           "hq=2,sq=33,skv=140,d=50,dv=80,dtype=bf16,mask=window:30:30",
           "hq=4,hkv=1,sq=1,skv=2140,d=49,dv=80,dtype=bf16",
           "hq=2,sq=5,skv=0,d=8,dtype=bf16",
           "b=2,hq=4,hkv=2,sq=1,skv=140,d=48,dv=81,dtype=fp16,kvdtype=fp8_e4m3",
           "hq=4,hkv=1,sq=1,skv=2140,d=49,dv=80,dtype=bf16,kvdtype=fp8_e4m3,softcap=2",
           "b=2,hq=4,hkv=2,sq=33,skv=140,d=50,dv=80,dtype=bf16,kvdtype=fp8_e4m3,mask=causal",
           "hq=2,sq=35,skv=1200,d=16,dtype=fp16,kvdtype=fp8_e4m3,mask=window:30:30,softcap=2",
       }) {
    for (bool interleaved : {false, true}) {
      Case c(line, interleaved);
      const absl::Status status = c.Run();
      ASSERT_TRUE(status.ok()) << line << ": " << status;
      ExpectCorrect(c, line);
    }
  }
}

TEST_P(KernelTest, TilesOfAnySize) {
  for (const char* line : {"hq=4,hkv=2,sq=70,skv=90,d=20,dv=70,dtype=fp32,mask=causal",
                           "hq=1,sq=100,skv=120,d=20,dtype=bf16,mask=window:17:9",
                           "hq=3,hkv=1,sq=1,skv=1500,d=20,dtype=fp32"}) {
    for (const char* config : {"tile_q=1,tile_kv=1", "tile_q=7,tile_kv=5", "tile_q=64,tile_kv=33",
                               "tile_q=4096,tile_kv=4096", "tile_q=65", "tile_kv=6,threads=3"}) {
      Case c(line, true);
      const absl::Status status = c.Run(config);
      ASSERT_TRUE(status.ok()) << status;
      ExpectCorrect(c, std::string(line) + " " + config);
    }
  }
}

// Bits depend neither on which thread computes a row nor on what else is in its tile.
TEST_P(KernelTest, BitsDependOnNeitherThreadsNorTileQ) {
  for (const char* line :
       {"b=2,hq=4,hkv=2,sq=150,skv=333,d=40,dtype=fp32,mask=causal",
        "hq=2,sq=201,skv=250,d=40,dtype=fp32,mask=window:33:7,softcap=3",
        "hq=4,hkv=2,sq=1,skv=5000,d=40,dtype=bf16", "hq=1,sq=30,skv=5000,d=16,dtype=fp32"}) {
    Case first(line, false);
    ASSERT_TRUE(first.Run("threads=1").ok());
    for (const char* config : {"threads=1", "threads=2", "threads=7", "threads=2,tile_q=5",
                               "threads=3,tile_q=64", "threads=2,tile_q=256"}) {
      Case again(line, false);
      ASSERT_TRUE(again.Run(config).ok());
      EXPECT_EQ(first.o, again.o) << line << " " << config;
      EXPECT_EQ(first.lse, again.lse) << line << " " << config;
    }
  }
}

// A page is only another way to find a row. The seed gives the same numbers with and without pages.
TEST_P(KernelTest, PagesChangeNoBit) {
  for (const std::string line :
       {"b=3,hq=2,hkv=1,sq=70,skv=233,d=40,dtype=fp32,mask=causal,lens=packed",
        "b=2,hq=1,sq=80,skv=200,d=32,dv=64,dtype=fp32,mask=window:33:7,lens=padded",
        "b=2,hq=4,hkv=2,sq=1,skv=1700,d=40,dtype=bf16,mask=window:1500:0",
        "b=3,hq=8,hkv=1,sq=1,skv=1200,d=16,dv=70,dtype=fp16,softcap=3,lens=padded",
        "b=2,hq=2,sq=2,skv=150,d=16,dtype=bf16,kvdtype=fp8_e4m3,mask=causal,lens=packed",
        "b=2,hq=2,sq=9,skv=150,d=16,dtype=fp16,kvdtype=fp8_e4m3",
        "b=2,hq=2,sq=9,skv=150,d=16,dtype=fp8_e4m3,vdtype=fp8_e5m2,scaleblock=64",
        "b=2,hq=2,sq=2,skv=150,d=16,dtype=fp8_e4m3,vdtype=fp8_e5m2"}) {
    for (const oracle::Layout layout : {oracle::Layout::kBshd, oracle::Layout::kBhsd}) {
      oracle::InputOptions options;
      options.seed = 4;
      options.layout = layout;
      const auto run = [&options](const std::string& problem) {
        const absl::StatusOr<Plan> plan =
            MakePlan(*AttentionProblem::Parse(problem), Device::Cpu(), "cpu");
        EXPECT_TRUE(plan.ok()) << plan.status();
        absl::StatusOr<oracle::Trial> trial = oracle::Trial::Make(*plan, options, true);
        EXPECT_TRUE(trial.ok()) << trial.status();
        absl::StatusOr<oracle::Trial::Run> run = trial->RunOnce();
        EXPECT_TRUE(run.ok() && run->faults.empty()) << run.status();
        return std::move(run->outputs);
      };
      const oracle::HostOutputs plain = run(line);
      for (const char* page : {"1", "16", "64", "2048"}) {
        const oracle::HostOutputs paged = run(line + ",page=" + page);
        EXPECT_EQ(plain.o_storage, paged.o_storage) << line << " " << page;
        EXPECT_EQ(plain.lse_storage, paged.lse_storage) << line << " " << page;
      }
    }
  }
}

// A NaN in K or V reaches the rows that see that key.
TEST_P(KernelTest, NanReachesRowsThatSeeIt) {
  for (const char* line : {"hq=2,sq=90,skv=150,d=20,dtype=fp32,mask=causal",
                           "hq=2,hkv=1,sq=90,skv=150,d=20,dtype=bf16,mask=window:10:4",
                           "hq=1,sq=4,skv=30,d=20,dtype=fp32,mask=window:3:1",
                           "hq=1,sq=10,skv=3000,d=4,dtype=fp32,mask=causal"}) {
    for (bool in_v : {false, true}) {
      for (int64_t bad : {0, 5, 27}) {
        Case c(line, false);
        const int64_t key = c.p.skv - 1 - bad;
        const ConstTensorView& view = in_v ? c.t.v : c.t.k;
        StoreElement((in_v ? c.v : c.k).data(), c.p.dtype, view.Offset(0, key, 0, 1), kNan);
        ASSERT_TRUE(c.Run().ok());
        for (int64_t row = 0; row < c.p.sq; ++row) {
          const KvRange range = VisibleKv(c.p.mask, row, c.p.sq, c.p.skv);
          if (key < range.begin || key >= range.end) continue;
          // A NaN in K poisons the whole row of O, one in V only its own column.
          for (int64_t i = 0; i < c.p.dv; ++i) {
            EXPECT_EQ(std::isnan(Case::At(c.t.o, 0, row, 0, i)), !in_v || i == 1)
                << line << " row " << row << " column " << i << " key " << key;
          }
          EXPECT_EQ(std::isnan(c.lse[row]), !in_v) << line << " row " << row;
        }
      }
    }
  }
}

TEST_P(KernelTest, LargeScoresGiveNumbers) {
  for (const char* line : {"hq=1,sq=40,skv=300,d=16,dtype=fp32,scale=100000",
                           "hq=1,sq=1,skv=300,d=16,dtype=fp32,scale=100000",
                           "hq=1,sq=40,skv=300,d=16,dtype=fp16,scale=10000,mask=causal"}) {
    Case c(line, false);
    ASSERT_TRUE(c.Run().ok());
    for (int64_t row = 0; row < c.p.sq; ++row) {
      double lse = 0;
      Exact(c, 0, row, 0, &lse);
      EXPECT_NEAR(c.lse[row], lse, 1e-6 * std::abs(lse)) << line;
      for (int64_t i = 0; i < c.p.dv; ++i) {
        EXPECT_LE(std::abs(Case::At(c.t.o, 0, row, 0, i)), 1.0f) << line;
      }
    }
  }
}

// Scores of minus infinity have no weight. A single finite score has all of it.
TEST_P(KernelTest, MinusInfinity) {
  for (const char* line : {"hq=1,sq=6,skv=20,d=2,dtype=fp32", "hq=1,sq=1,skv=20,d=2,dtype=fp32"}) {
    Case c(line, false);
    for (int64_t i = 0; i < c.p.sq * 2; ++i) StoreElement(c.q.data(), c.p.dtype, i, 1.0f);
    for (int64_t i = 0; i < 40; ++i) {
      StoreElement(c.k.data(), c.p.dtype, i, -std::numeric_limits<float>::infinity());
    }
    ASSERT_TRUE(c.Run().ok());
    EXPECT_EQ(Case::At(c.t.o, 0, 0, 0, 0), 0.0f);
    EXPECT_EQ(c.lse[0], -std::numeric_limits<float>::infinity());
    for (int64_t i : {14, 15}) StoreElement(c.k.data(), c.p.dtype, i, 0.0f);
    ASSERT_TRUE(c.Run().ok());
    EXPECT_EQ(Case::At(c.t.o, 0, 0, 0, 0), Case::At(c.t.v, 0, 7, 0, 0));
    EXPECT_EQ(c.lse[0], 0.0f);
  }
}

// A stride of zero broadcasts.
TEST_P(KernelTest, BroadcastInputs) {
  for (const char* line :
       {"hq=3,sq=20,skv=40,d=16,dtype=fp32", "hq=3,sq=1,skv=40,d=16,dtype=bf16"}) {
    Case c(line, false);
    c.t.k.strides = {0, 16, 0, 1};   // one head for all
    c.t.v.strides = {0, 0, 640, 1};  // one value for all keys
    c.t.q.strides[2] = 0;
    ASSERT_TRUE(c.Run().ok());
    ExpectCorrect(c, line);
  }
}

TEST(CpuTest, UsesTheBestInstructionSet) {
  // The instruction sets that this program has and this processor supports. The lowest bit is the
  // best.
  const int64_t both = hwy::SupportedTargets() & HWY_TARGETS;
  EXPECT_STREQ(TargetName(), hwy::TargetName(both & -both));
}

TEST(CpuTest, TrafficCountsFp8AndThePageTable) {
  const std::string line = "hq=4,sq=1024,d=64,dtype=bf16,mask=causal";
  const auto bytes_read = [](const std::string& problem) {
    DeviceInfo device;
    device.last_level_cache_bytes = 1;  // each tile reads K and V again
    const absl::StatusOr<Traffic> traffic = ExpectedTraffic(
        *AttentionProblem::Parse(problem), device, *LaunchConfig::Parse("tile_q=256"));
    EXPECT_TRUE(traffic.ok()) << traffic.status();
    return traffic.ok() ? traffic->bytes_read : 0;
  };
  const int64_t q = 4 * 1024 * 64 * 2;
  // Tiles see 256, 512, 768 and 1024 keys of 256 bytes in each of 4 heads.
  EXPECT_EQ(bytes_read(line), q + 4 * (256 + 512 + 768 + 1024) * 256);
  EXPECT_EQ(bytes_read(line + ",kvdtype=fp8_e4m3"), q + 4 * (256 + 512 + 768 + 1024) * 128);
  EXPECT_EQ(bytes_read(line + ",page=16"), bytes_read(line) + 1024 / 16 * 4);
}

TEST(CpuTest, TrafficCountsWhatIsReadAgain) {
  const absl::StatusOr<AttentionProblem> p =
      AttentionProblem::Parse("hq=4,sq=1024,d=64,dtype=fp32,mask=causal");
  ASSERT_TRUE(p.ok());
  const absl::StatusOr<LaunchConfig> config = LaunchConfig::Parse("tile_q=256,threads=2");
  ASSERT_TRUE(config.ok());
  const Traffic compulsory = CompulsoryTraffic(*p);
  DeviceInfo device;
  device.threads = 2;
  device.last_level_cache_bytes = int64_t{1} << 30;
  const absl::StatusOr<Traffic> cached = ExpectedTraffic(*p, device, *config);
  ASSERT_TRUE(cached.ok());
  EXPECT_EQ(cached->bytes_read, compulsory.bytes_read);
  EXPECT_EQ(cached->flops, compulsory.flops);
  device.last_level_cache_bytes = 1 << 20;  // two heads of K and V together
  const absl::StatusOr<Traffic> again = ExpectedTraffic(*p, device, *config);
  ASSERT_TRUE(again.ok());
  // Tiles see 256, 512, 768 and 1024 keys of 512 bytes in each of 4 heads.
  EXPECT_EQ(again->bytes_read, compulsory.bytes_read);
  device.last_level_cache_bytes -= 1;
  const absl::StatusOr<Traffic> more = ExpectedTraffic(*p, device, *config);
  ASSERT_TRUE(more.ok());
  EXPECT_EQ(more->bytes_read, compulsory.bytes_read + 4 * (256 + 512 + 768) * 512);
  EXPECT_EQ(more->bytes_written, compulsory.bytes_written);
}

}  // namespace
}  // namespace attnlab::cpu
