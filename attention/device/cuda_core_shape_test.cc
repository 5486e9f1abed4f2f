#include "attention/device/cuda_core_shape.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "attention/device/cuda_core_table.h"
#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

constexpr int kBanks = 32, kLanes = 32;

template <class S>
class CudaCoreShapeTest : public ::testing::Test {};

using Shapes = ::testing::Types<
    CudaCoreShapes<32>::Large, CudaCoreShapes<32>::Medium, CudaCoreShapes<32>::Small,
    CudaCoreShapes<64>::Large, CudaCoreShapes<64>::Medium, CudaCoreShapes<64>::Small,
    CudaCoreShapes<96>::Large, CudaCoreShapes<96>::Small, CudaCoreShapes<128>::Large,
    CudaCoreShapes<128>::Small, CudaCoreShapes<192>::Large, CudaCoreShapes<192>::Small,
    CudaCoreShapes<256>::Large, CudaCoreShapes<256>::Small>;
TYPED_TEST_SUITE(CudaCoreShapeTest, Shapes);

// Calls visit(warp_row, warp_column, lane) for every thread.
template <class S, typename Visit>
void ForEachThread(const Visit& visit) {
  for (int warp = 0; warp < S::kThreads / kLanes; ++warp) {
    for (int lane = 0; lane < kLanes; ++lane) {
      visit(warp / S::kColumnWarps, warp % S::kColumnWarps, lane);
    }
  }
}

TYPED_TEST(CudaCoreShapeTest, EveryScoreAndEveryElementOfOHasOneThread) {
  using S = TypeParam;
  std::vector<int> products(S::kRows * S::kKeys), scores(S::kRows * S::kKeys),
      o(S::kRows * S::kDim);
  ForEachThread<S>([&](int warp_row, int warp_column, int lane) {
    const int first_row = S::FirstRow(warp_row, lane), first_key = S::FirstKey(warp_column, lane);
    for (int i = 0; i < S::kThreadRows; ++i) {
      const int row = first_row + S::RowStep(i);
      for (int j = 0; j < S::kProductKeys; ++j) {
        ++products[row * S::kKeys + first_key + S::KeyStep(j)];
      }
      for (int c = 0; c < S::kThreadChunks; ++c) {
        for (int e = 0; e < S::kChunkDims; ++e) {
          ++o[row * S::kDim + S::FirstDim(warp_column, lane) + c * S::kDimStep + e];
        }
      }
    }
    for (int i = 0; i < S::kOwnRows; ++i) {
      const int row = first_row + S::OwnRowStep(warp_column) + S::RowStep(i);
      for (int j = 0; j < S::kProductKeys; ++j) {
        ++scores[row * S::kKeys + first_key + S::KeyStep(j)];
      }
    }
  });
  // If warps form pairs, each multiplies half of the dims.
  for (const int count : products) ASSERT_EQ(count, S::kPairs ? 2 : 1);
  for (const int count : scores) ASSERT_EQ(count, 1);
  for (const int count : o) ASSERT_EQ(count, 1);
}

TYPED_TEST(CudaCoreShapeTest, ARowBelongsToOneRowOfWarpsAndToEightLanesSideBySide) {
  using S = TypeParam;
  for (int lane = 0; lane < kLanes; ++lane) {
    // Reductions over a row add up lanes that differ in these bits alone.
    for (const int bit : {2, 4, 8}) {
      EXPECT_EQ(S::LaneRow(lane), S::LaneRow(lane ^ bit));
      EXPECT_NE(S::LaneColumn(lane), S::LaneColumn(lane ^ bit));
    }
    EXPECT_LT(S::FirstRow(0, lane) + S::RowStep(S::kThreadRows - 1), S::kWarpRows);
  }
}

// The cycles that the banks need for a warp's accesses of `floats` floats each, `lanes` lanes at a
// time; the same address counts once. Reads of 16 bytes are served in half warps if neighbours read
// the same address. Other reads, and all writes, are served in quarter warps.
template <typename Address>
int Cycles(int floats, int lanes, const Address& address) {
  int cycles = 0;
  for (int first = 0; first < kLanes; first += lanes) {
    std::vector<std::set<int>> banks(kBanks);
    for (int lane = first; lane < first + lanes; ++lane) {
      for (int i = 0; i < floats; ++i) {
        banks[(address(lane) + i) % kBanks].insert(address(lane) + i);
      }
    }
    size_t most = 0;
    for (const auto& bank : banks) most = std::max(most, bank.size());
    cycles += static_cast<int>(most);
  }
  return cycles;
}

TYPED_TEST(CudaCoreShapeTest, AccessesHaveNoBankConflicts) {
  using S = TypeParam;
  const auto q = [](int lane) { return S::kQ + S::FirstRow(0, lane); };
  const auto k = [](int lane) { return S::kK + S::FirstKey(0, lane); };
  const auto v = [](int lane) { return S::kV + S::FirstDim(0, lane); };
  const auto p = [](int lane) { return S::kP + S::FirstRow(0, lane); };
  EXPECT_EQ(Cycles(4, kLanes / 2, q), 2);
  EXPECT_EQ(Cycles(4, kLanes / 2, v), 2);
  EXPECT_EQ(Cycles(4, kLanes / 2, p), 2);
  EXPECT_EQ(S::kKeyVector == 4 ? Cycles(4, kLanes / 2, k) : 2 * Cycles(2, kLanes, k), 2);
  // Half a warp is served at once if neighbours read the same address.
  for (int lane = 0; lane < kLanes; ++lane) {
    EXPECT_EQ(q(lane), q(lane ^ 2));
    EXPECT_EQ(p(lane), p(lane ^ 2));
    EXPECT_EQ(k(lane), k(lane ^ 1));
    EXPECT_EQ(v(lane), v(lane ^ 1));
  }
  // A warp copies 16 dims of 2 keys of K at a time.
  EXPECT_EQ(Cycles(1, kLanes, [](int lane) { return S::kK + lane % 16 * S::kKStride + lane / 16; }),
            2);
  // P is written once per tile of keys and Q once per block. Both may take twice the least number
  // of cycles. Small tiles with two rows of P at a time are not held to that.
  if (S::kRowVector == 4) {
    EXPECT_LE(Cycles(4, kLanes / 4,
                     [&](int lane) { return p(lane) + S::FirstKey(0, lane) * S::kPStride; }),
              8);
  }
  EXPECT_LE(
      Cycles(1, kLanes, [](int lane) { return S::kQ + lane % 4 * 4 * S::kQStride + lane / 4; }), 2);
}

TYPED_TEST(CudaCoreShapeTest, PartsOfSharedMemoryAreAlignedAndApart) {
  using S = TypeParam;
  const std::vector<int> parts = {S::kQ, S::kK, S::kV, S::kP, S::kFactors, S::kExchange};
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i] % 4, 0);
    if (i > 0) {
      EXPECT_GT(parts[i], parts[i - 1]);
    }
  }
  EXPECT_EQ(S::kTiles % 2, 0);
  EXPECT_EQ(S::kQStride % 8, 4);
  EXPECT_EQ(S::kKStride % 8, 4);
  EXPECT_LE(S::kNegMaxima + S::kRows, S::kV);  // inside K
  EXPECT_EQ(S::kOffsets % 2, 0);
}

TEST(CudaCoreTableTest, EveryHeadDimHasATileForTuringAndALargerOneForHopper) {
  constexpr int kTuring = 64 << 10, kHopper = 227 << 10;
  for (size_t i = 0; i < std::size(kCudaCoreTiles);) {
    const CudaCoreTile& large = kCudaCoreTiles[i++];
    EXPECT_LE(large.shared_bytes, kHopper) << large.dim;
    EXPECT_LE(large.threads, 256);
    for (; i < std::size(kCudaCoreTiles) && kCudaCoreTiles[i].blocks > 1; ++i) {
      const CudaCoreTile& medium = kCudaCoreTiles[i];
      EXPECT_EQ(medium.dim, large.dim);
      EXPECT_LT(medium.rows, large.rows);
      // The system takes 1 KiB per block.
      EXPECT_LE(medium.blocks * (medium.shared_bytes + 1024), kHopper + 1024) << medium.dim;
    }
    ASSERT_LT(i, std::size(kCudaCoreTiles));
    const CudaCoreTile& small = kCudaCoreTiles[i++];
    EXPECT_EQ(small.dim, large.dim);
    EXPECT_LE(small.shared_bytes, kTuring) << small.dim;
    EXPECT_GT(large.rows, small.rows);
    EXPECT_EQ(small.blocks, 1);
  }
}

}  // namespace
}  // namespace attnlab::device
