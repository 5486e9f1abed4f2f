#include "profiling/report/report_file.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "profiling/report/report.h"
#include "tools/files.h"

namespace attnlab::profiling {
namespace {

using ::testing::HasSubstr;

std::string Written(absl::string_view name, absl::string_view text) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
  EXPECT_TRUE(file.ok() && file->Append(text.data(), static_cast<int64_t>(text.size())).ok() &&
              file->Commit().ok());
  return path;
}

TEST(ReportFileTest, WritesThePageOfAProfile) {
  const auto profile = ReadProfile("profiling/report/testdata/h200.json");
  ASSERT_TRUE(profile.ok()) << profile.status();
  const std::string path = absl::StrCat(testing::TempDir(), "/page.html");
  ASSERT_TRUE(WriteHtmlReport(*profile, path).ok());
  EXPECT_EQ(*ReadFile(path, int64_t{1} << 24), HtmlReport(*profile));
}

TEST(ReportFileTest, WhatIsNoProfileSaysWhatItIs) {
  const struct {
    const char *text, *says;
  } kCases[] = {
      {"rows", "is not JSON"},
      {"", "is not JSON"},
      {"[]", "is no profile: it has no \"command\": \"profile\""},
      {"{\"rows\": [{}]}", "is no profile"},
      {R"({"command": "bench", "rows": [{}]})", "is of `attnlab bench`, not a profile"},
      {R"({"command": 7, "rows": [{}]})", "is no profile"},
      {R"({"command": "profile"})", "has no rows"},
      {R"({"command": "profile", "rows": []})", "has no rows"},
      {R"({"command": "profile", "rows": {}})", "has no rows"},
  };
  for (const auto& c : kCases) {
    const std::string path = Written("in.json", c.text);
    const absl::Status s = ReadProfile(path).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(std::string(s.message()), HasSubstr(c.says));
    EXPECT_THAT(std::string(s.message()), HasSubstr(path));
  }
  EXPECT_TRUE(absl::IsNotFound(ReadProfile("/no/such.json").status()));
}

TEST(ReportFileTest, AFileThatCannotBeWrittenIsAnError) {
  EXPECT_TRUE(absl::IsNotFound(WriteHtmlReport({}, "/no/such/page.html")));
}

}  // namespace
}  // namespace attnlab::profiling
