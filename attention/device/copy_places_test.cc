#include "attention/device/copy_places.h"

#include <vector>

#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

// Every unit of every row is copied exactly once, by one thread, however few rows there are.
template <int kRows, int kUnits, int kLanes, int kThreads>
void ExpectEachUnitOnce() {
  using Places = CopyPlaces<kRows, kUnits, kLanes, kThreads>;
  SCOPED_TRACE(::testing::Message() << kRows << " rows of " << kUnits << " units by " << kThreads
                                    << " threads, " << kLanes << " side by side");
  std::vector<int> copied(kRows * kUnits);
  for (int thread = 0; thread < kThreads; ++thread) {
    const Places places = Places::Of(thread);
    for (int down = 0; down < Places::kDown; ++down) {
      if (!places.Has(down)) break;
      for (int across = 0; across < Places::kAcross; ++across) {
        const int row = places.Row(down), unit = places.Unit(across);
        ASSERT_LT(row, kRows);
        ASSERT_LT(unit, kUnits);
        ++copied[row * kUnits + unit];
      }
    }
  }
  for (const int count : copied) ASSERT_EQ(count, 1);
  EXPECT_EQ(Places::kCount, Places::kDown * Places::kAcross);
}

TEST(CopyPlacesTest, EachUnitOnce) {
  // Units of 16 bytes: head dims 32 to 256 in fp32 and in 16 bits.
  ExpectEachUnitOnce<64, 8, 8, 256>();
  ExpectEachUnitOnce<64, 16, 16, 256>();
  ExpectEachUnitOnce<64, 24, 8, 256>();
  ExpectEachUnitOnce<64, 32, 32, 256>();
  ExpectEachUnitOnce<48, 48, 16, 256>();
  ExpectEachUnitOnce<64, 64, 32, 256>();
  ExpectEachUnitOnce<64, 4, 4, 256>();
  ExpectEachUnitOnce<64, 12, 4, 256>();
  ExpectEachUnitOnce<16, 64, 32, 64>();
  // Units of 16 bytes that are transposed: a warp takes 2 x 16.
  ExpectEachUnitOnce<64, 4, 2, 256>();
  ExpectEachUnitOnce<64, 12, 2, 256>();
  ExpectEachUnitOnce<48, 24, 2, 256>();
  ExpectEachUnitOnce<16, 32, 2, 64>();
  ExpectEachUnitOnce<48, 24, 8, 256>();
  // Elements that are transposed: a warp takes 16 x 2.
  ExpectEachUnitOnce<64, 32, 16, 128>();
  ExpectEachUnitOnce<64, 96, 16, 256>();
  ExpectEachUnitOnce<48, 192, 16, 256>();
  ExpectEachUnitOnce<16, 192, 16, 128>();
  ExpectEachUnitOnce<16, 256, 16, 64>();
  // Elements: a warp takes 8 x 4.
  ExpectEachUnitOnce<64, 32, 8, 256>();
  ExpectEachUnitOnce<64, 96, 8, 256>();
  ExpectEachUnitOnce<48, 192, 8, 256>();
  ExpectEachUnitOnce<32, 64, 8, 128>();
  ExpectEachUnitOnce<16, 256, 8, 64>();
}

TEST(CopyPlacesTest, FewerRowsThanThreadsReach) {
  ExpectEachUnitOnce<48, 24, 8, 256>();
  ExpectEachUnitOnce<16, 8, 2, 128>();
  ExpectEachUnitOnce<3, 8, 8, 64>();
}

// Each row costs a thread an address, so a thread has few rows and many units of each.
TEST(CopyPlacesTest, WarpsStandBelowEachOther) {
  using Places = CopyPlaces<64, 256, 16, 256>;
  EXPECT_EQ(Places::kDown, 4);
  EXPECT_EQ(Places::kAcross, 16);
  // Unless threads would then have more places than exist, or there are not rows for all of them.
  EXPECT_EQ((CopyPlaces<48, 192, 8, 256>::kCount), 48 * 192 / 256);
  using Wide = CopyPlaces<8, 32, 16, 256>;
  EXPECT_EQ(Wide::kDown, 1);
  EXPECT_EQ(Wide::kAcross, 1);
}

}  // namespace
}  // namespace attnlab::device
