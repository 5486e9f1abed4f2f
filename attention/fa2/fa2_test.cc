// On a GPU: problems at the edges of FA2's own tiles. The conformance suite, whose problems are
// drawn for all kernels, meets those edges only by chance.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "attention/attention.h"
#include "attention/core/dtype.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/code_capability.h"
#include "attention/cuda/machine.h"
#include "attention/cuda/managed_array.h"
#include "attention/device/cuda_core_table.h"
#include "attention/fa2/tensor_cores.h"
#include "attention/oracle/layout.h"
#include "attention/oracle/verify.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

using oracle::Layout;

absl::StatusOr<Plan> PlanOf(const std::string& line, const std::string& config) {
  return MakePlan(*AttentionProblem::Parse(line), Device::Cuda(0), "fa2",
                  *LaunchConfig::Parse(config));
}

// These tests use only what FA2 supports here, so a declined problem is a failure.
void ExpectRight(const std::string& line, const std::string& config = "",
                 Layout layout = Layout::kBshd) {
  const absl::StatusOr<Plan> plan = PlanOf(line, config);
  ASSERT_TRUE(plan.ok()) << line << " " << config << ": " << plan.status();
  oracle::VerifyOptions options;
  options.inputs.layout = layout;
  const absl::StatusOr<oracle::VerifyResult> result = oracle::Verify(*plan, options);
  ASSERT_TRUE(result.ok()) << line << " " << config << ": " << result.status();
  EXPECT_TRUE(result->passed) << config << "\n" << result->message;
}

struct Engine {
  std::string dtype, mma;
  int capability = 75;  // the lowest code capability that has this engine
};

const DeviceInfo& Gpu() {
  static const DeviceInfo* const gpu = new DeviceInfo(*InfoOf(Device::Cuda(0)));
  return *gpu;
}

int Capability() {
  int code = 0;
  EXPECT_EQ(device::CodeCapability(&code), cudaSuccess);
  return std::min(code, Gpu().compute_capability);
}

std::vector<Engine> Engines() {
  std::vector<Engine> engines;
  for (const Engine& e : {Engine{"bf16", "auto", 80}, Engine{"fp16", "auto"},
                          Engine{"fp32", "auto"}, Engine{"fp32", "tf32x3", 80}}) {
    if (e.capability <= Capability()) engines.push_back(e);
  }
  return engines;
}

std::string LineOf(const Engine& e, absl::string_view line) {
  return absl::StrCat(line, ",dtype=", e.dtype);
}

// One configuration for each tile that the engine has for the head dim and that fits the GPU. The
// tiles that FA2 chooses by default are among them.
std::vector<std::string> ConfigsOf(const Engine& e, int head_dim) {
  const std::string mma = absl::StrCat("mma=", e.mma);
  if (e.mma == "tf32x3") return {mma};  // one tile per head dim
  std::set<std::string> configs;
  const auto add = [&](const auto& tile) {
    if (tile.shared_bytes > Gpu().shared_memory_per_block) return;
    configs.insert(absl::StrCat(mma, ",tile_q=", tile.rows, ",tile_kv=", tile.keys));
  };
  if (e.dtype == "fp32") {
    for (const device::CudaCoreTile& tile : device::kCudaCoreTiles) {
      if (tile.dim == head_dim) add(tile);
    }
  } else {
    for (const fa2::TensorCoreTileRow& tile : fa2::kTensorCoreTiles) {
      const bool there = e.dtype == "fp16" || tile.size != fa2::TileSize::kSmall;
      if (tile.head_dim == head_dim && there) add(tile);
    }
  }
  EXPECT_FALSE(configs.empty()) << mma << " " << head_dim;
  return {configs.begin(), configs.end()};
}

constexpr int kHeadDims[] = {32, 64, 96, 128, 192, 256};

void ExpectRightOnAll(const std::string& line) {
  for (const Engine& e : Engines()) ExpectRight(LineOf(e, line), absl::StrCat("mma=", e.mma));
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

// With one stage of K and V, copies wait for each other in a different order.
TEST(Fa2Test, RowsAndKeysAtTheEdgesOfTilesOfOneStage) {
  for (const int d : {128, 192, 256}) {
    for (const std::string& config : ConfigsOf({"fp16", "auto"}, d)) {
      for (const int sq : {63, 64, 65, 129}) {
        for (const int skv : {63, 64, 65, 129}) {
          for (const char* mask : {"causal", "window:20:3"}) {
            ExpectRight(absl::StrCat("b=1,hq=2,hkv=1,sq=", sq, ",skv=", skv, ",d=", d,
                                     ",dtype=fp16,mask=", mask),
                        config);
          }
        }
      }
    }
  }
}

TEST(Fa2Test, EveryHeadDim) {
  for (int d = 8; d <= 256; d += 8) {
    // V has another head dim, so that all paddings of both occur.
    ExpectRightOnAll(absl::StrCat("b=1,hq=2,sq=70,skv=90,d=", d, ",dv=", 264 - d, ",mask=causal"));
  }
  for (const int d : {1, 3, 33, 65, 127, 255}) {
    ExpectRightOnAll(absl::StrCat("b=1,hq=2,sq=70,skv=90,d=", d));
  }
  // Without padding, tiles are copied whole.
  for (const int d : kHeadDims) {
    ExpectRightOnAll(absl::StrCat("b=1,hq=2,sq=140,skv=150,d=", d, ",dv=", d, ",mask=causal"));
  }
}

TEST(Fa2Test, EveryTile) {
  for (const int d : kHeadDims) {
    for (const Engine& e : Engines()) {
      for (const std::string& config : ConfigsOf(e, d)) {
        for (const char* rest : {"mask=causal", "mask=window:100:7", "mask=causal,softcap=20"}) {
          ExpectRight(LineOf(e, absl::StrCat("b=1,hq=2,hkv=1,sq=200,skv=333,d=", d, ",", rest)),
                      config);
        }
      }
    }
  }
}

// With large scores, running maxima move in the middle of a sequence, in some rows only. If two
// warps share rows, only one of them has seen the new maximum.
TEST(Fa2Test, MaximaThatMove) {
  for (const int d : kHeadDims) {
    for (const Engine& e : Engines()) {
      for (const std::string& config : ConfigsOf(e, d)) {
        for (const char* rest : {"mask=none,scale=3", "mask=causal,scale=3,softcap=90"}) {
          ExpectRight(LineOf(e, absl::StrCat("b=1,hq=2,hkv=1,sq=140,skv=400,d=", d, ",", rest)),
                      config);
        }
      }
    }
  }
}

// One key in a later tile is far above the others. Its P is 1 and O is its V to the bit, whichever
// of the warps that share the row has it. With any other P the rounding would show.
TEST(Fa2Test, AKeyThatAloneCountsIsNotRounded) {
  constexpr int kKeys = 400;
  for (const Engine& e : Engines()) {
    if (e.dtype == "fp32") continue;  // its products and sums are rounded to O's own precision
    for (const int d : kHeadDims) {
      for (const std::string& config : ConfigsOf(e, d)) {
        const absl::StatusOr<Plan> plan =
            PlanOf(LineOf(e, absl::StrCat("hq=1,sq=1,skv=", kKeys, ",d=", d, ",scale=1")), config);
        ASSERT_TRUE(plan.ok()) << plan.status();
        const DType dtype = plan->problem.dtype;
        const int64_t size = SizeOf(dtype);
        device::ManagedArray<char> q(d * size), k(kKeys * d * size), v(kKeys * d * size),
            o(d * size), workspace(std::max<int64_t>(plan->workspace_bytes, 1));
        ASSERT_NE(workspace.data(), nullptr);
        AttentionTensors tensors;
        const Device gpu = Device::Cuda(0);
        tensors.q = BshdView(q.data(), dtype, gpu, 1, 1, 1, d);
        tensors.k = BshdView(k.data(), dtype, gpu, 1, kKeys, 1, d);
        tensors.v = BshdView(v.data(), dtype, gpu, 1, kKeys, 1, d);
        tensors.o = BshdView(o.data(), dtype, gpu, 1, 1, 1, d);
        std::vector<char> expected(d * size);
        for (int i = 0; i < d; ++i) StoreElement(expected.data(), dtype, i, 1.375f);
        for (int i = 0; i < kKeys * d; ++i) StoreElement(v.data(), dtype, i, 1.375f);
        for (const int key : {0, 63, 64, 100, 131, 399}) {
          for (const float score : {14.0f, 15.125f, 17.25f, 30.5f}) {
            std::fill(q.begin(), q.end(), 0);
            std::fill(k.begin(), k.end(), 0);
            StoreElement(q.data(), dtype, 0, 1);
            StoreElement(k.data(), dtype, key * d, score);
            const absl::Status done =
                Forward(*plan, tensors, {workspace.data(), plan->workspace_bytes});
            ASSERT_TRUE(done.ok()) << done;
            ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
            EXPECT_EQ(std::vector<char>(o.begin(), o.end()), expected)
                << LineOf(e, config) << " d=" << d << " key " << key << " score " << score;
          }
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
              Layout::kOdd);
}

// More (sequence, head) pairs than one axis of a grid has room for.
TEST(Fa2Test, ManyHeads) {
  for (const char* engine : {"dtype=bf16", "dtype=fp32"}) {
    ExpectRight(absl::StrCat("b=65539,hq=2,hkv=1,sq=1,skv=3,d=8,mask=causal,", engine),
                "pack=never");
  }
}

}  // namespace
}  // namespace attnlab
