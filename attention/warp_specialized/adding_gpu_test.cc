// ForwardAdding() against two calls of Forward() whose results are merged here; and calls whose blocks share query
// tiles against those whose blocks do not; V of fp8 that is transposed before; and rows of one tile.
#include <cmath>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/core/dtype.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/machine.h"
#include "attention/cuda/memory.h"
#include "attention/device/online_softmax.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

// Rows [b, rows, heads, dim] on the GPU, full of NaN. Each begins at a multiple of 16 bytes.
class Rows {
 public:
  Rows(DType dtype, int64_t b, int64_t rows, int64_t heads, int64_t dim)
      : stride_(dim == 1 ? 1 : (dim + 7) / 8 * 8),
        elements_(b * rows * heads * stride_),
        memory_(Buffer::Allocate(Device::Cuda(0), elements_ * SizeOf(dtype)).value()),
        view_(BshdView(memory_.data(), dtype, Device::Cuda(0), b, rows, heads, stride_)) {
    view_.shape[3] = dim;
    Fill([] { return std::nanf(""); });
  }

  // From row `first` on.
  TensorView View(int64_t first, int64_t rows) const {
    TensorView view = view_;
    view.data = static_cast<char*>(view.data) + view.strides[1] * first * SizeOf(view.dtype);
    view.shape[1] = rows;
    return view;
  }
  TensorView View() const { return view_; }

  template <typename Next>
  void Fill(Next next) {
    std::vector<char> bytes(memory_.bytes());
    for (int64_t i = 0; i < elements_; ++i) StoreElement(bytes.data(), view_.dtype, i, next());
    EXPECT_TRUE(memory_.CopyFromHost(bytes.data(), memory_.bytes()).ok());
  }
  std::vector<float> Read() const {
    std::vector<char> bytes(memory_.bytes());
    EXPECT_TRUE(memory_.CopyToHost(bytes.data(), memory_.bytes()).ok());
    std::vector<float> read;
    for (int64_t i = 0; i < elements_; ++i) {
      read.push_back(LoadElement(bytes.data(), view_.dtype, i));
    }
    return read;
  }

 private:
  const int64_t stride_, elements_;
  Buffer memory_;
  TensorView view_;
};

// K or V as pages of `page` keys.
TensorView InPages(TensorView view, int64_t page) {
  view.shape[0] *= view.shape[1] / page, view.shape[1] = page;
  view.strides[0] = page * view.strides[1];
  return view;
}

// A call's inputs, and where its rows are among those of O. Pages are in reverse order.
class Part {
 public:
  Part(const std::string& problem, const char* config, int64_t first_row, int seed)
      : config_(config),
        p_(AttentionProblem::Parse(problem).value()),
        first_row_(first_row),
        keys_(p_.page == 0 ? p_.skv : p_.Pages(p_.skv) * p_.page),
        q_(p_.dtype, p_.b, p_.sq, p_.hq, p_.d),
        k_(p_.dtype, p_.b, keys_, p_.hkv, p_.d),
        v_(p_.dtype, p_.b, keys_, p_.hkv, p_.dv) {
    if (p_.page != 0) {
      const int64_t pages = keys_ / p_.page;
      std::vector<int32_t> entries(p_.b * pages);
      std::iota(entries.rbegin(), entries.rend(), 0);
      table_ = Buffer::Allocate(Device::Cuda(0), entries.size() * sizeof(int32_t)).value();
      EXPECT_TRUE(table_.CopyFromHost(entries.data(), table_.bytes()).ok());
      table_view_ = {static_cast<const int32_t*>(table_.data()), p_.b, pages, pages};
    }
    std::mt19937 random(seed);
    for (Rows* rows : {&q_, &k_, &v_}) {
      rows->Fill([&] { return std::normal_distribution<float>()(random); });
    }
  }

  const AttentionProblem& problem() const { return p_; }
  // For later calls, with the same inputs and workspace.
  void SetConfig(const char* config) { config_ = config; }

  // Multiplies Q's rows by these factors in turn.
  void MultiplyQ(float first, float second) {
    const std::vector<float> q = q_.Read();
    const auto of_a_row = static_cast<int64_t>(q.size()) / (p_.b * p_.sq);
    int64_t i = 0;
    q_.Fill([&] {
      const float factor = i / of_a_row % 2 == 0 ? first : second;
      return factor * q[i++];
    });
  }

  // So many times, one after the other, with the same workspace.
  absl::Status Run(bool adds, const Rows& o, const Rows& lse, int times = 1) {
    absl::Status s = Start(adds, o, lse, times);
    if (s.ok()) s = cuda_backend::Synchronize(0);
    return s;
  }
  // The same, without a wait for it.
  absl::Status Start(bool adds, const Rows& o, const Rows& lse, int times = 1) {
    AttentionTensors t;
    t.q = q_.View(), t.k = k_.View(), t.v = v_.View();
    if (p_.page != 0) {
      t.k = InPages(k_.View(), p_.page), t.v = InPages(v_.View(), p_.page);
      t.page_table = table_view_;
    }
    t.o = o.View(first_row_, p_.sq), t.lse = lse.View(first_row_, p_.sq);
    const absl::StatusOr<Plan> plan =
        MakePlan(p_, Device::Cuda(0), "warp_specialized", LaunchConfig::Parse(config_).value());
    if (!plan.ok()) return plan.status();
    if (scratch_.bytes() < plan->workspace_bytes) {
      absl::StatusOr<Buffer> scratch = Buffer::Allocate(Device::Cuda(0), plan->workspace_bytes);
      if (!scratch.ok()) return scratch.status();
      scratch_ = *std::move(scratch);
    }
    const Workspace workspace = {scratch_.data(), scratch_.bytes()};
    absl::Status s;
    for (int i = 0; i < times && s.ok(); ++i) {
      s = adds ? ForwardAdding(*plan, t, workspace, /*stream=*/nullptr,
                               /*may_start_early=*/times == 1)
               : Forward(*plan, t, workspace);
    }
    return s;
  }

 private:
  const char* config_;
  const AttentionProblem p_;
  const int64_t first_row_, keys_;  // keys_: with the rest of the last page
  Rows q_, k_, v_;
  Buffer table_, scratch_;
  PageTableView table_view_;
};

struct Case {
  const char* problem;
  const char* config = "";
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.problem << " " << c.config; }

class AddingTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const absl::StatusOr<DeviceInfo> gpu = InfoOf(Device::Cuda(0));
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    if (gpu->compute_capability != 90) GTEST_SKIP() << "not a Hopper GPU";
  }
};
INSTANTIATE_TEST_SUITE_P(
    Problems, AddingTest,
    ::testing::Values(Case{"d=128"}, Case{"d=96"}, Case{"d=72,hkv=1"}, Case{"d=192"},
                      Case{"d=192,dv=128"}, Case{"d=256,hkv=1"}, Case{"d=128,softcap=20"},
                      Case{"d=128,dv=100"}, Case{"d=80,dv=77"}, Case{"d=128", "pairs=true"},
                      Case{"d=192,hkv=1", "pairs=true"}, Case{"d=192,dv=128", "pairs=true"},
                      Case{"d=256", "pairs=true"}, Case{"d=128,page=16"},
                      Case{"d=128,page=16", "pairs=true"}, Case{"d=256,page=8", "pairs=true"}));

// Rows of O, and keys of the first part; the first row and the keys of the second part.
struct Sizes {
  int64_t rows, keys, first, second_keys;
  const char* dtype;
};

TEST_P(AddingTest, MergesWhatIsThere) {
  constexpr int64_t kB = 2, kHeads = 4;
  // Of both parts, the first rows see no key: 30 of the first one. Of the second one 57, or more than a tile has. Of
  // short queries, heads with the same K and V share a tile.
  constexpr Sizes kSizes[] = {{300, 270, 43, 200, "bf16"},
                              {300, 270, 43, 200, "fp16"},
                              {300, 270, 43, 70, "bf16"},
                              {29, 200, 3, 150, "fp16"}};
  for (const Sizes& sizes : kSizes) {
    const std::string dims =
        absl::StrCat("b=2,hq=4,", GetParam().problem, ",mask=causal,dtype=", sizes.dtype);
    SCOPED_TRACE(absl::StrCat(dims, ", ", sizes.rows, " rows, ", sizes.second_keys, " keys"));
    const char* const config = GetParam().config;
    const int64_t rows = sizes.rows, first_row = sizes.first;
    Part first(absl::StrCat(dims, ",sq=", rows, ",skv=", sizes.keys), config, 0, 1);
    Part second(absl::StrCat(dims, ",sq=", rows - first_row, ",skv=", sizes.second_keys), config,
                first_row, 2);
    const DType of_o = first.problem().dtype;
    const int64_t dv = first.problem().dv;
    const Rows o(of_o, kB, rows, kHeads, dv), lse(DType::kFloat32, kB, rows, kHeads, 1);
    const Rows other_o(of_o, kB, rows, kHeads, dv), other_lse(DType::kFloat32, kB, rows, kHeads, 1);
    ASSERT_EQ(first.Run(/*adds=*/false, o, lse), absl::OkStatus());
    const std::vector<float> o1 = o.Read(), lse1 = lse.Read();
    ASSERT_EQ(second.Run(/*adds=*/false, other_o, other_lse), absl::OkStatus());
    const std::vector<float> o2 = other_o.Read(), lse2 = other_lse.Read();
    ASSERT_EQ(second.Run(/*adds=*/true, o, lse), absl::OkStatus());
    const std::vector<float> got = o.Read(), got_lse = lse.Read();

    const int64_t stride = static_cast<int64_t>(got.size() / got_lse.size());
    for (int64_t row = 0; row < kB * rows * kHeads; ++row) {
      const bool has_second = row / kHeads % rows >= first_row;
      auto state = device::OnlineSoftmax::OfLse(lse1[row]);
      const auto f = state.Merge(device::OnlineSoftmax::OfLse(has_second ? lse2[row] : -INFINITY));
      if (std::isinf(state.Lse())) {
        ASSERT_EQ(got_lse[row], state.Lse());
      } else {
        ASSERT_NEAR(got_lse[row], state.Lse(), 1e-5 * (1 + std::abs(state.Lse())));
      }
      for (int64_t i = row * stride; i < (row + 1) * stride; ++i) {
        if (i - row * stride >= dv) {
          ASSERT_TRUE(std::isnan(got[i])) << "between the rows, element " << i;
          continue;
        }
        const float second_o = has_second ? o2[i] : 0;
        const float expected = (f.mine * o1[i] + f.parts * second_o) * state.Inverse();
        // Both O of the second part and the sum are rounded.
        ASSERT_NEAR(got[i], expected,
                    Epsilon(of_o) * (std::abs(expected) + std::abs(second_o)) + 1e-6)
            << "row " << row << ", element " << i;
      }
    }
  }
}

// 240 query tiles, or 120 of pairs, of 3 tiles of keys or more, for GPUs with 114 or 132 multiprocessors. The last tile
// of a head has few rows, or in a pair none.
class SharingTest : public AddingTest {};
INSTANTIATE_TEST_SUITE_P(
    Problems, SharingTest,
    ::testing::Values(Case{"sq=300,d=64,dtype=fp16"}, Case{"sq=200,d=96,dtype=bf16"},
                      Case{"sq=200,d=128,dtype=bf16"}, Case{"sq=200,d=128,dtype=fp16,softcap=20"},
                      Case{"sq=400,d=128,dtype=bf16", "pairs=true,"},
                      Case{"sq=300,d=128,dtype=fp16", "pairs=true,"},
                      Case{"sq=300,d=128,dtype=bf16,page=8", "pairs=true,"},
                      Case{"sq=200,d=192,dv=128,dtype=bf16"}, Case{"sq=200,d=192,dtype=fp16"},
                      Case{"sq=200,d=256,dtype=bf16"},
                      Case{"sq=400,d=256,dtype=bf16", "pairs=true,"},
                      Case{"sq=300,d=64,dtype=fp8_e4m3"},
                      Case{"sq=300,d=128,dtype=fp8_e4m3", "pairs=true,"},
                      Case{"sq=400,d=256,dtype=fp8_e4m3", "pairs=true,"},
                      Case{"sq=200,d=128,dtype=fp8_e4m3"}, Case{"sq=200,d=256,dtype=fp8_e4m3"}));

TEST_P(SharingTest, GivesWhatBlocksGiveThatDoNotShare) {
  constexpr int kSeed = 3;
  const std::string problem = absl::StrCat("b=3,hq=40,hkv=20,skv=400,", GetParam().problem),
                    shares = absl::StrCat(GetParam().config, "shares=true"),
                    alone = absl::StrCat(GetParam().config, "shares=false");
  Part with(problem, shares.c_str(), 0, kSeed), without(problem, alone.c_str(), 0, kSeed);
  const AttentionProblem& p = with.problem();
  const bool fp8 = p.dtype == DType::kFloat8E4M3;
  for (const bool adds : {false, true}) {
    if (adds && (fp8 || p.d == 64)) continue;  // cannot
    SCOPED_TRACE(adds ? "adds" : "");
    std::vector<float> o[3], lse[3];
    for (const int i : {0, 1, 2}) {
      const Rows of_o(p.ODType(), p.b, p.sq, p.hq, p.dv),
          of_lse(DType::kFloat32, p.b, p.sq, p.hq, 1);
      if (adds) ASSERT_EQ(without.Run(/*adds=*/false, of_o, of_lse), absl::OkStatus());
      // Three times: what is left in the workspace does not disturb the next call. What is added changes each time.
      const int times = i == 2 && !adds ? 3 : 1;
      ASSERT_EQ((i == 1 ? without : with).Run(adds, of_o, of_lse, times), absl::OkStatus());
      o[i] = of_o.Read(), lse[i] = of_lse.Read();
    }
    EXPECT_TRUE(o[0] == o[2] && lse[0] == lse[2]) << "other bits";
    // P is rounded relative to other maxima, and of what is added O is rounded, too.
    const double of_p = fp8 ? 0.125 * 0.5 : Epsilon(p.dtype) * 0.3, of_o = Epsilon(p.ODType());
    for (size_t i = 0; i < o[0].size(); ++i) {
      ASSERT_NEAR(o[0][i], o[1][i], of_o * std::abs(o[1][i]) + of_p) << "element " << i;
    }
    for (size_t i = 0; i < lse[0].size(); ++i) ASSERT_NEAR(lse[0][i], lse[1][i], 1e-4);
  }
}

class PretransposedTest : public AddingTest {};
INSTANTIATE_TEST_SUITE_P(
    Problems, PretransposedTest,
    ::testing::Values(Case{"sq=300,d=128"}, Case{"sq=300,d=128,mask=causal", "pairs=true,"},
                      Case{"sq=200,d=96,dv=80,mask=window:150:9"},
                      Case{"sq=300,d=128", "pairs=true,shares=true,"},
                      Case{"sq=200,d=208,dv=176,mask=causal"},
                      Case{"sq=400,d=256,dv=64,mask=window:90:200", "pairs=true,"},
                      Case{"sq=200,d=256", "shares=true,"},
                      Case{"sq=400,d=256,dv=240,mask=causal", "pairs=true,"}));

// Again and again in the same memory: V of the call before is there until V of this one is.
TEST_P(PretransposedTest, GivesTheBitsOfVThatQueryTilesTranspose) {
  const std::string problem =
      absl::StrCat("b=3,hq=40,hkv=20,skv=390,dtype=fp8_e4m3,", GetParam().problem);
  const std::string before = absl::StrCat(GetParam().config, "pretransposed=true"),
                    tiles = absl::StrCat(GetParam().config, "pretransposed=false");
  for (const int seed : {1, 2, 3}) {
    std::vector<float> o[2], lse[2];
    Part part(problem, before.c_str(), 0, seed);
    const AttentionProblem& p = part.problem();
    for (const int i : {0, 1}) {
      if (i == 1) part.SetConfig(tiles.c_str());
      const Rows of_o(p.ODType(), p.b, p.sq, p.hq, p.dv),
          of_lse(DType::kFloat32, p.b, p.sq, p.hq, 1);
      ASSERT_EQ(part.Run(/*adds=*/false, of_o, of_lse, /*times=*/2), absl::OkStatus());
      o[i] = of_o.Read(), lse[i] = of_lse.Read();
    }
    EXPECT_TRUE(o[0] == o[1] && lse[0] == lse[1]) << "seed " << seed;
  }
}

class TileTest : public AddingTest {};
INSTANTIATE_TEST_SUITE_P(Problems, TileTest,
                         ::testing::Values(Case{"d=64,dtype=fp8_e4m3"},
                                           Case{"d=128,dtype=fp8_e4m3"},
                                           Case{"d=128,dtype=fp8_e4m3,mask=causal"},
                                           Case{"d=192,dv=128,dtype=fp8_e4m3"},
                                           Case{"d=256,dtype=fp8_e4m3"}, Case{"d=128,dtype=bf16"},
                                           Case{"d=256,dtype=fp16"}));

// A warp decides for its 16 rows together. Large scores of every other row leave the bits of the rest as they are.
TEST_P(TileTest, RowsDoNotChangeTheBitsOfOthers) {
  Part part(absl::StrCat("b=1,hq=6,hkv=2,sq=301,skv=4000,", GetParam().problem), "", 0, 1);
  const AttentionProblem& p = part.problem();
  part.MultiplyQ(3, 3);  // few keys have most of a row's weight
  std::vector<float> o[2], lse[2];
  for (const int i : {0, 1}) {
    if (i == 1) part.MultiplyQ(1, 9);
    const Rows of_o(p.ODType(), p.b, p.sq, p.hq, p.dv), of_lse(DType::kFloat32, p.b, p.sq, p.hq, 1);
    ASSERT_EQ(part.Run(/*adds=*/false, of_o, of_lse), absl::OkStatus());
    o[i] = of_o.Read(), lse[i] = of_lse.Read();
  }
  int64_t equal = 0;
  for (const auto* of : {o, lse}) {
    const auto of_a_row = static_cast<int64_t>(of[0].size()) / p.sq;
    for (size_t i = 0; i < of[0].size(); ++i) {
      const bool multiplied = static_cast<int64_t>(i) / of_a_row % 2 == 1;
      if (multiplied) {
        equal += of[0][i] == of[1][i];
      } else {
        ASSERT_EQ(of[0][i], of[1][i]) << "row " << static_cast<int64_t>(i) / of_a_row;
      }
    }
  }
  EXPECT_LT(equal, static_cast<int64_t>(o[0].size()) / 8);  // of half of all
}

// On 132 multiprocessors, a third of the first part's tiles end 80 us after the others. Those of the second one have
// a tile of keys each.
TEST_F(AddingTest, WaitsForWhatIsThere) {
  for (const auto& [config, heads] :
       {std::pair("shares=false", 200), std::pair("pairs=true,shares=false", 100)}) {
    SCOPED_TRACE(config);
    const std::string dims = absl::StrCat("b=1,hq=", heads, ",hkv=1,sq=128,d=128,dtype=bf16,skv=");
    Part first(dims + "8192", config, 0, 1), second(dims + "128", config, 0, 2);
    std::vector<float> bits[2];
    for (const bool waits : {true, false}) {
      const Rows o(DType::kBFloat16, 1, 128, heads, 128), lse(DType::kFloat32, 1, 128, heads, 1);
      ASSERT_EQ(first.Start(/*adds=*/false, o, lse), absl::OkStatus());
      if (waits) ASSERT_EQ(cuda_backend::Synchronize(0), absl::OkStatus());
      ASSERT_EQ(second.Run(/*adds=*/true, o, lse), absl::OkStatus());
      bits[waits] = o.Read();
    }
    EXPECT_TRUE(bits[0] == bits[1]);
  }
}

}  // namespace
}  // namespace attnlab
