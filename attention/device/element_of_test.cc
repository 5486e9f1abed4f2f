#include "attention/device/element_of.h"

#include "attention/core/dtype.h"
#include "attention/device/element.h"
#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

TEST(ElementOfTest, IsTheSameType) {
  EXPECT_EQ(ElementOf(DType::kFloat32), Element::kFloat32);
  EXPECT_EQ(ElementOf(DType::kFloat16), Element::kFloat16);
  EXPECT_EQ(ElementOf(DType::kBFloat16), Element::kBFloat16);
}

TEST(ElementOfTest, HasTheSameSize) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    EXPECT_EQ(SizeOf(ElementOf(dtype)), attnlab::SizeOf(dtype)) << Name(dtype);
  }
}

}  // namespace
}  // namespace attnlab::device
