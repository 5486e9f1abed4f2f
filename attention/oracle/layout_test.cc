#include "attention/oracle/layout.h"

#include <set>

#include "gtest/gtest.h"

namespace attnlab::conformance {
namespace {

TEST(LayoutTest, NamesParseBack) {
  for (oracle::Layout layout : oracle::kAllLayouts) {
    ASSERT_TRUE(oracle::ParseLayout(Name(layout)).ok()) << Name(layout);
    EXPECT_EQ(*oracle::ParseLayout(Name(layout)), layout);
  }
  EXPECT_EQ(oracle::ParseLayout("sbhd").status().message(),
            "layout: \"sbhd\" is not one of bshd, bhsd, qkv, strided, odd");
}

TEST(LayoutTest, PlacesEveryElementOnceWithinItsAllocation) {
  for (oracle::Layout layout : oracle::kAllLayouts) {
    for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const oracle::Placement place = oracle::Place(layout, dtype, 2, 3, 4, 5);
      std::set<int64_t> seen;
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t s = 0; s < 3; ++s) {
          for (int64_t h = 0; h < 4; ++h) {
            for (int64_t i = 0; i < 5; ++i) {
              const int64_t at = place.begin + b * place.strides[0] + s * place.strides[1] +
                                 h * place.strides[2] + i * place.strides[3];
              EXPECT_GE(at, 0);
              EXPECT_LT(at, place.elements);
              EXPECT_TRUE(seen.insert(at).second) << Name(layout);
              if (layout == oracle::Layout::kStrided && i == 0) {
                EXPECT_EQ(at * SizeOf(dtype) % 16, 0);
              }
            }
          }
        }
      }
    }
  }
  const oracle::Placement odd = oracle::Place(oracle::Layout::kOdd, DType::kFloat16, 2, 3, 4, 64);
  EXPECT_EQ(odd.begin, 1);
  EXPECT_EQ(odd.strides[2] % 2, 1);
  EXPECT_EQ(odd.strides[1] % 2, 1);
}

TEST(LayoutTest, PackedQkvWantsTensorsOfOneShape) {
  const char* const kFit[] = {"hq=2,sq=3,d=4", "hq=2,sq=3,d=4,lens=padded"};
  const char* const kDoNot[] = {"hq=2,hkv=1,sq=3,d=4", "hq=2,sq=3,skv=4,d=4", "hq=2,sq=3,d=4,dv=5",
                                "hq=2,sq=3,d=4,lens=packed", "hq=2,sq=3,d=4,page=2"};
  for (const char* line : kFit) {
    EXPECT_TRUE(oracle::CheckLayout(oracle::Layout::kQkv, *AttentionProblem::Parse(line)).ok())
        << line;
  }
  for (const char* line : kDoNot) {
    EXPECT_FALSE(oracle::CheckLayout(oracle::Layout::kQkv, *AttentionProblem::Parse(line)).ok())
        << line;
    EXPECT_TRUE(oracle::CheckLayout(oracle::Layout::kOdd, *AttentionProblem::Parse(line)).ok())
        << line;
  }
}

}  // namespace
}  // namespace attnlab::conformance
