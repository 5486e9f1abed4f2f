// On a GPU: problems at the edges of FA2's own tiles, which the conformance suite's, drawn for all
// kernels, meet only by chance.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/launch_config.h"
#include "attention/machine.h"
#include "attention/problem.h"
#include "attention/testing/layout.h"
#include "attention/testing/special_values.h"
#include "attention/testing/verify.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

absl::StatusOr<Plan> PlanOf(const std::string& line, const std::string& config) {
  return MakePlan(*AttentionProblem::Parse(line), Device::Cuda(0), "fa2",
                  *LaunchConfig::Parse(config));
}

// What a configuration cannot do there is for the conformance suite to say.
void ExpectRight(const std::string& line, const std::string& config = "",
                 testing::Layout layout = testing::Layout::kBshd) {
  const absl::StatusOr<Plan> plan = PlanOf(line, config);
  if (absl::IsUnimplemented(plan.status()) || absl::IsResourceExhausted(plan.status())) return;
  ASSERT_TRUE(plan.ok()) << line << " " << config << ": " << plan.status();
  testing::VerifyOptions options;
  options.inputs.layout = layout;
  const absl::StatusOr<testing::VerifyResult> result = testing::Verify(*plan, options);
  ASSERT_TRUE(result.ok()) << line << " " << config << ": " << result.status();
  EXPECT_TRUE(result->passed) << config << "\n" << result->message;
}

const std::vector<std::string>& Engines() {
  static const auto* const engines = new std::vector<std::string>{
      "dtype=bf16;", "dtype=fp16;", "dtype=fp32;", "dtype=fp16;mma=wmma", "dtype=fp32;mma=tf32x3"};
  return *engines;
}

// line,dtype=…, and the configuration.
void ExpectRightOnAll(const std::string& line, testing::Layout layout = testing::Layout::kBshd) {
  for (const std::string& engine : Engines()) {
    const size_t cut = engine.find(';');
    ExpectRight(absl::StrCat(line, ",", engine.substr(0, cut)), engine.substr(cut + 1), layout);
  }
}

TEST(Fa2Test, RowsAndKeysAtTheEdgesOfTiles) {
  for (const int sq : {1, 63, 64, 65, 128, 129}) {
    for (const int skv : {1, 32, 33, 64, 65, 130}) {
      for (const char* mask : {"causal", "window:20:3"}) {
        ExpectRight(absl::StrCat("b=1,hq=2,hkv=1,sq=", sq, ",skv=", skv, ",d=64,mask=", mask));
      }
    }
  }
}

TEST(Fa2Test, EveryHeadDim) {
  for (int d = 8; d <= 256; d += 8) {
    // Another one for V, so that all paddings of both come up.
    ExpectRightOnAll(absl::StrCat("b=1,hq=2,sq=70,skv=90,d=", d, ",dv=", 264 - d, ",mask=causal"));
  }
  for (const int d : {1, 3, 33, 65, 127, 255}) {
    ExpectRightOnAll(absl::StrCat("b=1,hq=2,sq=70,skv=90,d=", d));
  }
}

TEST(Fa2Test, EveryTile) {
  for (const int d : {32, 64, 96, 128, 192, 256}) {
    for (const char* tile : {"", "tile_q=32", "tile_q=64", "tile_kv=32", "tile_q=128"}) {
      for (const char* mask : {"causal", "window:100:7"}) {
        for (const char* dtype : {"fp16", "bf16"}) {
          const std::string line = absl::StrCat("b=1,hq=4,hkv=2,sq=200,skv=333,d=", d,
                                                ",dtype=", dtype, ",softcap=20,mask=", mask);
          if (absl::IsInvalidArgument(PlanOf(line, tile).status())) continue;  // no such tile
          ExpectRight(line, tile);
        }
      }
    }
  }
}

TEST(Fa2Test, HeadsThatShareTiles) {
  for (const int group : {2, 7, 32}) {
    for (const int sq : {1, 5, 40, 130}) {
      for (const char* mask : {"causal", "window:9:0"}) {
        const std::string line =
            absl::StrCat("b=2,hq=", 2 * group, ",hkv=2,sq=", sq, ",skv=100,d=64,mask=", mask);
        ExpectRight(line, "pack=always");
        ExpectRight(line, "pack=never");
      }
    }
  }
  ExpectRight("b=3,hq=12,hkv=3,sq=9,skv=70,d=40,lens=packed,mask=causal", "pack=always");
  ExpectRight("b=3,hq=12,hkv=3,sq=9,skv=70,d=40,lens=padded,mask=causal", "pack=always",
              testing::Layout::kOdd);
}

// More heads of sequences than an axis of a grid has room for.
TEST(Fa2Test, ManyHeads) {
  for (const char* engine : {"dtype=bf16", "dtype=fp32"}) {
    ExpectRight(absl::StrCat("b=65539,hq=2,hkv=1,sq=1,skv=3,d=8,mask=causal,", engine),
                "pack=never");
  }
}

TEST(Fa2Test, SpecialValuesOfVReachTheRowsThatSeeThem) {
  for (const std::string& engine : Engines()) {
    const size_t cut = engine.find(';');
    for (const char* mask : {"none", "causal", "window:2:1"}) {
      for (const int dv : {16, 13}) {  // rows of 16 bytes, and not
        for (const testing::Layout layout :
             {testing::Layout::kBhsd, testing::Layout::kBshd, testing::Layout::kOdd}) {
          const std::string line = absl::StrCat("b=2,hq=2,hkv=1,sq=12,skv=12,d=16,dv=", dv, ",",
                                                engine.substr(0, cut), ",mask=", mask);
          const absl::StatusOr<Plan> plan = PlanOf(line, engine.substr(cut + 1));
          if (absl::IsUnimplemented(plan.status())) continue;
          ASSERT_TRUE(plan.ok()) << line << ": " << plan.status();
          EXPECT_EQ(testing::SpecialValuesOfV(*plan, layout), absl::OkStatus()) << engine;
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnlab
