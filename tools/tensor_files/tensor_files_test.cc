#include "tools/tensor_files/tensor_files.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

using ::testing::HasSubstr;

// Writes a file of 0, 1, 2, … in that shape.
std::string Counting(const char* name, const std::vector<int64_t>& shape,
                     NpyType type = NpyType::kFloat32) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name, ".npy");
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  std::string data(count * SizeOf(type), '\0');
  for (int64_t i = 0; i < count; ++i) {
    const float f4 = static_cast<float>(i);
    const Float16 f2(f4);
    const double f8 = f4;
    const auto i4 = static_cast<int32_t>(i);
    const void* from = type == NpyType::kFloat16   ? static_cast<const void*>(&f2)
                       : type == NpyType::kFloat64 ? static_cast<const void*>(&f8)
                       : type == NpyType::kInt32   ? static_cast<const void*>(&i4)
                                                   : static_cast<const void*>(&f4);
    std::memcpy(&data[i * SizeOf(type)], from, SizeOf(type));
  }
  EXPECT_TRUE(WriteNpy(path, type, shape, data.data()).ok());
  return path;
}

float At(const ConstTensorView& view, int64_t b, int64_t s, int64_t h, int64_t i) {
  return LoadElement(view.data, view.dtype, view.Offset(b, s, h, i));
}

TEST(TensorFilesTest, NumbersTooLargeForTheDtypeAreErrors) {
  const std::string path = absl::StrCat(testing::TempDir(), "/large.npy");
  // In fp16, numbers from 65520 on round to infinity. Infinity itself is no error.
  double numbers[] = {65519.9, HUGE_VAL, -1e5};
  TensorFiles files;
  files.q = files.k = files.v = path;
  files.dtype = "fp16";
  ASSERT_TRUE(WriteNpy(path, NpyType::kFloat64, {1, 1, 1, 3}, numbers).ok());
  EXPECT_EQ(LoadTensors(files).status().message(),
            path + ": element 2 is -100000, which is too large for fp16");
  EXPECT_EQ(LoadTensors(files).status().code(), absl::StatusCode::kInvalidArgument);
  numbers[2] = 0;
  ASSERT_TRUE(WriteNpy(path, NpyType::kFloat64, {1, 1, 1, 3}, numbers).ok());
  const auto loaded = LoadTensors(files);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(At(loaded->tensors.q, 0, 0, 0, 0), 65504);
  EXPECT_EQ(At(loaded->tensors.q, 0, 0, 0, 1), HUGE_VAL);
  numbers[2] = 1e39;
  files.dtype = "";
  ASSERT_TRUE(WriteNpy(path, NpyType::kFloat64, {1, 1, 1, 3}, numbers).ok());
  EXPECT_THAT(std::string(LoadTensors(files).status().message()),
              HasSubstr("element 2 is 1e+39, which is too large for fp32"));
}

TEST(TensorFilesTest, BothLayoutsGiveTheSameAxes) {
  TensorFiles files;
  files.q = Counting("q", {2, 3, 4, 5});
  files.k = files.v = Counting("k", {2, 3, 2, 5});
  files.mask = "window:1:2";
  auto loaded = LoadTensors(files);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->problem.ToString(), "b=2,hq=4,hkv=2,sq=3,skv=3,d=5,dtype=fp32,mask=window:1:2");
  EXPECT_EQ(At(loaded->tensors.q, 1, 2, 3, 4), 119);
  EXPECT_EQ(At(loaded->tensors.q, 0, 1, 0, 0), 20);

  files.layout = FileLayout::kBhsd;
  files.q = Counting("q", {2, 4, 3, 5});
  files.k = files.v = Counting("k", {2, 2, 3, 5});
  loaded = LoadTensors(files);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->problem.ToString(), "b=2,hq=4,hkv=2,sq=3,skv=3,d=5,dtype=fp32,mask=window:1:2");
  EXPECT_EQ(At(loaded->tensors.q, 0, 1, 0, 0), 5);
  EXPECT_EQ(At(loaded->tensors.q, 0, 0, 1, 0), 15);
}

TEST(TensorFilesTest, PackedQkvIsOneFile) {
  TensorFiles files;
  files.qkv = Counting("qkv", {2, 4, 2, 4});
  EXPECT_THAT(std::string(LoadTensors(files).status().message()),
              HasSubstr("shape: [2, 4, 2, 4] is not [B, T, 3, H, D]"));
  files.qkv = Counting("qkv", {5, 3, 2, 4});
  EXPECT_FALSE(LoadTensors(files)->has_batch_axis);
  files.qkv = Counting("qkv", {2, 5, 3, 2, 4});
  auto loaded = LoadTensors(files);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->problem.ToString(), "b=2,hq=2,hkv=2,sq=5,skv=5,d=4,dtype=fp32,mask=none");
  EXPECT_EQ(At(loaded->tensors.q, 0, 1, 0, 0), 24);
  EXPECT_EQ(At(loaded->tensors.k, 0, 1, 0, 0), 32);
  EXPECT_EQ(At(loaded->tensors.v, 0, 1, 1, 3), 47);
}

TEST(TensorFilesTest, DtypesAreOneOrSaid) {
  TensorFiles files;
  files.q = Counting("q", {3, 4, 5}, NpyType::kFloat64);
  files.k = files.v = Counting("k", {3, 4, 5}, NpyType::kFloat16);
  EXPECT_THAT(std::string(LoadTensors(files).status().message()),
              HasSubstr("k.npy: expected fp64 elements as in "));
  files.dtype = "bf16";
  auto loaded = LoadTensors(files);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->problem.dtype, DType::kBFloat16);
  EXPECT_EQ(At(loaded->tensors.q, 0, 2, 3, 4), 59);
  files.dtype = "fp8_e4m3";
  EXPECT_EQ(LoadTensors(files).status().message(),
            "--dtype: \"fp8_e4m3\" is not one of fp32, fp16, bf16");
  files.dtype = "";
  files.k = files.v = files.q;
  EXPECT_EQ(LoadTensors(files)->problem.dtype, DType::kFloat32);
}

std::string Lengths32(const std::string& name, const std::vector<int32_t>& lengths) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name, ".npy");
  EXPECT_TRUE(
      WriteNpy(path, NpyType::kInt32, {static_cast<int64_t>(lengths.size())}, lengths.data()).ok());
  return path;
}

TEST(TensorFilesTest, AWrongLengthNamesFlagFileAndEntry) {
  TensorFiles files;
  files.q = files.k = files.v = Counting("q", {2, 4, 1, 5});
  const auto message = [&files] { return std::string(LoadTensors(files).status().message()); };
  files.q_len = Lengths32("q_len", {4, 5});
  EXPECT_EQ(message(),
            absl::StrCat("--q_len: ", files.q_len, ": entry 1 is 5, which is not in 0..4"));
  files.q_len = "";
  files.kv_len = Lengths32("kv_len", {-1, 5});
  EXPECT_THAT(message(), HasSubstr("/kv_len.npy: entry 0 is -1, which is not in 0..4"));
  files.kv_len = Lengths32("kv_len", {1});
  EXPECT_THAT(message(), HasSubstr("/kv_len.npy: has 1 entry, must have 2"));
  files.kv_len = "";
  files.q = files.k = files.v = Counting("q", {4, 1, 5});
  files.cu_seqlens_q = Lengths32("right", {0, 1, 4});
  for (const auto& [offsets, says] : std::vector<std::pair<std::vector<int32_t>, std::string>>{
           {{1, 2, 4}, "entry 0 is 1, not 0"},
           {{0, 3, 2}, "entry 2 is 2, below the 3 before it"},
           {{0, 3, 5}, "entry 2 is 5, and the tensor ends at 4"},
           {{0, 4}, "the number of entries is 2, not 3"}}) {
    files.cu_seqlens_kv = Lengths32("offsets", offsets);
    EXPECT_EQ(message(), absl::StrCat("--cu_seqlens_kv: ", files.cu_seqlens_kv, ": ", says));
  }
}

TEST(TensorFilesTest, LengthsMakePaddedAndPackedProblems) {
  TensorFiles files;
  files.q = files.k = files.v = Counting("q", {2, 4, 1, 5});
  files.kv_len = Counting("len", {2}, NpyType::kInt32);
  auto padded = LoadTensors(files);
  ASSERT_TRUE(padded.ok()) << padded.status();
  EXPECT_EQ(padded->problem.lens, Lengths::kPadded);
  EXPECT_EQ(padded->tensors.kv_len.data[1], 1);
  EXPECT_EQ(padded->tensors.q_len.data, nullptr);

  files.cu_seqlens_q = files.kv_len;
  EXPECT_THAT(std::string(LoadTensors(files).status().message()), HasSubstr("give one kind"));
  files.kv_len = "";
  files.cu_seqlens_kv = files.cu_seqlens_q;
  EXPECT_THAT(std::string(LoadTensors(files).status().message()),
              HasSubstr("batch: expected 1 with --cu_seqlens_q, found 2"));
  files.q = files.k = files.v = Counting("q", {4, 1, 5});
  files.cu_seqlens_q = files.cu_seqlens_kv = Counting("cu", {3}, NpyType::kInt32);
  auto packed = LoadTensors(files);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed->problem.ToString(),
            "b=2,hq=1,hkv=1,sq=1,skv=1,d=5,dtype=fp32,mask=none,lens=packed");
  EXPECT_EQ(packed->tensors.q.shape[1], 4);
  files.cu_seqlens_q = files.cu_seqlens_kv = Counting("cu", {1}, NpyType::kInt32);
  EXPECT_THAT(std::string(LoadTensors(files).status().message()),
              HasSubstr("has fewer than 2 entries"));
}

}  // namespace
}  // namespace attnlab
