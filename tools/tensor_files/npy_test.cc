#include "tools/tensor_files/npy.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/lib/files.h"

namespace attnlab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A file with this header text, right or wrong, and `data_bytes` zero bytes of elements.
std::string File(absl::string_view header, size_t data_bytes, char major = 1) {
  std::string file = "\x93NUMPY";
  file += {major, 0};
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) {
    file += static_cast<char>((header.size() >> (8 * i)) & 0xFF);
  }
  return absl::StrCat(file, header, std::string(data_bytes, '\0'));
}

std::string Dict(absl::string_view descr, absl::string_view order, absl::string_view shape) {
  return absl::StrCat("{'descr': ", descr, ", 'fortran_order': ", order, ", 'shape': ", shape,
                      ", }\n");
}

std::string TempPath(absl::string_view name) { return absl::StrCat(testing::TempDir(), "/", name); }

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(NpyTest, EveryTypeIsReadAsItIsWritten) {
  for (NpyType type : kAllNpyTypes) {
    const std::string preamble = NpyPreamble(type, {3, 2});
    const auto header = ParseNpyHeader("x", preamble);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->type, type);
    EXPECT_NE(preamble.find(absl::StrCat("'", Descr(type), "'")), std::string::npos) << preamble;
    EXPECT_EQ(header->NumBytes(), 6 * SizeOf(type));
  }
}

TEST(NpyTest, ReadsEveryVersion) {
  for (char major : {1, 2, 3}) {
    const auto array = ParseNpy("a.npy", File(Dict("'<f4'", "False", "(2, 3)"), 24, major));
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->header.type, NpyType::kFloat32);
    EXPECT_THAT(array->header.shape, ElementsAre(2, 3));
    EXPECT_EQ(array->data.bytes(), 24);
  }
}

TEST(NpyTest, ReadsEveryType) {
  const struct {
    absl::string_view descr;
    NpyType type;
  } kCases[] = {{"'<f2'", NpyType::kFloat16},  {"'<f4'", NpyType::kFloat32},
                {"'<f8'", NpyType::kFloat64},  {"'<V2'", NpyType::kBFloat16},
                {"'|V2'", NpyType::kBFloat16}, {"'<i4'", NpyType::kInt32},
                {"'<i8'", NpyType::kInt64},    {"\"<f4\"", NpyType::kFloat32}};
  for (const auto& c : kCases) {
    const auto array = ParseNpy("a", File(Dict(c.descr, "False", "(5,)"), 5 * SizeOf(c.type)));
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->header.type, c.type);
    EXPECT_THAT(array->header.shape, ElementsAre(5));
  }
}

TEST(NpyTest, ReadsKeysInAnyOrderAndAnySpacing) {
  const auto header = ParseNpyHeader(
      "a", File("{\"shape\":( 4 , 2 ),'fortran_order' : False,'descr':'<f8'}   \n", 64));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(header->shape, ElementsAre(4, 2));
  EXPECT_EQ(header->NumBytes(), 64);
}

TEST(NpyTest, ReadsScalarsAndEmptyArrays) {
  const auto scalar = ParseNpy("a", File(Dict("'<f4'", "False", "()"), 4));
  ASSERT_TRUE(scalar.ok()) << scalar.status();
  EXPECT_THAT(scalar->header.shape, IsEmpty());
  EXPECT_EQ(scalar->header.NumElements(), 1);
  const auto empty = ParseNpy("a", File(Dict("'<f4'", "False", "(0, 9223372036854775807)"), 0));
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->header.NumElements(), 0);
}

TEST(NpyTest, RejectsWithAMessage) {
  const std::string good = File(Dict("'<f4'", "False", "(2, 3)"), 24);
  const auto f4 = [](absl::string_view shape) { return File(Dict("'<f4'", "False", shape), 24); };
  const auto descr = [](absl::string_view d) { return File(Dict(d, "False", "(6,)"), 24); };
  std::string axes = "(";
  for (int i = 0; i < 65; ++i) axes += "1,";
  const struct {
    std::string bytes, message;
  } kCases[] = {
      {"", "is empty, not a .npy file"},
      {"PK\x03\x04 an archive", "is a zip archive, such as a .npz; numpy.save("},
      {"\x01 hello", "is not a .npy file: it begins with '\\x01 hell', not '\\x93NUMPY'"},
      {good.substr(0, 7), "is cut short in the version"},
      {good.substr(0, 9), "is cut short in the header length"},
      {good.substr(0, 30), "is cut short in the header: 20 of"},
      {good.substr(0, good.size() - 1), "is cut short: "},
      {good + "x", "is too long: expected "},
      {File("{}", 0, 4), "version: 4.0 is not 1.0, 2.0 or 3.0"},
      {File("{}", 0, 0), "version: 0.0 is not"},
      {File(std::string(70000, ' '), 0, 2), "header length: 70000 is above 65535"},
      {std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{", 13), "header length: 4294967295 is above"},
      {descr("'>f4'"), "descr: '>f4' is big endian; numpy: "},
      {descr("'<c8'"), "descr: '<c8' is not one of '<f2', '<f4', "},
      {descr("'|O'"), "descr: '|O' is not one of"},
      {descr("'<U\x01'"), "descr: '<U\\x01' is not one of"},
      {descr("[('x', '<f4')]"), "descr: is a structured type"},
      {descr("4"), "header: the value of 'descr' is not a string"},
      {File(Dict("'<f4'", "True", "(2, 3)"), 24), "fortran_order: True is not supported; numpy."},
      {File(Dict("'<f4'", "Maybe", "(2, 3)"), 24), "'fortran_order' is neither True nor False"},
      {f4("(2, 4)"), "is cut short: "},
      {f4("(2, 2)"), "is too long: expected "},
      {f4("(6)"), "shape: no ',' behind the one extent"},
      {f4("(-2, 3)"), "shape: expected an extent, ',' or ')', found '-2, 3), }\\n'"},
      {f4("(2 3)"), "or ')', found '3), }\\n'"},
      {f4("(2, 3"), "or ')', found '}\\n'"},
      {f4("[2, 3]"), "header: the value of 'shape' does not begin with '('"},
      {f4("(9223372036854775808,)"), "shape: the extent 9223372036854775808 is above 2^63 - 1"},
      {f4("(4294967296, 4294967296)"),
       "shape: (4294967296, 4294967296) elements of 4 bytes exceed"},
      {f4(axes + ")"), "shape: has more than 64 axes"},
      {File("[]", 24), "header: does not begin with '{'"},
      {File("{1: 2}", 24), "header: a key is not a string"},
      {File("{'descr' '<f4'}", 24), "header: no ':' behind the key 'descr'"},
      {File("{'descr': '<f4' 'shape': ()}", 24), "header: no ',' or '}' behind a value"},
      {File("{'dtype': '<f4'}", 24), "header: unknown key 'dtype'"},
      {File("{'descr': '<f4', 'descr': '<f4'}", 24), "header: the key 'descr' is there twice"},
      {File("{'descr': '<f4', 'shape': (6,)}", 24), "header: has no key 'fortran_order'"},
      {File("{'descr': '<f4', 'fortran_order': False}", 24), "header: has no key 'shape'"},
      {File("{'fortran_order': False, 'shape': ()}", 24), "header: has no key 'descr'"},
      {File("{'descr': '<f4", 24), "header: the value of 'descr' is not a string"},
      {File(Dict("'<f4'", "False", "(6,)") + "x", 24), "header: goes on behind '}' with 'x'"},
  };
  for (const auto& c : kCases) {
    const auto array = ParseNpy("dir/a.npy", c.bytes);
    EXPECT_EQ(array.status().code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(array.status().message()), StartsWith("dir/a.npy: "));
    EXPECT_THAT(std::string(array.status().message()), HasSubstr(c.message));
  }
}

TEST(NpyTest, EveryPrefixIsAnErrorAndNothingElse) {
  const std::string good = File(Dict("'<f4'", "False", "(2, 3)"), 24);
  for (size_t n = 0; n < good.size(); ++n) {
    EXPECT_EQ(ParseNpy("a", good.substr(0, n)).status().code(), absl::StatusCode::kInvalidArgument)
        << n;
  }
}

TEST(NpyTest, WrittenFilesReadBackAndAreAlignedAsNumPyDoes) {
  const std::string path = TempPath("a b.npy");
  const std::vector<float> values = {1, -2, 3.5f, 0, 1e-30f, 7};
  const std::vector<std::vector<int64_t>> shapes = {{6}, {2, 3}, {1, 2, 1, 3}};
  for (const std::vector<int64_t>& shape : shapes) {
    ASSERT_TRUE(WriteNpy(path, NpyType::kFloat32, shape, values.data()).ok());
    const auto array = ReadNpy(path);
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->header.shape, shape);
    EXPECT_EQ(array->header.data_offset % 64, 0);
    EXPECT_EQ(std::memcmp(array->data.data(), values.data(), 24), 0);
    EXPECT_EQ(LoadAsDouble(*array, 2), 3.5);
  }
  ASSERT_TRUE(WriteNpy(path, NpyType::kFloat32, {}, values.data()).ok());
  EXPECT_EQ(ReadNpy(path)->header.NumElements(), 1);
}

TEST(NpyTest, ThePreambleIsNumPysOwn) {
  // numpy.save(file, numpy.zeros((2, 3), ml_dtypes.bfloat16)), byte for byte.
  const std::string header = "{'descr': '<V2', 'fortran_order': False, 'shape': (2, 3), }";
  const std::string wanted = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header +
                             std::string(128 - 10 - header.size() - 1, ' ') + "\n";
  EXPECT_EQ(NpyPreamble(NpyType::kBFloat16, {2, 3}), wanted);
}

TEST(NpyTest, LoadAsDoubleKnowsEveryType) {
  const auto load = [](NpyType type, const void* value) {
    std::string file = NpyPreamble(type, {1});
    file.append(static_cast<const char*>(value), SizeOf(type));
    auto array = ParseNpy("a", file);
    return array.ok() ? LoadAsDouble(*array, 0) : std::nan("");
  };
  const Float16 half(1.5f);
  const BFloat16 brain(-2.5f);
  const double wide = 1e-300;
  const int32_t i4 = -7;
  const int64_t i8 = int64_t{1} << 40;
  EXPECT_EQ(load(NpyType::kFloat16, &half), 1.5);
  EXPECT_EQ(load(NpyType::kBFloat16, &brain), -2.5);
  EXPECT_EQ(load(NpyType::kFloat64, &wide), 1e-300);
  EXPECT_EQ(load(NpyType::kInt32, &i4), -7);
  EXPECT_EQ(load(NpyType::kInt64, &i8), 1099511627776.0);
}

TEST(NpyTest, FilesThatCannotBeRead) {
  EXPECT_EQ(ReadNpy(TempPath("none.npy")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadNpy(testing::TempDir()).status().message()),
              HasSubstr("is a directory"));
  EXPECT_THAT(std::string(ReadNpy("/dev/null").status().message()),
              HasSubstr("is not a regular file"));
  const std::string fifo = TempPath("fifo.npy");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0666), 0);
  EXPECT_THAT(std::string(ReadNpy(fifo).status().message()), HasSubstr("is not a regular file"));
  unlink(fifo.c_str());
}

TEST(NpyTest, AFileThatPromisesMoreThanItHasTakesNoMemory) {
  const std::string path = TempPath("huge.npy");
  WriteBytes(path, File(Dict("'<f4'", "False", "(1099511627776, 64)"), 16));
  EXPECT_THAT(std::string(ReadNpy(path).status().message()), HasSubstr("is cut short: "));
}

TEST(NpyTest, AFailedWriteLeavesTheOldFile) {
  const std::string path = TempPath("kept.npy");
  const float value = 1;
  ASSERT_TRUE(WriteNpy(path, NpyType::kFloat32, {1}, &value).ok());
  EXPECT_EQ(WriteNpy(path, NpyType::kFloat32, {-1}, &value).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteNpy(path, NpyType::kFloat32, {int64_t{1} << 40, int64_t{1} << 40}, &value).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ReadNpy(path).ok());
}

}  // namespace
}  // namespace attnlab
