#include "attention/core/supports.h"

#include "absl/status/status.h"
#include "attention/core/dtype.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

TEST(SupportsTest, DtypesThatAreElements) {
  AttentionProblem p;
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    p.dtype = dtype;
    EXPECT_EQ(CheckDtypeAndPage(p), absl::OkStatus()) << Name(dtype);
  }
  p.dtype = DType::kFloat8E4M3;
  EXPECT_EQ(CheckDtypeAndPage(p),
            absl::UnimplementedError("dtype: fp8_e4m3 is not one of fp32, fp16, bf16"));
}

TEST(SupportsTest, OneDtype) {
  AttentionProblem p;
  p.kv_dtype = DType::kFloat8E4M3;
  EXPECT_EQ(CheckDtypeAndPage(p),
            absl::UnimplementedError("kvdtype: fp8_e4m3 is not supported with dtype=bf16"));
  EXPECT_EQ(CheckDtypeAndPage(p, {KvForm::kFp8}), absl::OkStatus());
  p.dtype = DType::kFloat8E4M3;
  EXPECT_EQ(CheckDtypeAndPage(p, {KvForm::kFp8Q}), absl::OkStatus());
  p.v_dtype = DType::kFloat8E5M2;
  EXPECT_EQ(CheckDtypeAndPage(p, {KvForm::kFp8Q}),
            absl::UnimplementedError("vdtype: fp8_e5m2 is not supported with dtype=fp8_e4m3"));
  EXPECT_EQ(CheckDtypeAndPage(p, {KvForm::kFp8Q, KvForm::kE5m2V}), absl::OkStatus());
}

TEST(SupportsTest, Pages) {
  AttentionProblem p;
  p.page = 16;
  EXPECT_EQ(CheckDtypeAndPage(p, {KvForm::kPaged}), absl::OkStatus());
  EXPECT_EQ(CheckDtypeAndPage(p, {KvForm::kPaged, KvForm::kFp8}), absl::OkStatus());
  EXPECT_EQ(CheckDtypeAndPage(p, {KvForm::kFp8}),
            absl::UnimplementedError("page: 16; paged K and V are not supported, only page = 0"));
}

}  // namespace
}  // namespace attnlab
