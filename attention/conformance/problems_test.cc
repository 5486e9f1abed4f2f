#include "attention/conformance/problems.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace attnlab::conformance {
namespace {

TEST(ProblemsTest, AllAreValidAndFitTheirLayout) {
  for (const Case& c : ConformanceCases()) {
    EXPECT_TRUE(c.problem.Validate().ok()) << c.ToString();
    EXPECT_TRUE(oracle::CheckLayout(c.inputs.layout, c.problem).ok()) << c.ToString();
    // A line with a mistake would have become the default problem, which has no queries.
    EXPECT_NE(c.problem, AttentionProblem()) << c.ToString();
  }
}

TEST(ProblemsTest, PagedCasesReachTheEdgesOfPages) {
  std::set<int64_t> pages, ends;  // how far a sequence ends from the end of a page
  std::set<std::string> seen;
  for (const Case& c : PagedCases()) {
    const AttentionProblem& p = c.problem;
    pages.insert(p.page);
    seen.insert(std::string(Name(p.KvDType())));
    seen.insert("layout=" + std::string(Name(c.inputs.layout)));
    seen.insert("lens=" + std::to_string(static_cast<int>(p.lens)));
    seen.insert("mask=" + std::to_string(static_cast<int>(p.mask.kind)));
    if (p.page > p.skv) seen.insert("longer than the sequences");
    if (p.softcap != 0) seen.insert("softcap");
    if (p.GroupSize() > 1) seen.insert("groups");
    if (p.sq == 1) seen.insert("decoding");
    if (p.sq > 1 && p.sq < p.skv) seen.insert("a prefix");
    for (int32_t length : c.inputs.kv_lens) ends.insert(length % p.page);
  }
  EXPECT_EQ(pages, (std::set<int64_t>{1, 2, 8, 16, 32, 64, 128, 256}));
  for (int64_t end : {0, 1, 15, 31, 127}) EXPECT_EQ(ends.count(end), 1) << end;
  EXPECT_EQ(seen.size(), 4 + 4 + 3 + 3 + 5);
}

TEST(ProblemsTest, OneSeedGivesOneSet) {
  const std::vector<Case> a = EdgeCases(7, 50), b = EdgeCases(7, 50), other = EdgeCases(8, 50);
  int same = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].ToString(), b[i].ToString());
    same += a[i].ToString() == other[i].ToString();
  }
  EXPECT_LT(same, 5);
}

TEST(ProblemsTest, EveryValueOccurs) {
  std::set<int64_t> sq, d, dv, groups, kv_heads;
  std::set<std::string> masks, dtypes, lens, layouts, values;
  int other_dv = 0, longer_q = 0, longer_kv = 0, softcap = 0, scale_0 = 0, no_lse = 0;
  for (const Case& c : ConformanceCases()) {
    const AttentionProblem& p = c.problem;
    sq.insert(p.sq);
    d.insert(p.d);
    dv.insert(p.dv);
    groups.insert(p.GroupSize());
    kv_heads.insert(p.hkv);
    masks.insert(std::to_string(static_cast<int>(p.mask.kind)) + ":" + std::to_string(p.mask.left) +
                 ":" + std::to_string(p.mask.right));
    dtypes.insert(std::string(Name(p.dtype)));
    lens.insert(std::to_string(static_cast<int>(p.lens)));
    layouts.insert(std::string(Name(c.inputs.layout)));
    values.insert(std::string(Name(c.inputs.values)));
    other_dv += p.dv != p.d;
    longer_q += p.sq > p.skv;
    longer_kv += p.sq < p.skv;
    softcap += p.softcap != 0;
    scale_0 += p.scale.has_value() && *p.scale == 0;
    no_lse += !c.with_lse;
  }
  for (int64_t tile : {16, 32, 64, 128}) {
    for (int64_t size : {tile - 1, tile, tile + 1}) EXPECT_EQ(sq.count(size), 1) << size;
  }
  for (int64_t size : {0, 1, 2, 7, 37, 97, 101, 211, 257, 401}) EXPECT_EQ(sq.count(size), 1);
  for (int64_t dim : {1, 3, 8, 31, 32, 40, 63, 64, 65, 80, 96, 128, 192, 256, 257, 512}) {
    EXPECT_EQ(d.count(dim), 1) << dim;
    EXPECT_EQ(dv.count(dim), 1) << dim;
  }
  for (int64_t group : {1, 2, 3, 4, 7, 8, 12}) EXPECT_EQ(groups.count(group), 1) << group;
  EXPECT_GE(kv_heads.size(), 3);
  EXPECT_GE(masks.size(), 10);
  EXPECT_EQ(dtypes.size(), 4);
  EXPECT_EQ(lens.size(), 3);
  EXPECT_EQ(layouts.size(), oracle::kAllLayouts.size());
  EXPECT_GE(values.size(), 4);
  for (int count : {other_dv, longer_q, longer_kv, softcap, scale_0, no_lse}) {
    EXPECT_GE(count, 10);
  }
}

TEST(ReducedCasesTest, AreFewAndSmallAndHaveEveryPair) {
  const std::vector<Case> cases = ReducedCases();
  EXPECT_LE(cases.size(), 55);
  int of_fp8 = 0;  // not in pairs
  std::set<std::string> pairs, several_tiles, sizes;
  std::set<std::pair<DType, int64_t>> tiles;
  for (const Case& c : cases) {
    const AttentionProblem& p = c.problem;
    EXPECT_TRUE(p.Validate().ok()) << c.ToString();
    EXPECT_EQ(c.number, &c - cases.data());
    if (c.every_config) tiles.insert({p.dtype, p.d});
    EXPECT_LE(p.b * p.hq * p.sq * p.skv * (p.d + p.dv), 50000000) << c.ToString();
    if (p.dtype == DType::kFloat8E4M3) {
      ++of_fp8;
      continue;
    }
    const std::string dtype(Name(p.dtype)), layout(Name(c.inputs.layout));
    const std::string mask = "mask" + std::to_string(static_cast<int>(p.mask.kind));
    const std::string lens = "lens" + std::to_string(static_cast<int>(p.lens));
    if (p.sq == 0) sizes.insert("no queries");
    if (p.skv == 0) sizes.insert("no keys");
    if (p.sq == 0 || p.skv == 0) continue;
    for (const std::string& pair :
         {dtype + mask, dtype + lens, dtype + layout, mask + lens, mask + layout, lens + layout}) {
      pairs.insert(pair);
    }
    if (p.sq > 64 && p.skv > 64) several_tiles.insert({dtype, mask, lens, layout});
    if (p.GroupSize() > 1) sizes.insert("groups");
    if (p.softcap != 0) sizes.insert("softcap");
    if (!c.with_lse) sizes.insert("no lse");
  }
  // The qkv layout cannot be packed.
  EXPECT_EQ(pairs.size(), 9 + 9 + 15 + 9 + 15 + 15 - 1);
  for (const char* size : {"no queries", "no keys", "groups", "softcap", "no lse"}) {
    EXPECT_EQ(sizes.count(size), 1) << size;
  }
  EXPECT_EQ(several_tiles.size(), 3 + 3 + 3 + 5);
  EXPECT_EQ(tiles.size(), 3 * 6 + 2);
  EXPECT_EQ(of_fp8, 6);
}

}  // namespace
}  // namespace attnlab::conformance
