#include "attention/core/tensor.h"

#include "gtest/gtest.h"

namespace attnlab {
namespace {

TEST(TensorViewTest, LayoutsAreStrides) {
  float data[1];
  const TensorView bshd = BshdView(data, DType::kFloat32, Device::Cpu(), 2, 3, 4, 5);
  EXPECT_EQ(bshd.Offset(1, 2, 3, 4), ((1 * 3 + 2) * 4 + 3) * 5 + 4);
  EXPECT_EQ(bshd.NumElements(), 2 * 3 * 4 * 5);
  const TensorView bhsd = BhsdView(data, DType::kFloat32, Device::Cpu(), 2, 3, 4, 5);
  EXPECT_EQ(bhsd.shape, bshd.shape);
  EXPECT_EQ(bhsd.Offset(1, 2, 3, 4), ((1 * 4 + 3) * 3 + 2) * 5 + 4);
  const TensorView lse = LseView(data, Device::Cpu(), 2, 3, 4);
  EXPECT_EQ(lse.Offset(1, 2, 3, 0), (1 * 4 + 3) * 3 + 2);
}

TEST(TensorViewTest, PackedQkvPartsLieSideBySide) {
  BFloat16 data[2 * 3 * 3 * 4 * 5];
  const QkvViews in = PackedQkvViews(data, DType::kBFloat16, Device::Cpu(), 2, 3, 4, 5);
  const auto index = [&](const ConstTensorView& view) {  // index of element (1, 2, 3, 4) in `data`
    return static_cast<const BFloat16*>(view.data) + view.Offset(1, 2, 3, 4) - data;
  };
  const int64_t token = 1 * 3 + 2;
  EXPECT_EQ(index(in.q), ((token * 3 + 0) * 4 + 3) * 5 + 4);
  EXPECT_EQ(index(in.k), ((token * 3 + 1) * 4 + 3) * 5 + 4);
  EXPECT_EQ(index(in.v), ((token * 3 + 2) * 4 + 3) * 5 + 4);
}

TEST(TensorViewTest, OffsetsAre64Bit) {
  const TensorView view =
      BshdView(static_cast<void*>(nullptr), DType::kBFloat16, Device::Cpu(), 8, 1 << 17, 64, 128);
  EXPECT_EQ(view.Offset(7, (1 << 17) - 1, 63, 127), (int64_t{8} << 30) - 1);
}

TEST(TensorViewTest, Prints) {
  EXPECT_EQ(ToString(BshdView(static_cast<void*>(nullptr), DType::kBFloat16, Device::Cuda(1), 2,
                              512, 8, 64)),
            "bf16[2, 512, 8, 64] strides [262144, 512, 64, 1] on cuda:1");
}

}  // namespace
}  // namespace attnlab
