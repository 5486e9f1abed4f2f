#include "tools/lib/similar_names.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::string>& Names() {
  static const auto* const kNames = new std::vector<std::string>{
      "dram__bytes", "dram__bytes_read", "dram__bytes_write", "lts__t_bytes", "lts__t_sectors"};
  return *kNames;
}

TEST(SimilarNamesTest, AFewLettersOff) {
  EXPECT_THAT(SimilarNames("dram__bytes_reed", Names(), 3), ElementsAre("dram__bytes_read"));
  EXPECT_THAT(SimilarNames("dram_bytes_read", Names(), 3), ElementsAre("dram__bytes_read"));
  EXPECT_THAT(SimilarNames("dram__bytes_writes", Names(), 3), ElementsAre("dram__bytes_write"));
  EXPECT_THAT(SimilarNames("dram__byte", Names(), 3), ElementsAre("dram__bytes"));
  EXPECT_THAT(SimilarNames("dram__bytse", Names(), 3), ElementsAre("dram__bytes"));
  EXPECT_THAT(SimilarNames("LTS__T_BYTES", Names(), 3), ElementsAre("lts__t_bytes"));
}

TEST(SimilarNamesTest, TheBeginningOfSome) {
  EXPECT_THAT(SimilarNames("dram", Names(), 2), ElementsAre("dram__bytes", "dram__bytes_read"));
  EXPECT_THAT(SimilarNames("lts__", Names(), 1), ElementsAre("lts__t_bytes"));
}

TEST(SimilarNamesTest, NothingLikeIt) {
  EXPECT_THAT(SimilarNames("", Names(), 3), IsEmpty());
  EXPECT_THAT(SimilarNames("occupancy", Names(), 3), IsEmpty());
  EXPECT_THAT(SimilarNames("x", {"q", "k"}, 3), IsEmpty());
  EXPECT_THAT(SimilarNames("csv", {"lse", "dtype"}, 3), IsEmpty());
  EXPECT_THAT(SimilarNames("dram__bytes", {}, 3), IsEmpty());
  EXPECT_THAT(SimilarNames("dram__bytes", Names(), 0), IsEmpty());
}

TEST(SimilarNamesTest, DidYouMean) {
  EXPECT_EQ(DidYouMean(std::vector<std::string>()), "");
  EXPECT_EQ(DidYouMean(std::vector<std::string>{"a", "b", "c"}), "; did you mean a, b or c?");
  EXPECT_EQ(DidYouMean("decod", {"prefill", "decode"}), "; did you mean decode?");
  EXPECT_EQ(DidYouMean("zebra", {"prefill", "decode"}), "");
}

}  // namespace
}  // namespace attnlab
