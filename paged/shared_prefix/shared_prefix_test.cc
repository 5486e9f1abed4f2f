#include "paged/shared_prefix/shared_prefix.h"

#include <string>
#include <vector>

#include "attention/core/problem.h"
#include "gtest/gtest.h"
#include "paged/page_manager.h"
#include "paged/shared_prefix/check.h"

namespace attnlab::paged {
namespace {

TEST(SharedPrefix, IsAsEachSequenceAlone) { CheckSharedPrefixes(Device::Cpu()); }

TEST(SharedPrefix, ErrorsNameWhatDoesNotFit) {
  const auto error = [](const std::string& line, const std::vector<SharedPrefix>& prefixes) {
    const AttentionProblem p = AttentionProblem::Parse("hq=1,d=8," + line).value();
    return std::string(SharedPrefixPlan::Make(p, Device::Cpu(), prefixes).status().message());
  };
  const std::string good = "b=4,sq=1,skv=100,page=16";
  EXPECT_EQ(error(good, {{6, {0, 1}}, {2, {2, 3}}}), "");
  EXPECT_EQ(error(good, {}), "");
  EXPECT_EQ(error("b=4,sq=1,skv=100", {}), "page: 0; K and V must be paged");
  EXPECT_EQ(error(good + ",lens=packed", {}), "lens: packed; must be fixed or padded");
  EXPECT_EQ(error(good + ",mask=window:5:0", {}),
            "mask: a sliding window does not see the whole prefix");
  EXPECT_EQ(error(good, {{1, {}}}), "prefixes: one has no members");
  EXPECT_EQ(error(good, {{1, {0, 2}}}),
            "prefixes: member 2 follows member 0; members must be side by side in the batch");
  EXPECT_EQ(error(good, {{1, {0, 1}}, {1, {1, 2}}}),
            "prefixes: members 1 to 2 are of another prefix, or not of the 4 sequences");
  EXPECT_EQ(error(good, {{1, {3, 4}}}),
            "prefixes: members 3 to 4 are of another prefix, or not of the 4 sequences");
  EXPECT_EQ(error(good, {{7, {0, 1}}}), "prefixes: 7 pages, of 100 keys with 1 of their own");
}

}  // namespace
}  // namespace attnlab::paged
