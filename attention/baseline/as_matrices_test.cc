#include "attention/baseline/as_matrices.h"

#include <cstdint>

#include "attention/core/device.h"
#include "attention/core/dtype.h"
#include "gtest/gtest.h"

namespace attnlab::baseline {
namespace {

const Device kGpu = Device::Cuda(0);

// An address with nothing at it.
void* Address(int64_t bytes = 4096) { return reinterpret_cast<void*>(bytes); }

TEST(AsMatricesTest, HeadsBeforeTokensAreMatrices) {
  const auto m = AsMatrices(BhsdView(Address(), DType::kFloat32, kGpu, 3, 10, 4, 64), 1);
  ASSERT_TRUE(m.has_value());
  EXPECT_EQ(m->data, Address());
  EXPECT_EQ(m->row_stride, 64);
  EXPECT_EQ(m->stride, 640);
}

TEST(AsMatricesTest, HeadsOfAGroupFollowEachOther) {
  const auto m = AsMatrices(BhsdView(Address(), DType::kFloat32, kGpu, 3, 10, 6, 64), 2);
  ASSERT_TRUE(m.has_value());
  EXPECT_EQ(m->row_stride, 64);
  EXPECT_EQ(m->stride, 2 * 640);
}

TEST(AsMatricesTest, TokensBeforeHeadsAreMatricesInOneSequence) {
  const auto one = AsMatrices(BshdView(Address(), DType::kFloat32, kGpu, 1, 10, 4, 64), 1);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->row_stride, 256);
  EXPECT_EQ(one->stride, 64);
  EXPECT_FALSE(AsMatrices(BshdView(Address(), DType::kFloat32, kGpu, 2, 10, 4, 64), 1));
  EXPECT_FALSE(AsMatrices(BshdView(Address(), DType::kFloat32, kGpu, 1, 10, 4, 64), 2));
  // With one head, the stride is from sequence to sequence.
  const auto single = AsMatrices(BshdView(Address(), DType::kFloat32, kGpu, 2, 10, 1, 64), 1);
  ASSERT_TRUE(single.has_value());
  EXPECT_EQ(single->stride, 640);
}

TEST(AsMatricesTest, PackedQkvHasLongRows) {
  const QkvViews qkv = PackedQkvViews(Address(), DType::kFloat32, kGpu, 1, 10, 4, 64);
  const auto k = AsMatrices(qkv.k, 1);
  ASSERT_TRUE(k.has_value());
  EXPECT_EQ(k->data, Address(4096 + 4 * 64 * 4));
  EXPECT_EQ(k->row_stride, 3 * 4 * 64);
  EXPECT_EQ(k->stride, 64);
}

TEST(AsMatricesTest, OneRowADecodedHead) {
  const auto m = AsMatrices(BshdView(Address(), DType::kBFloat16, kGpu, 5, 1, 8, 128), 4);
  ASSERT_TRUE(m.has_value());
  EXPECT_EQ(m->row_stride, 128);
  EXPECT_EQ(m->stride, 4 * 128);
  // A single head has no next row. Its row stride is still at least a row.
  const auto single = AsMatrices(BshdView(Address(), DType::kBFloat16, kGpu, 1, 1, 1, 100), 1);
  ASSERT_TRUE(single.has_value());
  EXPECT_GE(single->row_stride, 100);
}

TEST(AsMatricesTest, UnalignedRowsAreNot) {
  EXPECT_FALSE(AsMatrices(BhsdView(Address(4100), DType::kFloat32, kGpu, 1, 10, 4, 64), 1));
  EXPECT_FALSE(AsMatrices(BhsdView(Address(), DType::kFloat32, kGpu, 1, 10, 4, 63), 1));
  EXPECT_FALSE(AsMatrices(BhsdView(Address(), DType::kBFloat16, kGpu, 1, 10, 4, 68), 1));
  EXPECT_TRUE(AsMatrices(BhsdView(Address(), DType::kFloat32, kGpu, 1, 10, 4, 68), 1));
}

TEST(AsMatricesTest, RowsThatOverlapAreNot) {
  TensorView broadcast = BhsdView(Address(), DType::kFloat32, kGpu, 1, 10, 4, 64);
  broadcast.strides[1] = 0;
  EXPECT_FALSE(AsMatrices(broadcast, 1));
  // Matrices may be identical, as for a broadcast head.
  broadcast.strides[1] = 64;
  broadcast.strides[2] = 0;
  EXPECT_TRUE(AsMatrices(broadcast, 1));
}

}  // namespace
}  // namespace attnlab::baseline
