#include "tools/lib/json.h"

#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

TEST(JsonTest, TextThatIsNotUtf8IsPrinted) {
  EXPECT_EQ(Dump({{"a", "\xff"}}), "{\n  \"a\": \"\xef\xbf\xbd\"\n}\n");
}

TEST(JsonTest, AFileIsWrittenWhole) {
  EXPECT_TRUE(JsonFile::Create("")->Write({1}).ok());
  const std::string path = absl::StrCat(testing::TempDir(), "/results.json");
  ASSERT_TRUE(WriteFile(path, "before").ok());
  absl::StatusOr<JsonFile> file = JsonFile::Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*ReadFile(path, 100), "before");
  ASSERT_TRUE(file->Write({1, 2}).ok());
  EXPECT_EQ(*ReadFile(path, 100), "[\n  1,\n  2\n]\n");
  EXPECT_THAT(std::string(JsonFile::Create("/no/such/file").status().message()),
              testing::HasSubstr("--json: /no/such/file: cannot create"));
}

}  // namespace
}  // namespace attnlab
