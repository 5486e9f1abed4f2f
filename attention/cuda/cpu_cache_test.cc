#include "attention/cuda/cpu_cache.h"

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

class CpuCacheTest : public ::testing::Test {
 protected:
  CpuCacheTest()
      : directory_(absl::StrCat(::testing::TempDir(), "/",
                                ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    mkdir(directory_.c_str(), 0755);
  }

  void Add(const std::string& level, const std::string& type, const std::string& size) {
    const std::string index = absl::StrCat(directory_, "/index", count_++);
    mkdir(index.c_str(), 0755);
    std::ofstream(index + "/level") << level << "\n";
    std::ofstream(index + "/type") << type << "\n";
    std::ofstream(index + "/size") << size << "\n";
  }

  std::string directory_;
  int count_ = 0;
};

// An EPYC with 12 L3 caches of 32 MiB. The C library says 384 MiB, or one L3's share per core.
TEST_F(CpuCacheTest, IsTheCacheOfTheHighestLevel) {
  Add("1", "Data", "32K");
  Add("1", "Instruction", "32K");
  Add("2", "Unified", "1024K");
  Add("3", "Unified", "32768K");
  EXPECT_EQ(LastLevelCacheBytes(directory_), int64_t{32} << 20);
}

TEST_F(CpuCacheTest, OrderDoesNotMatterAndInstructionsDoNotCount) {
  Add("2", "Unified", "2M");
  Add("1", "Data", "48K");
  Add("3", "Instruction", "64M");
  EXPECT_EQ(LastLevelCacheBytes(directory_), int64_t{2} << 20);
}

TEST_F(CpuCacheTest, TakesUnitsAndSkipsWhatIsNoSize) {
  Add("1", "Data", "32768");
  EXPECT_EQ(LastLevelCacheBytes(directory_), 32768);
  Add("2", "Unified", "");
  Add("3", "Unified", "muchK");
  Add("x", "Unified", "4K");
  Add("4", "Unified", "9223372036854775807G");
  EXPECT_EQ(LastLevelCacheBytes(directory_), 32768);
  Add("3", "Unified", "1G");
  EXPECT_EQ(LastLevelCacheBytes(directory_), int64_t{1} << 30);
}

TEST_F(CpuCacheTest, NothingIsZero) {
  EXPECT_EQ(LastLevelCacheBytes(directory_), 0);
  EXPECT_EQ(LastLevelCacheBytes(directory_ + "/none"), 0);
}

}  // namespace
}  // namespace attnlab
