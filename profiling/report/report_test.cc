#include "profiling/report/report.h"

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/lib/files.h"

namespace attnlab::profiling {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kOpening[] = "<script type=\"application/json\" id=\"profile\">";

int Times(absl::string_view text, absl::string_view part) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, part);
  return static_cast<int>(parts.size()) - 1;
}

std::string File(absl::string_view name) {
  const absl::StatusOr<std::string> content =
      ReadFile(absl::StrCat("profiling/report/", name), int64_t{1} << 24);
  EXPECT_TRUE(content.ok()) << content.status();
  return content.value_or("");
}

// What a browser takes as the element's content: up to the first end of a script.
std::string ContentOf(const std::string& page) {
  const size_t begin = page.find(kOpening) + sizeof(kOpening) - 1;
  const size_t end = page.find("</script", begin);
  EXPECT_NE(end, std::string::npos);
  return page.substr(begin, end - begin);
}

TEST(HtmlReportTest, TemplateHasOnePlaceholder) {
  EXPECT_EQ(Times(File("report.html"), "@PROFILE@"), 1);
}

TEST(HtmlReportTest, IsTheTemplateAroundTheJson) {
  const std::string page = HtmlReport({{"rows", Json::array()}});
  std::string want = File("report.html");
  want.replace(want.find("@PROFILE@"), 9, R"({"rows":[]})");
  EXPECT_EQ(page, want);
}

TEST(HtmlReportTest, PlaceholderInTheJsonStays) {
  const Json profile = {{"chip", "@PROFILE@ $& \\1"}};
  EXPECT_EQ(Json::parse(ContentOf(HtmlReport(profile))), profile);
}

TEST(HtmlReportTest, JsonParsesBackToTheSameValue) {
  for (const char* name : {"testdata/h200.json", "testdata/lengths.json", "testdata/failed.json"}) {
    const Json profile = Json::parse(File(name));
    EXPECT_EQ(Json::parse(ContentOf(HtmlReport(profile))), profile) << name;
  }
}

TEST(HtmlReportTest, NumbersKeepTheirDigits) {
  const Json profile = {{"seconds", 0.00036703900000000005}, {"bytes", int64_t{9007199254740993}}};
  EXPECT_EQ(Json::parse(ContentOf(HtmlReport(profile))), profile);
}

TEST(HtmlReportTest, NoTextEndsTheElement) {
  for (const char* text :
       {"</script><img src=x onerror=alert(1)>", "</SCRIPT >", "<!-- <script>", "<!--", "]]>",
        "-->", "\"}</script>", "\\u003c/script>", "a\u2028b\u2029c", "<script>"}) {
    const Json profile = {{"rows", {{{"kernel", text}, {text, 1}}}}};
    const std::string page = HtmlReport(profile);
    const std::string content = ContentOf(page);
    EXPECT_EQ(Json::parse(content), profile) << text;
    EXPECT_THAT(content, Not(HasSubstr("<"))) << text;
    // As many elements as in a page without text.
    EXPECT_EQ(Times(page, "<script"), Times(HtmlReport({}), "<script")) << text;
    EXPECT_EQ(Times(page, "</script"), Times(HtmlReport({}), "</script")) << text;
  }
}

TEST(HtmlReportTest, WhatIsNotUtf8IsReplaced) {
  const Json profile = {{"chip", "GH\xff\xc3("}};
  EXPECT_EQ(Json::parse(ContentOf(HtmlReport(profile)))["chip"], "GH\ufffd\ufffd(");
}

TEST(HtmlReportTest, TakesAnyValue) {
  for (const Json& profile : {Json(), Json(1), Json("text"), Json::array(), Json::object()}) {
    EXPECT_EQ(Json::parse(ContentOf(HtmlReport(profile))), profile);
  }
}

// The page fetches nothing. The only address is the SVG namespace, which browsers do not open.
TEST(HtmlReportTest, NamesNoAddress) {
  std::string page = HtmlReport(Json::parse(File("testdata/h200.json")));
  constexpr absl::string_view kSvg = "\"http://www.w3.org/2000/svg\"";
  EXPECT_EQ(Times(page, kSvg), 1);
  page.erase(page.find(kSvg.data()), kSvg.size());
  for (const char* fetched : {"http:", "https:", "//cdn", "@import", "url(", "fetch(", "import(",
                              "XMLHttpRequest", "WebSocket", "<script src", "<img", "<iframe"}) {
    EXPECT_THAT(page, Not(HasSubstr(fetched)));
  }
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, StartsWith("<!DOCTYPE html>"));
}

}  // namespace
}  // namespace attnlab::profiling
