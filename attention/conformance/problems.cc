#include "attention/conformance/problems.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace attnlab::conformance {
namespace {

// Multiply-adds of a problem without its mask: the oracle does these in about a tenth of a second.
constexpr double kMostWork = 4e7;

// The same limit for the EdgeCases() of ReducedCases().
constexpr double kMostReducedWork = 4e6;

// Deals values in random order; all of them come before any comes again.
template <typename T>
class Deck {
 public:
  Deck(std::mt19937_64& random, std::vector<T> cards) : random_(random), cards_(std::move(cards)) {}

  T Deal() {
    if (left_ == 0) left_ = cards_.size();
    // Does not use std::shuffle, because its order depends on the library.
    const size_t drawn = random_() % left_;
    const T card = cards_[drawn];
    cards_[drawn] = cards_[--left_];
    cards_[left_] = card;
    return card;
  }

 private:
  std::mt19937_64& random_;
  std::vector<T> cards_;
  size_t left_ = 0;
};

struct Heads {
  int64_t hkv, group;
};

double Work(const AttentionProblem& p) {
  return static_cast<double>(p.b) * static_cast<double>(p.hq) * static_cast<double>(p.sq) *
         static_cast<double>(p.skv) * static_cast<double>(p.d + p.dv);
}

bool HasAlignedRows(const Case& c) {
  const int64_t unit = 16 / SizeOf(c.problem.dtype);
  return c.problem.d % unit == 0 && c.problem.dv % unit == 0 &&
         c.inputs.layout != oracle::Layout::kOdd;
}

// The features that ReducedCases() must each have once: "dtype=fp16, mask=1" and so on.
std::set<std::string> FeaturesOf(const Case& c) {
  const AttentionProblem& p = c.problem;
  const auto number = [](auto value) { return absl::StrCat(static_cast<int>(value)); };
  const std::vector<std::string> axes = {
      absl::StrCat("dtype=", Name(p.dtype)),
      absl::StrCat("mask=", number(p.mask.kind)),
      absl::StrCat("lens=", number(p.lens)),
      absl::StrCat("layout=", Name(c.inputs.layout)),
  };
  // With no queries or no keys, one problem for each mask is enough.
  if (p.sq == 0) return {"no queries, " + axes[1]};
  if (p.skv == 0) return {"no keys, " + axes[1]};
  std::set<std::string> features;
  // Of kernels that need aligned rows, other problems have another layout.
  if (HasAlignedRows(c)) features.insert("aligned, " + axes[3]);
  for (size_t i = 0; i < axes.size(); ++i) {
    for (size_t j = i + 1; j < axes.size(); ++j) features.insert(axes[i] + ", " + axes[j]);
    // More than one tile, with a partial one, in both directions.
    if (p.sq > 64 && p.skv > 64) features.insert("several tiles, " + axes[i]);
  }
  // Head dims that suit tensor cores (64s), that vector loads still take (8s), and other ones.
  const auto dim = [](int64_t d) { return d % 64 == 0 ? "64s" : d % 8 == 0 ? "8s" : "odd"; };
  features.insert(absl::StrCat("d in ", dim(p.d), ", ", axes[0]));
  features.insert(absl::StrCat("dv in ", dim(p.dv), ", ", axes[0]));
  features.insert(absl::StrCat("groups: ", p.GroupSize() > 1, ", ", axes[2]));
  features.insert(absl::StrCat("batch: ", p.b > 1, ", ", axes[2]));
  features.insert(absl::StrCat("softcap: ", p.softcap != 0, ", ", axes[0]));
  features.insert(absl::StrCat("one query: ", p.sq == 1));
  features.insert(absl::StrCat("scale: ", p.scale.has_value()));
  features.insert(absl::StrCat("values: ", Name(c.inputs.values)));
  features.insert(absl::StrCat("lse: ", c.with_lse));
  return features;
}

Case Special(const char* line, uint64_t seed, oracle::Values values = oracle::Values::kNormal) {
  Case c;
  // The lines below are valid; problems_test checks that.
  c.problem = AttentionProblem::Parse(line).value_or(AttentionProblem());
  c.inputs.seed = seed;
  c.inputs.values = values;
  return c;
}

std::vector<Case> InEveryConfig(std::vector<Case> cases) {
  for (Case& c : cases) c.every_config = true;
  return cases;
}

std::vector<Case> Numbered(std::vector<Case> cases) {
  for (size_t i = 0; i < cases.size(); ++i) cases[i].number = static_cast<int>(i);
  return cases;
}

}  // namespace

std::string Case::ToString() const {
  return absl::StrCat(problem.ToString(), ",seed=", inputs.seed, ",layout=", Name(inputs.layout),
                      ",values=", Name(inputs.values), ",lse=", with_lse ? "yes" : "no");
}

std::vector<Case> EdgeCases(uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  const std::vector<int64_t> kSizes = {0,  1,  2,  7,  15,  16,  17,  31,  32,  33,  37,
                                       63, 64, 65, 97, 101, 127, 128, 129, 211, 257, 401};
  const std::vector<int64_t> kDims = {1,  3,  8,  31,  32,  40,  63,  64,
                                      65, 80, 96, 128, 192, 256, 257, 512};
  Deck<int64_t> sq(random, kSizes), skv(random, kSizes);
  Deck<int64_t> d(random, kDims), dv(random, kDims);
  Deck<bool> same_dv(random, {true, true, false});
  Deck<bool> same_length(random, {true, false, false});
  Deck<int64_t> b(random, {1, 1, 2, 3, 5, 8});
  Deck<Heads> heads(random, {{1, 1},
                             {2, 1},
                             {3, 1},
                             {1, 2},
                             {2, 2},
                             {1, 3},
                             {2, 3},
                             {2, 4},
                             {1, 7},
                             {2, 7},
                             {1, 8},
                             {1, 12}});
  Deck<Mask> mask(
      random,
      {Mask::None(), Mask::None(), Mask::None(), Mask::Causal(), Mask::Causal(), Mask::Causal(),
       Mask::SlidingWindow(0, 0), Mask::SlidingWindow(1, 0), Mask::SlidingWindow(3, 2),
       Mask::SlidingWindow(0, 5), Mask::SlidingWindow(31, 0), Mask::SlidingWindow(64, 64),
       Mask::SlidingWindow(100000, 0), Mask::SlidingWindow(2147483647, 2147483647)});
  Deck<std::optional<float>> scale(random, {std::nullopt, std::nullopt, std::nullopt, std::nullopt,
                                            std::nullopt, std::nullopt, 0.0f, 1.0f, 0.01f});
  Deck<float> softcap(random, {0, 0, 0, 0, 0.5f, 30, 50});
  Deck<Lengths> lens(random,
                     {Lengths::kFixed, Lengths::kFixed, Lengths::kPacked, Lengths::kPadded});
  Deck<DType> dtype(random, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  Deck<oracle::Layout> layout(random, {oracle::kAllLayouts.begin(), oracle::kAllLayouts.end()});
  Deck<oracle::Values> values(
      random, {oracle::Values::kNormal, oracle::Values::kNormal, oracle::Values::kNormal,
               oracle::Values::kUniform, oracle::Values::kOutliers, oracle::Values::kLargeScores});
  Deck<bool> with_lse(random, {true, true, true, false});

  std::vector<Case> cases;
  for (int i = 0; i < count; ++i) {
    Case c;
    AttentionProblem& p = c.problem;
    const Heads h = heads.Deal();
    p.hkv = h.hkv;
    p.hq = h.hkv * h.group;
    p.d = d.Deal();
    p.dv = same_dv.Deal() ? p.d : dv.Deal();
    p.dtype = dtype.Deal();
    p.mask = mask.Deal();
    p.scale = scale.Deal();
    p.softcap = softcap.Deal();
    p.lens = lens.Deal();
    do {
      p.b = b.Deal();
      p.sq = sq.Deal();
      p.skv = same_length.Deal() ? p.sq : skv.Deal();
    } while (Work(p) > kMostWork);
    c.inputs.seed = random() % 1000000;
    c.inputs.values = values.Deal();
    c.with_lse = with_lse.Deal();
    c.inputs.layout = layout.Deal();
    if (!oracle::CheckLayout(c.inputs.layout, p).ok()) c.inputs.layout = oracle::Layout::kBhsd;
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<Case> SpecialCases() {
  std::vector<Case> cases = {
      // Few queries and a very long cache; lengths that are multiples of nothing.
      Special("b=1,hq=4,hkv=1,sq=1,skv=100003,d=64,dtype=bf16,mask=causal", 1),
      Special("b=1,hq=1,sq=3,skv=65537,d=128,dtype=fp32", 2),
      Special("b=1,hq=2,sq=2053,d=64,dtype=fp16,mask=causal", 3),
      Special("b=1,hq=1,sq=4099,d=32,dtype=fp32,mask=window:128:0", 4),
      Special("b=2,hq=2,hkv=1,sq=1543,d=40,dtype=bf16,mask=window:100:100", 5,
              oracle::Values::kOutliers),
      // Rows that see no key.
      Special("b=1,hq=2,sq=1000,skv=3,d=64,dtype=fp32,mask=causal", 6),
      Special("b=1,hq=2,sq=300,skv=70,d=64,dtype=bf16,mask=window:5:5", 7),
      Special("b=2,hq=2,sq=5,skv=0,d=64,dtype=fp16", 8),
      Special("b=2,hq=2,sq=0,skv=5,d=64,dtype=fp16", 9),
      Special("b=1,hq=1,sq=1,skv=1,d=1,dtype=fp32", 10),
      // So many keys that each one is lost if a sum adds them one by one.
      Special("b=1,hq=1,sq=70,skv=262144,d=8,dtype=fp32,scale=0.7071", 18,
              oracle::Values::kConstantV),
      // Decoding: a query or two per sequence, with varying lengths.
      Special("b=33,hq=8,hkv=2,sq=1,skv=517,d=128,dtype=bf16,mask=causal,lens=padded", 11),
      Special("b=17,hq=7,hkv=1,sq=2,skv=300,d=64,dtype=fp16,mask=causal,lens=packed", 12),
      Special("b=257,hq=2,sq=3,skv=9,d=16,dtype=fp32,mask=causal", 13),
      Special("b=64,hq=1,sq=40,d=8,dtype=bf16,lens=packed,mask=causal", 14),
      // The largest head dim, and softcap with scores far above it.
      Special("b=1,hq=2,hkv=1,sq=130,d=512,dtype=bf16,mask=causal", 15),
      Special("b=1,hq=2,sq=90,d=64,dtype=fp32,softcap=20", 16, oracle::Values::kLargeScores),
      Special("b=1,hq=2,sq=200,d=64,dtype=fp16,mask=causal", 17, oracle::Values::kLargeScores),
  };
  // One long sequence among empty ones, and only empty sequences.
  for (const char* lens : {"packed", "padded"}) {
    Case one = Special("b=4,hq=4,hkv=2,sq=700,skv=800,d=64,dtype=fp32,mask=causal", 20);
    one.problem.lens = lens[2] == 'c' ? Lengths::kPacked : Lengths::kPadded;
    one.inputs.q_lens = {0, 700, 0, 1};
    one.inputs.kv_lens = {3, 800, 0, 0};
    cases.push_back(one);
    one.inputs.q_lens = one.inputs.kv_lens = {0, 0, 0, 0};
    cases.push_back(one);
  }
  return cases;
}

std::vector<Case> TileCases() {
  constexpr DType kDtypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  const Mask kMasks[] = {Mask::Causal(), Mask::SlidingWindow(60, 9), Mask::None()};
  constexpr oracle::Layout kLayouts[] = {oracle::Layout::kBshd, oracle::Layout::kOdd,
                                         oracle::Layout::kStrided, oracle::Layout::kBhsd};
  constexpr Lengths kLens[] = {Lengths::kFixed, Lengths::kPacked, Lengths::kPadded};
  std::vector<Case> cases;
  for (const int64_t d : {32, 64, 96, 128, 192, 256}) {
    for (const DType dtype : kDtypes) {
      const auto turn = static_cast<int>(cases.size());
      Case c;
      AttentionProblem& p = c.problem;
      p.dtype = dtype;
      p.mask = kMasks[turn / 2 % 3];
      p.lens = kLens[turn / 3 % 3];
      p.b = p.lens == Lengths::kFixed ? 1 : 2;
      p.hq = 2;
      p.hkv = 1;
      // Tiles of small head dims have up to 256 rows.
      p.sq = d < 128 ? 270 : 140;
      p.skv = 150;
      p.d = d;
      p.dv = turn % 4 == 1 ? d - 8 : turn % 4 == 3 ? d - 3 : d;
      if (turn % 5 == 2) p.softcap = 30;
      // Placed so that checks that run on every second, fourth or eighth problem use the qkv layout
      // (coverage_test).
      if (turn < 2 || turn % 8 == 2) {
        c.inputs.layout = oracle::Layout::kQkv;
        p.hkv = p.hq;
        p.skv = p.sq;
        p.dv = p.d;
      } else {
        c.inputs.layout = kLayouts[turn % 4];
      }
      c.inputs.seed = 100 + turn;
      // With large scores, the maximum changes from tile to tile.
      if (turn / 2 % 2 == 0) c.inputs.values = oracle::Values::kLargeScores;
      c.every_config = true;
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

std::vector<Case> ManyTileCases() {
  return {
      Special("b=5,hq=40,sq=200,skv=260,d=8,dtype=fp16", 21),
      Special("b=24,hq=12,hkv=3,sq=200,skv=260,d=16,dtype=bf16,mask=causal,lens=packed", 22),
      Special("b=10,hq=20,sq=140,d=72,dtype=fp16,mask=window:50:20,lens=padded", 23),
      // One key, and tiles with scores far above its own: their exponentials overflow if they are
      // relative to that key.
      Special("b=1,hq=2,sq=200,skv=385,d=64,dtype=fp16", 24, oracle::Values::kLargeScores),
      Special("b=1,hq=2,sq=200,skv=385,d=128,dtype=bf16", 25, oracle::Values::kLargeScores),
      // More query tiles than an H200 has multiprocessors, with several tiles of keys, at large head
      // dims.
      Special("b=4,hq=20,hkv=4,sq=140,skv=300,d=128,dtype=bf16,mask=causal,lens=packed", 26),
      Special("b=5,hq=16,sq=130,skv=250,d=192,dv=128,dtype=fp16", 27),
      Special("b=6,hq=14,hkv=7,sq=150,skv=230,d=192,dtype=bf16,mask=causal", 28),
      Special("b=5,hq=18,sq=140,skv=150,d=256,dtype=bf16,mask=window:60:9", 29),
      // A window of several tiles of keys: between its edges are tiles without a mask.
      Special("b=1,hq=2,sq=300,skv=900,d=96,dtype=bf16,mask=window:400:9", 46,
              oracle::Values::kLargeScores),
      Special("b=1,hq=2,sq=300,skv=900,d=128,dtype=fp16,mask=window:400:9", 47,
              oracle::Values::kLargeScores),
  };
}

std::vector<Case> SharedTileCases() {
  return InEveryConfig({
      Special("b=2,hq=140,sq=5,skv=140,d=64,dtype=fp16", 35),
      Special("b=1,hq=140,sq=5,skv=200,d=128,dtype=bf16,page=16", 36),
      Special("b=1,hq=140,sq=5,skv=200,d=128,dtype=fp8_e4m3,scaleblock=128", 37),
  });
}

std::vector<Case> PretransposedCases() {
  return InEveryConfig({
      Special("b=1,hq=2,hkv=1,sq=140,skv=300,d=208,dv=176,dtype=fp8_e4m3,mask=causal", 44),
      Special("b=2,hq=2,hkv=1,sq=270,skv=330,d=128,dtype=fp8_e4m3,mask=window:150:9,scaleblock=64",
              45),
      Special("b=1,hq=2,sq=270,skv=700,d=128,dtype=fp8_e4m3,scaleblock=64", 48,
              oracle::Values::kLargeScores),
  });
}

std::vector<Case> PagedTileCases() {
  return InEveryConfig({
      Special("b=1,hq=2,hkv=1,sq=290,skv=320,d=128,dtype=bf16,page=8,mask=causal", 38),
      Special("b=2,hq=2,sq=260,skv=400,d=128,dtype=fp16,page=16,lens=packed", 39),
      Special("b=1,hq=2,sq=260,skv=300,d=192,dtype=bf16,page=8", 40),
      Special("b=1,hq=2,sq=260,skv=300,d=256,dtype=fp16,page=8,mask=causal", 41),
      Special("b=1,hq=2,sq=300,skv=300,d=128,dtype=fp8_e4m3,page=16,scaleblock=128", 42),
      Special("b=1,hq=2,sq=260,skv=500,d=128,dtype=bf16,page=16", 49, oracle::Values::kLargeScores),
  });
}

std::vector<Case> Fp8CacheCases() {
  return {
      Special("b=3,hq=8,hkv=2,sq=1,skv=300,d=64,dtype=bf16,kvdtype=fp8_e4m3", 31),
      Special("b=5,hq=4,sq=6,skv=900,d=128,dtype=fp16,kvdtype=fp8_e4m3,mask=causal,lens=packed",
              32),
      Special("b=2,hq=16,hkv=1,sq=3,skv=200,d=256,dtype=bf16,kvdtype=fp8_e4m3,mask=window:90:1,"
              "softcap=2,lens=padded",
              33),
      Special("b=2,hq=24,hkv=2,sq=1,skv=300,d=128,dtype=bf16,kvdtype=fp8_e4m3", 43,
              oracle::Values::kLargeScores),
      Special("b=2,hq=6,hkv=3,sq=40,skv=130,d=72,dv=40,dtype=fp16,kvdtype=fp8_e4m3", 34,
              oracle::Values::kLargeScores),
  };
}

std::vector<Case> Fp8Cases() {
  constexpr auto kNormal = oracle::Values::kNormal;
  const struct {
    const char* line;
    oracle::Layout layout;
    oracle::Values values;
  } kCases[] = {
      {"b=2,hq=4,hkv=2,sq=300,d=128,dtype=fp8_e4m3", oracle::Layout::kBshd, kNormal},
      {"b=2,hq=2,sq=270,d=64,dtype=fp8_e4m3,odtype=fp16,mask=causal,scaleblock=64",
       oracle::Layout::kBhsd, kNormal},
      {"b=1,hq=4,hkv=1,sq=140,skv=390,d=256,dtype=fp8_e4m3,mask=causal,scaleblock=128",
       oracle::Layout::kStrided, kNormal},
      {"b=3,hq=4,hkv=2,sq=200,skv=260,d=96,dtype=fp8_e4m3,mask=causal,lens=packed,scaleblock=64",
       oracle::Layout::kBshd, kNormal},
      {"b=3,hq=2,sq=150,skv=150,d=128,dtype=fp8_e4m3,mask=window:60:9,lens=padded,scaleblock=128",
       oracle::Layout::kBshd, kNormal},
      {"b=1,hq=3,sq=257,d=192,dv=128,dtype=fp8_e4m3,mask=causal,softcap=20,scaleblock=128",
       oracle::Layout::kBshd, kNormal},
      {"b=2,hq=2,sq=130,d=64,dtype=fp8_e4m3", oracle::Layout::kQkv, oracle::Values::kOutliers},
      {"b=1,hq=2,sq=200,skv=385,d=128,dtype=fp8_e4m3,scaleblock=64", oracle::Layout::kBshd,
       oracle::Values::kLargeScores},
      {"b=4,hq=8,hkv=2,sq=1,skv=700,d=128,dtype=fp8_e4m3,scaleblock=128", oracle::Layout::kBshd,
       kNormal},
      {"b=2,hq=3,sq=33,skv=77,d=40,dv=24,dtype=fp8_e4m3,odtype=fp32,scale=0.3",
       oracle::Layout::kOdd, oracle::Values::kUniform},
      {"b=2,hq=2,sq=70,skv=200,d=64,dtype=fp8_e4m3,page=16,mask=causal,scaleblock=64",
       oracle::Layout::kBshd, kNormal},
      {"b=2,hq=3,hkv=1,sq=66,skv=75,d=8,dtype=fp8_e4m3,scaleblock=64", oracle::Layout::kBshd,
       kNormal},
      // More query tiles than an H200 has multiprocessors, for each tile of the Hopper kernel.
      {"b=5,hq=40,sq=200,skv=260,d=64,dtype=fp8_e4m3,mask=causal,scaleblock=128",
       oracle::Layout::kBshd, kNormal},
      {"b=4,hq=20,hkv=4,sq=140,skv=300,d=128,dtype=fp8_e4m3,mask=causal,lens=packed,scaleblock=64",
       oracle::Layout::kBshd, kNormal},
      {"b=5,hq=32,sq=130,skv=250,d=192,dv=128,dtype=fp8_e4m3", oracle::Layout::kBhsd, kNormal},
      {"b=3,hq=18,hkv=9,sq=390,skv=270,d=256,dv=216,dtype=fp8_e4m3,odtype=fp16,lens=padded",
       oracle::Layout::kBhsd, kNormal},
      {"b=12,hq=64,hkv=8,sq=100,skv=270,d=256,dtype=fp8_e4m3,lens=packed,scaleblock=64",
       oracle::Layout::kBshd, kNormal},
      {"b=6,hq=9,sq=384,skv=140,d=256,dtype=fp8_e4m3", oracle::Layout::kBshd, kNormal},
      {"b=5,hq=18,sq=140,skv=150,d=256,dtype=fp8_e4m3,mask=window:60:9,lens=padded,scaleblock=64",
       oracle::Layout::kBshd, kNormal},
      // Of long sums, a kernel may add up O in parts.
      {"b=1,hq=2,hkv=1,sq=70,skv=9300,d=128,dtype=fp8_e4m3,scaleblock=128", oracle::Layout::kBshd,
       kNormal},
      // Scores that exceed those before by more than 2^128, the range of fp32.
      {"b=1,hq=1,sq=64,skv=9300,d=128,dtype=fp8_e4m3,scale=0.13,scaleblock=64",
       oracle::Layout::kBshd, oracle::Values::kLargeScores},
      {"b=1,hq=2,hkv=1,sq=70,skv=2100,d=64,dtype=fp8_e4m3,scale=0.19,scaleblock=128",
       oracle::Layout::kBhsd, oracle::Values::kLargeScores},
      {"b=1,hq=1,sq=66,skv=1500,d=192,dv=128,dtype=fp8_e4m3,scale=0.11", oracle::Layout::kBshd,
       oracle::Values::kLargeScores},
      {"b=1,hq=1,sq=70,skv=5000,d=256,dtype=fp8_e4m3,mask=causal", oracle::Layout::kBshd,
       oracle::Values::kOutliers},
      {"b=2,hq=1,sq=20,skv=4500,d=64,dtype=fp8_e4m3,page=64,lens=padded,scaleblock=128",
       oracle::Layout::kBshd, kNormal},
      {"b=2,hq=1,sq=40,skv=4700,d=60,dtype=fp8_e4m3,odtype=fp16,mask=causal,scaleblock=64",
       oracle::Layout::kOdd, kNormal},
      // A window of several tiles of keys: between its edges are tiles without a mask.
      {"b=1,hq=2,sq=300,skv=900,d=64,dtype=fp8_e4m3,mask=window:400:9,scaleblock=64",
       oracle::Layout::kBshd, oracle::Values::kLargeScores},
      {"b=1,hq=2,sq=300,skv=900,d=128,dtype=fp8_e4m3,mask=window:400:9,scaleblock=128",
       oracle::Layout::kBhsd, oracle::Values::kLargeScores},
      // Rows of O that end within 16 bytes.
      {"b=1,hq=2,sq=140,skv=270,d=128,dv=77,dtype=fp8_e4m3", oracle::Layout::kStrided, kNormal},
      {"b=1,hq=2,sq=140,skv=270,d=256,dv=203,dtype=fp8_e4m3,scaleblock=64",
       oracle::Layout::kStrided, kNormal},
      // V of fp8_e5m2.
      {"b=2,hq=4,hkv=2,sq=200,d=64,dtype=fp8_e4m3,vdtype=fp8_e5m2,mask=causal,scaleblock=128",
       oracle::Layout::kBshd, kNormal},
      {"b=3,hq=4,hkv=2,sq=150,skv=260,d=128,dtype=fp8_e4m3,vdtype=fp8_e5m2,mask=causal,lens=packed",
       oracle::Layout::kBshd, oracle::Values::kOutliers},
      {"b=2,hq=3,sq=130,skv=200,d=192,dv=128,dtype=fp8_e4m3,vdtype=fp8_e5m2,mask=window:60:9,"
       "lens=padded,scaleblock=64",
       oracle::Layout::kBhsd, kNormal},
      {"b=1,hq=2,hkv=1,sq=70,skv=2500,d=256,dtype=fp8_e4m3,vdtype=fp8_e5m2,odtype=fp16,scaleblock="
       "64",
       oracle::Layout::kStrided, kNormal},
      {"b=1,hq=2,sq=70,skv=2100,d=128,dtype=fp8_e4m3,vdtype=fp8_e5m2,scaleblock=64",
       oracle::Layout::kBshd, oracle::Values::kLargeScores},
      {"b=4,hq=8,hkv=2,sq=1,skv=700,d=40,dv=24,dtype=fp8_e4m3,vdtype=fp8_e5m2",
       oracle::Layout::kOdd, kNormal},
      {"b=2,hq=2,sq=70,skv=200,d=64,dtype=fp8_e4m3,vdtype=fp8_e5m2,page=16,softcap=20,scaleblock="
       "64",
       oracle::Layout::kBshd, kNormal},
  };
  std::vector<Case> cases;
  for (const auto& fp8 : kCases) {
    Case c = Special(fp8.line, 61 + cases.size(), fp8.values);
    c.inputs.layout = fp8.layout;
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<Case> PagedCases() {
  constexpr auto kTokens = oracle::Layout::kBshd, kHeads = oracle::Layout::kBhsd;
  const struct {
    const char* line;
    oracle::Layout layout;
    std::vector<int32_t> q_lens, kv_lens;
  } kCases[] = {
      // Decoding.
      {"b=3,hq=8,hkv=2,sq=1,skv=300,d=64,dtype=bf16,page=16", kTokens, {}, {}},
      {"b=5,hq=4,hkv=1,sq=1,skv=130,d=128,dtype=fp16,page=32,lens=padded",
       kHeads,
       {1, 1, 0, 1, 1},
       {31, 32, 33, 0, 130}},
      {"b=4,hq=7,hkv=1,sq=1,skv=513,d=64,dtype=bf16,page=256,softcap=20,lens=packed",
       kHeads,
       {1, 1, 1, 1},
       {256, 257, 1, 513}},
      {"b=2,hq=16,hkv=2,sq=1,skv=2300,d=128,dtype=bf16,page=64,mask=causal", kTokens, {}, {}},
      {"b=2,hq=3,sq=2,skv=75,d=40,dv=24,dtype=fp32,page=1", kTokens, {}, {}},
      // Chunks of prefill after a prefix, and whole sequences.
      {"b=2,hq=4,hkv=2,sq=40,skv=193,d=64,dtype=fp16,page=64,mask=causal", kTokens, {}, {}},
      {"b=3,hq=6,hkv=3,sq=70,skv=200,d=72,dtype=bf16,page=16,mask=causal,lens=packed",
       kTokens,
       {70, 0, 17},
       {200, 15, 17}},
      {"b=3,hq=2,hkv=1,sq=33,skv=270,d=64,dtype=fp32,page=128,mask=causal,lens=padded",
       kHeads,
       {33, 1, 32},
       {128, 270, 127}},
      {"b=1,hq=2,sq=130,d=128,dtype=bf16,page=32,mask=causal", kHeads, {}, {}},
      {"b=2,hq=2,sq=65,skv=50,d=96,dv=64,dtype=fp16,page=2", oracle::Layout::kOdd, {}, {}},
      // A page longer than any sequence.
      {"b=3,hq=4,hkv=2,sq=20,skv=37,d=64,dtype=bf16,page=64,mask=causal,lens=padded",
       oracle::Layout::kStrided,
       {20, 5, 1},
       {37, 36, 0}},
      // Windows skip whole pages.
      {"b=2,hq=4,hkv=2,sq=50,skv=260,d=32,dtype=fp32,page=16,mask=window:40:3", kHeads, {}, {}},
      {"b=3,hq=8,hkv=1,sq=1,skv=700,d=64,dtype=fp16,page=32,mask=window:100:0,lens=padded",
       kTokens,
       {1, 1, 1},
       {700, 96, 97}},
      // K and V of fp8.
      {"b=4,hq=8,hkv=2,sq=1,skv=400,d=128,dtype=bf16,kvdtype=fp8_e4m3,page=16,lens=packed",
       kTokens,
       {1, 0, 1, 1},
       {400, 16, 1, 129}},
      {"b=2,hq=4,hkv=2,sq=30,skv=150,d=64,dtype=fp16,kvdtype=fp8_e4m3,page=64,mask=causal",
       kHeads,
       {},
       {}},
      {"b=2,hq=4,sq=3,skv=90,d=256,dtype=bf16,kvdtype=fp8_e4m3,page=1,softcap=2,lens=padded",
       kTokens,
       {3, 2},
       {90, 17}},
      // One query beside many, and large head dims. Tiles of keys are not powers of two there.
      {"b=4,hq=4,hkv=2,sq=150,skv=420,d=256,dtype=bf16,page=8,mask=causal,lens=packed",
       kTokens,
       {150, 1, 0, 33},
       {420, 300, 17, 81}},
      // All pages are full, and the last tile of keys is not.
      {"b=2,hq=2,hkv=1,sq=130,skv=256,d=192,dtype=fp16,page=64,mask=causal", kHeads, {}, {}},
  };
  std::vector<Case> cases;
  for (const auto& paged : kCases) {
    Case c = Special(paged.line, 41 + cases.size());
    c.inputs.layout = paged.layout;
    c.inputs.q_lens = paged.q_lens;
    c.inputs.kv_lens = paged.kv_lens;
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<Case> ConformanceCases(uint64_t seed, int count) {
  std::vector<Case> cases = SpecialCases();
  for (Case& c : TileCases()) cases.push_back(std::move(c));
  for (Case& c : EdgeCases(seed, count)) cases.push_back(std::move(c));
  for (Case& c : ManyTileCases()) cases.push_back(std::move(c));
  for (Case& c : Fp8CacheCases()) cases.push_back(std::move(c));
  for (Case& c : PagedCases()) cases.push_back(std::move(c));
  for (Case& c : Fp8Cases()) cases.push_back(std::move(c));
  for (Case& c : SharedTileCases()) cases.push_back(std::move(c));
  for (Case& c : PretransposedCases()) cases.push_back(std::move(c));
  for (Case& c : PagedTileCases()) cases.push_back(std::move(c));
  return Numbered(std::move(cases));
}

Case WithAlignedRows(Case c) {
  if (!HasAlignedRows(c)) c.inputs.layout = oracle::Layout::kStrided;
  return c;
}

std::vector<Case> ReducedCases() {
  constexpr uint64_t kSeed = 1;
  constexpr int kDrawn = 3000;
  struct Candidate {
    Case c;
    std::set<std::string> features;
  };
  std::vector<Candidate> candidates;
  std::set<std::string> wanted;
  for (Case& c : EdgeCases(kSeed, kDrawn)) {
    if (Work(c.problem) > kMostReducedWork) continue;
    std::set<std::string> features = FeaturesOf(c);
    wanted.insert(features.begin(), features.end());
    candidates.push_back({std::move(c), std::move(features)});
  }
  // Greedy choice: always the candidate with the most features that are still wanted; of equals,
  // the one with the least work.
  std::vector<Case> cases = TileCases();
  while (!wanted.empty()) {
    const auto gain = [&wanted](const Candidate& candidate) {
      return std::count_if(candidate.features.begin(), candidate.features.end(),
                           [&](const std::string& feature) { return wanted.count(feature) > 0; });
    };
    const auto best = std::max_element(candidates.begin(), candidates.end(),
                                       [&](const Candidate& a, const Candidate& b) {
                                         return std::make_pair(gain(a), -Work(a.c.problem)) <
                                                std::make_pair(gain(b), -Work(b.c.problem));
                                       });
    for (const std::string& feature : best->features) wanted.erase(feature);
    cases.push_back(best->c);
  }
  // Decoding and prefill over pages, and pages of fp8.
  const std::vector<Case> paged = PagedCases();
  for (size_t i = 0; i < paged.size(); i += 6) cases.push_back(paged[i]);
  cases.push_back(paged[13]);
  // Q, K and V of fp8: each tile of the Hopper kernel, pages, a sum in parts, and V of fp8_e5m2.
  for (const char* line :
       {"hq=2,sq=70,skv=150,d=64,dtype=fp8_e4m3,mask=causal,scaleblock=64",
        "hq=2,hkv=1,sq=20,skv=2300,d=128,dtype=fp8_e4m3,page=16,mask=causal,scale=0.13",
        "hq=1,sq=66,skv=140,d=192,dv=128,dtype=fp8_e4m3,scaleblock=128",
        "hq=2,sq=70,skv=150,d=64,dtype=fp8_e4m3,vdtype=fp8_e5m2,mask=causal,scaleblock=128"}) {
    cases.push_back(Special(line, 91 + cases.size(), oracle::Values::kLargeScores));
  }
  for (Case& c : SharedTileCases()) cases.push_back(std::move(c));
  cases.push_back(PretransposedCases().front());
  cases.push_back(PagedTileCases().front());
  return Numbered(std::move(cases));
}

}  // namespace attnlab::conformance
