#include "attention/core/problem.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

using ::testing::HasSubstr;

AttentionProblem Valid() {
  AttentionProblem p;
  p.b = 2;
  p.hq = 8;
  p.hkv = 2;
  p.sq = 128;
  p.skv = 256;
  return p;
}

TEST(ParseTest, ReadsEveryKey) {
  const absl::StatusOr<AttentionProblem> p = AttentionProblem::Parse(
      "b=4,hq=32,hkv=8,sq=17,skv=4096,d=192,dv=128,dtype=fp16,kvdtype=fp8_e4m3,odtype=fp16,"
      "mask=window:1023:0,scale=0.25,softcap=50,lens=padded,page=16");
  ASSERT_TRUE(p.ok()) << p.status();
  EXPECT_EQ(p->b, 4);
  EXPECT_EQ(p->hq, 32);
  EXPECT_EQ(p->hkv, 8);
  EXPECT_EQ(p->sq, 17);
  EXPECT_EQ(p->skv, 4096);
  EXPECT_EQ(p->d, 192);
  EXPECT_EQ(p->dv, 128);
  EXPECT_EQ(p->dtype, DType::kFloat16);
  EXPECT_EQ(p->KvDType(), DType::kFloat8E4M3);
  EXPECT_EQ(p->ODType(), DType::kFloat16);
  EXPECT_EQ(p->mask, Mask::SlidingWindow(1023, 0));
  EXPECT_EQ(p->scale, 0.25f);
  EXPECT_EQ(p->softcap, 50.0f);
  EXPECT_EQ(p->lens, Lengths::kPadded);
  EXPECT_EQ(p->page, 16);
}

TEST(ParseTest, FillsInDefaults) {
  const absl::StatusOr<AttentionProblem> p = AttentionProblem::Parse("hq=6,sq=10,d=80");
  ASSERT_TRUE(p.ok()) << p.status();
  EXPECT_EQ(p->ToString(), "b=1,hq=6,hkv=6,sq=10,skv=10,d=80,dtype=bf16,mask=none");
  EXPECT_EQ(p->dv, 80);
  EXPECT_FLOAT_EQ(p->Scale(), 1 / std::sqrt(80.0f));
}

TEST(ParseTest, PrintedLinesParseBack) {
  for (const std::string line : {
           "b=1,hq=1,hkv=1,sq=0,skv=0,d=1,dtype=fp32,mask=none",
           "b=4,hq=32,hkv=8,sq=4096,skv=4096,d=128,dtype=bf16,mask=causal",
           "b=1,hq=6,hkv=3,sq=1,skv=9,d=64,dv=32,dtype=fp16,mask=window:0:7,scale=0.1,softcap=30,"
           "lens=packed,page=64",
           "b=1,hq=1,hkv=1,sq=1,skv=1,d=512,dtype=fp8_e4m3,mask=none,scale=1e-12,lens=padded",
           "b=8,hq=8,hkv=1,sq=1,skv=99,d=64,dtype=bf16,kvdtype=fp8_e4m3,mask=none,page=16",
           "b=1,hq=8,hkv=8,sq=9,skv=9,d=128,dtype=fp8_e4m3,odtype=fp16,mask=causal",
           "b=2,hq=8,hkv=8,sq=9,skv=9,d=128,dtype=fp8_e4m3,mask=none,lens=packed,scaleblock=64",
           "b=1,hq=8,hkv=8,sq=9,skv=9,d=128,dtype=fp8_e4m3,vdtype=fp8_e5m2,odtype=fp16,mask=causal",
       }) {
    const absl::StatusOr<AttentionProblem> p = AttentionProblem::Parse(line);
    ASSERT_TRUE(p.ok()) << p.status();
    EXPECT_EQ(p->ToString(), line);
    EXPECT_EQ(*AttentionProblem::Parse(p->ToString()), *p);
  }
}

TEST(ParseTest, ScalesSurviveToTheLastBit) {
  AttentionProblem p = Valid();
  for (float scale : {0.0f, 1.0f / 3, 0.1f, AttentionProblem::kMinFactor,
                      AttentionProblem::kMaxFactor, 1.0f + 0x1p-23f}) {
    p.scale = scale;
    const absl::StatusOr<AttentionProblem> back = AttentionProblem::Parse(p.ToString());
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->scale, scale) << p.ToString();
  }
}

TEST(ParseTest, RejectsWithTheKeyInTheMessage) {
  const struct {
    std::string line, message;
  } kBad[] = {
      {"", "problem: empty key in \"\""},
      {"hq=1,,sq=1,d=1", "problem: empty key in \"\""},
      {"hq=1,sq=1,d=1,", "problem: empty key in \"\""},
      {"=3", "problem: empty key in \"=3\""},
      {"hq=1,sq=1,d", "d: has no value"},
      {"hq=1,sq=1,d=", "d: has no value"},
      {"hq=1,sq=1,d=1,sq=2", "sq: is given twice"},
      {"hq=1,sq=1,d=1,heads=2", "problem: unknown key \"heads\"; known are b, hq, hkv"},
      {"hq=1,sq=1,d=1, b=2", "problem: unknown key \" b\""},
      {"HQ=1,sq=1,d=1", "problem: unknown key \"HQ\""},
      {"sq=1,d=1", "hq: is required and missing"},
      {"hq=1,d=1", "sq: is required and missing"},
      {"hq=1,sq=1", "d: is required and missing"},
      {"hq=1,sq=x,d=1", "sq: \"x\" is not a 64-bit integer"},
      {"hq=1,sq= 1,d=1", "sq: \" 1\" is not a 64-bit integer"},
      {"hq=1,sq=1.5,d=1", "sq: \"1.5\" is not a 64-bit integer"},
      {"hq=1,sq=99999999999999999999,d=1", "sq: \"99999999999999999999\" is not a 64-bit integer"},
      {"hq=1,sq=-1,d=1", "sq: -1 is not in 0..2147483647"},
      {"hq=1,sq=2147483648,d=1", "sq: 2147483648 is not in 0..2147483647"},
      {"hq=0,sq=1,d=1", "hq: 0 is not in 1..2147483647"},
      {"b=0,hq=1,sq=1,d=1", "b: 0 is not in 1..2147483647"},
      {"hq=8,hkv=3,sq=1,d=1", "hkv: 3 does not divide hq = 8"},
      {"hq=1,sq=1,d=513", "d: 513 is not in 1..512"},
      {"hq=1,sq=1,d=8,dv=0", "dv: 0 is not in 1..512"},
      {"hq=1,sq=1,d=1,dtype=int8", "dtype: \"int8\" is not one of"},
      {"hq=1,sq=1,d=1,kvdtype=int8", "kvdtype: \"int8\" is not one of fp32"},
      {"hq=1,sq=1,d=1,dtype=fp32,kvdtype=fp8_e4m3",
       "kvdtype: fp8_e4m3 does not go with dtype=fp32"},
      {"hq=1,sq=1,d=1,dtype=bf16,kvdtype=fp16", "kvdtype: fp16 does not go with dtype=bf16"},
      {"hq=1,sq=1,d=1,dtype=fp8_e4m3,kvdtype=bf16", "kvdtype: bf16 does not go with dtype=fp8"},
      {"hq=1,sq=1,d=1,dtype=fp8_e5m2",
       "dtype: fp8_e5m2 is not one of fp32, fp16, bf16, fp8_e4m3; only V may have it, as vdtype"},
      {"hq=1,sq=1,d=1,dtype=bf16,kvdtype=fp8_e5m2", "kvdtype: fp8_e5m2 does not go with"},
      {"hq=1,sq=1,d=1,dtype=fp8_e4m3,kvdtype=fp8_e5m2", "kvdtype: fp8_e5m2 does not go with"},
      {"hq=1,sq=1,d=1,dtype=bf16,vdtype=fp8_e5m2",
       "vdtype: fp8_e5m2 does not go with dtype=bf16; must equal kvdtype, or be fp8_e5m2"},
      {"hq=1,sq=1,d=1,dtype=fp8_e4m3,vdtype=bf16", "vdtype: bf16 does not go with dtype=fp8_e4m3"},
      {"hq=1,sq=1,d=1,dtype=bf16,kvdtype=fp8_e4m3,vdtype=bf16", "vdtype: bf16 does not go with"},
      {"hq=1,sq=1,d=1,dtype=fp8_e4m3,odtype=fp8_e5m2", "odtype: fp8_e5m2 does not go with dtype"},
      {"hq=1,sq=1,d=1,dtype=bf16,odtype=fp32", "odtype: fp32 does not go with dtype=bf16"},
      {"hq=1,sq=1,d=1,dtype=fp8_e4m3,odtype=fp8_e4m3", "odtype: fp8_e4m3 does not go with dtype"},
      {"hq=1,sq=1,d=1,dtype=fp8_e4m3,scaleblock=32", "scaleblock: 32 is not 64 or 128"},
      {"hq=1,sq=1,d=1,dtype=bf16,scaleblock=64", "scaleblock: 64 does not go with dtype=bf16"},
      {"hq=1,sq=1,d=1,mask=windowed", "mask: \"windowed\" is not one of none, causal, window"},
      {"hq=1,sq=1,d=1,mask=window:3", "mask: \"window:3\" is not one of"},
      {"hq=1,sq=1,d=1,mask=window:a:0", "mask: \"a\" is not a 64-bit integer"},
      {"hq=1,sq=1,d=1,mask=window:-1:0", "mask: left: -1 is not in 0..2147483647"},
      {"hq=1,sq=1,d=1,mask=window:0:-2", "mask: right: -2 is not in 0..2147483647"},
      {"hq=1,sq=1,d=1,scale=nan", "scale: nan is not 0 or in 1e-12..1e12"},
      {"hq=1,sq=1,d=1,scale=inf", "scale: inf is not 0 or in 1e-12..1e12"},
      {"hq=1,sq=1,d=1,scale=-1", "scale: -1 is not 0 or in 1e-12..1e12"},
      {"hq=1,sq=1,d=1,scale=1e13", "scale: 1e+13 is not 0 or in 1e-12..1e12"},
      {"hq=1,sq=1,d=1,scale=1e-39", "is not 0 or in 1e-12..1e12"},
      {"hq=1,sq=1,d=1,softcap=3e38", "softcap: 3e+38 is not in 1e-12..1e12"},
      {"hq=1,sq=1,d=1,scale=1e-400", "scale: \"1e-400\" is too small: a float would be 0"},
      {"hq=1,sq=1,d=1,softcap=1e400", "softcap: \"1e400\" is too large: a float would be infinite"},
      {"hq=1,sq=1,d=1,scale=1x", "scale: \"1x\" is not a number"},
      {"hq=1,sq=1,d=1,softcap=-2", "softcap: -2 is not in 1e-12..1e12, or 0 for no cap"},
      {"hq=1,sq=1,d=1,lens=ragged", "lens: \"ragged\" is not one of fixed, packed, padded"},
      {"hq=1,sq=1,d=1,page=24",
       "page: 24 is not a power of two in 1..2147483647, or 0 for not paged"},
      {"hq=1,sq=1,d=1,page=-16", "page: -16 is not a power of two"},
      {"hq=1,sq=1,d=1,page=4294967296", "page: 4294967296 is not a power of two in 1..2147483647"},
  };
  for (const auto& bad : kBad) {
    const absl::StatusOr<AttentionProblem> p = AttentionProblem::Parse(bad.line);
    ASSERT_FALSE(p.ok()) << bad.line;
    EXPECT_EQ(p.status().code(), absl::StatusCode::kInvalidArgument) << bad.line;
    EXPECT_THAT(std::string(p.status().message()), HasSubstr(bad.message)) << bad.line;
  }
}

// The help says that the default is none; the struct has 0. Both must mean off.
TEST(ParseTest, NoneAndZeroTurnSoftcapAndPagesOff) {
  const AttentionProblem plain = *AttentionProblem::Parse("hq=1,sq=1,d=1");
  for (const char* line :
       {"softcap=0", "softcap=none", "page=0", "page=none", "softcap=0,page=none"}) {
    const absl::StatusOr<AttentionProblem> p =
        AttentionProblem::Parse(absl::StrCat("hq=1,sq=1,d=1,", line));
    ASSERT_TRUE(p.ok()) << p.status();
    EXPECT_EQ(*p, plain) << line;
    EXPECT_EQ(p->ToString(), plain.ToString());
  }
}

// A dtype of K and V, or of O, that equals Q's gives the same problem, whether stated or not.
TEST(ParseTest, DtypesThatAreQsAreTheDefault) {
  const AttentionProblem plain = *AttentionProblem::Parse("hq=1,sq=1,d=1,dtype=fp16");
  const AttentionProblem said =
      *AttentionProblem::Parse("hq=1,sq=1,d=1,dtype=fp16,kvdtype=fp16,odtype=fp16");
  EXPECT_EQ(said, plain);
  EXPECT_EQ(said.ToString(), plain.ToString());
  // So does one of V that equals K's.
  EXPECT_EQ(*AttentionProblem::Parse("hq=1,sq=1,d=1,kvdtype=fp8_e4m3,vdtype=fp8_e4m3"),
            *AttentionProblem::Parse("hq=1,sq=1,d=1,kvdtype=fp8_e4m3"));
}

TEST(ValidateTest, RejectsSizesThatOverflow) {
  AttentionProblem p = Valid();
  p.b = p.hq = p.hkv = p.sq = AttentionProblem::kMaxExtent;
  p.skv = 1;
  EXPECT_EQ(p.Validate().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(p.Validate().message()), HasSubstr("q: ["));
  EXPECT_THAT(std::string(p.Validate().message()), HasSubstr("exceed 2^60 bytes"));
  p.b = p.hq = p.hkv = 1;
  EXPECT_TRUE(p.Validate().ok());
}

TEST(ValidateTest, RejectsFieldsThatALineCannotHold) {
  AttentionProblem p = Valid();
  p.mask.left = 3;
  EXPECT_THAT(std::string(p.Validate().message()),
              HasSubstr("mask: left 3 and right 0 are not 0, but the mask is none"));
  p = Valid();
  p.softcap = std::nanf("");
  EXPECT_THAT(std::string(p.Validate().message()), HasSubstr("softcap: nan"));
  p = Valid();
  p.page = int64_t{1} << 62;
  EXPECT_THAT(std::string(p.Validate().message()), HasSubstr("page: "));
}

TEST(ProblemTest, IsAKey) {
  AttentionProblem a = Valid(), b = Valid();
  EXPECT_EQ(a, b);
  b.mask = Mask::Causal();
  EXPECT_NE(a, b);
  AttentionProblem c = Valid();
  c.kv_dtype = DType::kFloat8E4M3;
  EXPECT_NE(a, c);
  AttentionProblem d = c, e = c;
  d.dtype = e.dtype = DType::kFloat8E4M3;
  e.v_dtype = DType::kFloat8E5M2;
  const absl::flat_hash_set<AttentionProblem> set = {a, b, c, d, e, Valid()};
  EXPECT_EQ(set.size(), 5);
  EXPECT_TRUE(set.contains(b));
}

TEST(TrafficTest, FullAttention) {
  AttentionProblem p = Valid();  // b=2 hq=8 hkv=2 sq=128 skv=256 d=dv=64, bf16
  const Traffic t = CompulsoryTraffic(p);
  EXPECT_EQ(t.flops, 2.0 * 2 * 8 * 128 * 256 * (64 + 64));
  EXPECT_EQ(t.bytes_read, 2 * 2 * (8 * 128 * 64 + 2 * 256 * 128));
  EXPECT_EQ(t.bytes_written, 2 * 2 * 8 * 128 * 64);
  EXPECT_EQ(CompulsoryTraffic(p, /*with_lse=*/true).bytes_written - t.bytes_written,
            2 * 8 * 128 * 4);
}

TEST(TrafficTest, CountsEachTensorInItsDtypeAndThePagesInUse) {
  AttentionProblem p = Valid();
  p.kv_dtype = DType::kFloat8E4M3;
  EXPECT_EQ(CompulsoryTraffic(p).bytes_read, 2 * (8 * 128 * 64 * 2 + 2 * 256 * 128));
  // 10 visible keys, of which the first two are at the end of a page.
  p.page = 8;
  p.sq = 1;
  p.mask = Mask::SlidingWindow(9, 0);
  EXPECT_EQ(CompulsoryTraffic(p).bytes_read, 2 * (8 * 64 * 2 + 2 * 10 * 128 + 2 * 4));
  p = Valid();
  p.dtype = DType::kFloat8E4M3;
  p.o_dtype = DType::kFloat32;
  EXPECT_EQ(CompulsoryTraffic(p).bytes_written, 2 * 8 * 128 * 64 * 4);
}

TEST(TrafficTest, CausalCountsPairsAndSkipsUnseenKeys) {
  AttentionProblem p = Valid();
  p.mask = Mask::Causal();
  p.sq = p.skv = 100;
  EXPECT_EQ(CompulsoryTraffic(p).flops, 2.0 * 2 * 8 * 128 * (100 * 101 / 2));
  // One new token with a window of 10 keys needs only those keys.
  p.sq = 1;
  p.mask = Mask::SlidingWindow(9, 0);
  EXPECT_EQ(CompulsoryTraffic(p).bytes_read, 2 * 2 * (8 * 64 + 2 * 10 * 128));
}

TEST(TrafficTest, SumsOverGivenLengths) {
  AttentionProblem p = Valid();
  p.lens = Lengths::kPadded;
  const Traffic t = CompulsoryTraffic(p, false, {0, 3}, {7, 5});
  EXPECT_EQ(t.flops, 2.0 * 8 * 128 * 3 * 5);
  EXPECT_EQ(t.bytes_read, 2 * (8 * 3 * 64 + 2 * 5 * 128));
  EXPECT_EQ(t.bytes_written, 2 * 8 * 3 * 64);
}

}  // namespace
}  // namespace attnlab
