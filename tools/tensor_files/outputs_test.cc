#include "tools/tensor_files/outputs.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "attention/core/device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

using ::testing::ElementsAre;

TEST(OutputsTest, UnusedRowsOfOutputsAreZeroAndMinusInfinity) {
  const AttentionProblem problem = *AttentionProblem::Parse("hq=1,sq=2,d=4,dtype=fp32");
  AttentionTensors tensors;
  tensors.q =
      BshdView(static_cast<const void*>(nullptr), DType::kFloat32, Device::Cpu(), 1, 2, 1, 4);
  auto outputs = Outputs::Make(problem, tensors, FileLayout::kBhsd, false);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(outputs->o_shape(), ElementsAre(1, 2, 4));
  EXPECT_THAT(outputs->lse_shape(), ElementsAre(1, 2));
  outputs->AddTo(&tensors);
  static_cast<float*>(tensors.o.data)[tensors.o.Offset(0, 1, 0, 2)] = 8;
  static_cast<float*>(tensors.o.data)[0] = std::nanf("");
  ASSERT_TRUE(outputs->Fetch().ok());
  const Outputs::Summary o = outputs->SummaryOfO();
  EXPECT_EQ(o.elements, 8);
  EXPECT_EQ(o.nan, 1);
  EXPECT_EQ(o.max, 8);
  EXPECT_EQ(o.min, 0);
  EXPECT_DOUBLE_EQ(o.mean, 8.0 / 7);
  EXPECT_EQ(outputs->SummaryOfLse().infinite, 2);
  const std::string path = absl::StrCat(testing::TempDir(), "/o.npy");
  for (NpyType type :
       {NpyType::kFloat16, NpyType::kBFloat16, NpyType::kFloat32, NpyType::kFloat64}) {
    ASSERT_TRUE(outputs->WriteO(path, type).ok());
    const auto back = ReadNpy(path);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->header.type, type);
    EXPECT_EQ(LoadAsDouble(*back, 6), 8);
  }
  // NaN and infinities of O are written as they are. A number that becomes infinite is an error.
  static_cast<float*>(tensors.o.data)[1] = 70000;
  ASSERT_TRUE(outputs->Fetch().ok());
  const absl::Status s = outputs->WriteO(path, NpyType::kFloat16);
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(s.message(), "--out_dtype: O has 70000 at element 1, which is too large for fp16");
  EXPECT_TRUE(outputs->WriteO(path, NpyType::kBFloat16).ok());
}

}  // namespace
}  // namespace attnlab
