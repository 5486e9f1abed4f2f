#include "profiling/report/report_file.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "profiling/report/report.h"
#include "tools/lib/files.h"

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
      {"rows", "is not JSON: line 1, column 1, in `rows`"},
      {"{\n  \"seconds\": NaN\n}", "is not JSON: line 2, column 14, in `{   \"seconds\": NaN }`"},
      {"\n[1,,2]", "is not JSON: line 2, column 4"},
      {"\"\xe9t\xe9\"", "is not JSON: line 1, column 3, in `\"\\xe9t"},
      {"{} {}", "is not JSON: line 1, column 4"},
      {"", "is empty"},
      {" \n\n", "is empty"},
      {R"({"command": "profile", "rows": [{"problem": "b=1,)", "ends early, after byte 49"},
      {R"({"command": "profile", "rows": [{)", "ends early, after byte 33"},
      {R"({"command": "profile", "rows": nul)", "ends early, after byte 34"},
      {"[]", "is not a profile: it has no \"command\": \"profile\""},
      {"{\"rows\": [{}]}", "is not a profile"},
      {R"({"command": "bench", "rows": [{}]})", "is from `attnlab bench`, not a profile"},
      {R"({"command": 7, "rows": [{}]})", "is not a profile"},
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

TEST(ReportFileTest, ARowThatIsNoneIsNamedWithItsField) {
  const struct {
    const char *rows, *says;
  } kCases[] = {
      {R"(["x", 1, null])", "row 1 of 3: is string, not an object"},
      {R"([null])", "row 1 of 1: is null, not an object"},
      {R"([{}])", "row 1 of 1: \"problem\" is missing, not a string"},
      {R"([{"problem": "b=1"}])", "\"kernel\" is missing, not a string"},
      {R"([{"problem": 7, "kernel": "fa2"}])", "\"problem\" is number, not a string"},
      {R"([{"problem": "b=1", "kernel": ""}])", "\"kernel\" is an empty string"},
      {R"([{"problem": "b=1", "kernel": "fa2"}, {"problem": "b=1", "kernel": "fa2", "seconds": "1"}])",
       "row 2 of 2: \"seconds\" is string, not a number or null"},
      {R"([{"problem": "b=1", "kernel": "fa2", "l2_decides": "yes"}])",
       "\"l2_decides\" is string, not true, false or null"},
      {R"([{"problem": "b=1", "kernel": "fa2", "config": 7}])",
       "\"config\" is number, not a string"},
      {R"([{"problem": "b=1", "kernel": "fa2", "launches": {}}])",
       "\"launches\" is object, not an array"},
      {R"([{"problem": "b=1", "kernel": "fa2", "counted": []}])",
       "\"counted\" is array, not an object"},
      {R"([{"problem": "b=1", "kernel": "fa2", "counted": {"cycles": "many"}}])",
       "\"counted\": \"cycles\" is string, not a number or null"},
  };
  for (const auto& c : kCases) {
    const std::string path =
        Written("rows.json", absl::StrCat(R"({"command": "profile", "rows": )", c.rows, "}"));
    const absl::Status s = ReadProfile(path).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << c.rows;
    EXPECT_THAT(std::string(s.message()), HasSubstr(c.says));
  }
  const std::string path =
      Written("nulls.json", R"({"command": "profile", "rows": [{"problem": "b=1", "kernel": "fa2",
        "config": null, "seconds": null, "counted": {"cycles": null}, "launches": null}]})");
  EXPECT_TRUE(ReadProfile(path).ok()) << ReadProfile(path).status();
}

TEST(ReportFileTest, AFileThatCannotBeWrittenIsAnError) {
  EXPECT_TRUE(absl::IsNotFound(WriteHtmlReport({}, "/no/such/page.html")));
}

}  // namespace
}  // namespace attnlab::profiling
