#include "attention/core/launch_config.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace attnlab {
namespace {

TEST(LaunchConfigTest, ParsesAndPrints) {
  const absl::StatusOr<LaunchConfig> c = LaunchConfig::Parse("tile_q=64,mma=wmma");
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->ToString(), "mma=wmma,tile_q=64");
  EXPECT_EQ(*LaunchConfig::Parse(c->ToString()), *c);
  EXPECT_EQ(c->Get("mma", "sync"), "wmma");
  EXPECT_EQ(c->Get("split", "none"), "none");
  EXPECT_EQ(*c->GetInteger("tile_q", 128, 1, 256), 64);
  EXPECT_EQ(*c->GetInteger("tile_kv", 128, 1, 256), 128);
  EXPECT_EQ(*c->GetBool("pairs", true), true);
  EXPECT_EQ(*LaunchConfig::Parse("pairs=false")->GetBool("pairs", true), false);
  EXPECT_EQ(c->Keys(), (std::vector<std::string>{"mma", "tile_q"}));
  EXPECT_TRUE(LaunchConfig::Parse("")->empty());
}

TEST(LaunchConfigTest, RejectsWithTheReason) {
  for (const auto& [line, message] : {
           std::pair<std::string, std::string>{"tile", "config: \"tile\" is not of the form"},
           {"=4", "config: \"=4\" is not of the form key=value"},
           {"tile=", "config: \"tile=\" is not of the form key=value"},
           {"a=1,", "config: \"\" is not of the form key=value"},
           {"a=1,a=2", "config: a is given twice"},
       }) {
    const absl::Status s = LaunchConfig::Parse(line).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_EQ(std::string(s.message()).find(message), 0) << s;
  }
  LaunchConfig c;
  c.Set("tile_q", 512);
  EXPECT_EQ(c.GetInteger("tile_q", 64, 1, 256).status().message(),
            "config: tile_q: \"512\" is not an integer in 1..256");
  c.Set("tile_q", "big");
  EXPECT_FALSE(c.GetInteger("tile_q", 64, 1, 256).ok());
  EXPECT_EQ(c.GetBool("tile_q", false).status().message(),
            "config: tile_q=big is neither true nor false");
  EXPECT_TRUE(c.CheckKeys({"tile_q"}).ok());
  EXPECT_EQ(c.CheckKeys({"a", "b"}).message(), "config: unknown key \"tile_q\"; known are a, b");
  EXPECT_EQ(c.CheckKeys({}).message(), "config: unknown key \"tile_q\"; this kernel has none");
}

}  // namespace
}  // namespace attnlab
