#include "tools/command/cache_directory.h"

#include <stdlib.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::command {
namespace {

using ::testing::IsEmpty;

CacheDirectory Of(const char* cache, const char* home) {
  cache == nullptr ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", cache, 1);
  home == nullptr ? unsetenv("HOME") : setenv("HOME", home, 1);
  return FindCacheDirectory("the ceilings");
}

TEST(CacheDirectoryTest, AbsolutePathsAreFollowed) {
  EXPECT_EQ(Of("/cache", "/home").path, "/cache/attnlab");
  EXPECT_EQ(Of(nullptr, "/home").path, "/home/.cache/attnlab");
  EXPECT_EQ(Of("", "/home").path, "/home/.cache/attnlab");
  EXPECT_EQ(Of("/cache", "home").path, "/cache/attnlab");
  EXPECT_THAT(Of("/cache", "home").remark, IsEmpty());
  EXPECT_THAT(Of(nullptr, "/home").remark, IsEmpty());
}

TEST(CacheDirectoryTest, RelativeOnesAreNotAndAreTold) {
  const CacheDirectory cache = Of("cache", "/home");
  EXPECT_EQ(cache.path, "/home/.cache/attnlab");
  EXPECT_EQ(cache.remark,
            "XDG_CACHE_HOME: cache is a relative path, which is not followed; the ceilings are "
            "kept in /home/.cache/attnlab");
  const CacheDirectory home = Of(nullptr, "home");
  EXPECT_THAT(home.path, IsEmpty());
  EXPECT_EQ(home.remark,
            "HOME: home is a relative path, which is not followed; the ceilings are not kept");
  EXPECT_THAT(Of("cache", nullptr).path, IsEmpty());
  EXPECT_EQ(Of("cache", nullptr).remark,
            "XDG_CACHE_HOME: cache is a relative path, which is not followed; the ceilings are "
            "not kept");
}

// No remark: KeepCeilings() reports this case.
TEST(CacheDirectoryTest, WithoutEitherThereIsNone) {
  EXPECT_THAT(Of(nullptr, nullptr).path, IsEmpty());
  EXPECT_THAT(Of(nullptr, nullptr).remark, IsEmpty());
}

}  // namespace
}  // namespace attnlab::command
