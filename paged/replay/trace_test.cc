#include "paged/replay/trace.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::paged {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Request> Parsed(const std::string& csv) {
  const absl::StatusOr<std::vector<Request>> requests = ParseTrace(csv);
  EXPECT_TRUE(requests.ok()) << requests.status();
  return requests.value_or(std::vector<Request>());
}

TEST(ParseTrace, ReadsColumns) {
  const std::vector<Request> r = Parsed(
      "arrival,context,generated,prefix,prefix_tokens\n1.5,10,2,a,8\n0,7,0\n2,5,1,a\n3,9,1,b,0");
  ASSERT_EQ(r.size(), 4u);
  EXPECT_EQ(r[0].arrival, 1.5);
  EXPECT_EQ(r[0].context, 10);
  EXPECT_EQ(r[0].generated, 2);
  EXPECT_EQ(r[0].prefix, 0);
  EXPECT_EQ(r[0].prefix_tokens, 8);
  EXPECT_EQ(r[1].prefix, -1);
  EXPECT_EQ(r[1].prefix_tokens, 0);
  EXPECT_EQ(r[2].prefix, 0);
  EXPECT_EQ(r[2].prefix_tokens, 5);
  EXPECT_EQ(r[3].prefix, 1);
  EXPECT_EQ(r[3].prefix_tokens, 0);
  EXPECT_EQ(Parsed("arrival,context,generated\n0,1,0\n").size(), 1u);
}

TEST(ParseTrace, ReadsWhatSpreadsheetsWrite) {
  const std::vector<Request> r = Parsed(
      "\xEF\xBB\xBF# made by hand\r\n\r\nArrival, Context ,generated,prefix\r\n"
      "\"0.5\",\"12\", 3 ,\"say \"\"hi\"\", then\nwait\"\r\n"
      ",,,\r\n  # a remark, with \" and ,\r\n1,2,3,\"\"\"\",,\r4,5,6,\"\"");
  ASSERT_EQ(r.size(), 3u);
  EXPECT_EQ(r[0].arrival, 0.5);
  EXPECT_EQ(r[0].context, 12);
  EXPECT_EQ(r[0].prefix, 0);
  EXPECT_EQ(r[1].prefix, 1);
  EXPECT_EQ(r[2].arrival, 4);
  EXPECT_EQ(r[2].prefix, -1);
}

TEST(ParseTrace, ErrorsNameLineColumnValueAndLimit) {
  const std::string header = "arrival,context,generated,prefix,prefix_tokens\n";
  const struct {
    std::string csv, message;
  } kCases[] = {
      {"",
       "line 1: the header is \"\", expected \"arrival,context,generated,prefix,prefix_tokens\", "
       "of which the last two may be missing"},
      {"\n\narrival;context;generated\n", "line 3: the header is \"arrival;context;generated\""},
      {"0,1,2\n", "line 1: the header is \"0,1,2\""},
      {header, "there are no requests below the header"},
      {header + "x,1,2", "line 2, arrival: \"x\" is not a number in 0..1e+12"},
      {header + "nan,1,2", "line 2, arrival: \"nan\" is not a number in 0..1e+12"},
      {header + "-1,1,2", "line 2, arrival: \"-1\" is not a number in 0..1e+12"},
      {header + "2e12,1,2", "line 2, arrival: \"2e12\" is not a number in 0..1e+12"},
      {header + "\n# x\n0,0,2", "line 4, context: \"0\" is not an integer in 1..2147483647"},
      {header + "0,1.5,2", "line 2, context: \"1.5\" is not an integer"},
      {header + "0,2147483646,2", "line 2, generated: \"2\" is not an integer in 0..1"},
      {header + "0,1", "line 2, generated: \"\" is not an integer in 0..2147483646"},
      {header + "0,5,1,a,6", "line 2, prefix_tokens: \"6\" is not an integer in 0..5"},
      {header + "0,5,1,,6", "line 2, prefix_tokens: \"6\" has no prefix before it"},
      {header + "0,5,1,a,5,7", "line 2, column 6: \"7\" is beyond the header's 5"},
      {header + "0,5,1,\"a\nb\"\nx,1,1", "line 4, arrival: \"x\""},
      {header + "0,5,1,\"a", "line 2, column 4: a quoted field has no end"},
      {header + "0,\"5\"x,1", "line 2, column 2: expected a comma after the quoted field"},
      {header + "\x01\xFF,5,1", "line 2, arrival: \"\\x01\\xff\" is not a number"},
      {header + std::string(50, '9') + "x,5,1", "\"" + std::string(40, '9') + "…\" is not"},
  };
  for (const auto& c : kCases) {
    const absl::Status s = ParseTrace(c.csv).status();
    EXPECT_TRUE(absl::IsInvalidArgument(s)) << c.message;
    EXPECT_THAT(std::string(s.message()), HasSubstr(c.message));
  }
}

TEST(MakeTokens, AreEqualAsFarAsAPrefixIsShared) {
  std::vector<int32_t> tokens;
  Request r;
  r.prefix = 4;
  r.prefix_tokens = 2;
  MakeTokens(r, 7, 5, &tokens);
  EXPECT_THAT(tokens, ElementsAre(-5, -5, 7, 7, 7));
  MakeTokens(r, 7, 1, &tokens);
  EXPECT_THAT(tokens, ElementsAre(-5));
}

TEST(GenerateTrace, DrawsWhatTheOptionsSay) {
  TraceOptions o;
  o.requests = 20'000;
  o.rate = 50;
  o.context = {100, 200};
  o.generated = {1, 3};
  o.prefixes = 4;
  o.prefix_tokens = 64;
  const std::vector<Request> r = GenerateTrace(o).value();
  ASSERT_EQ(r.size(), 20'000u);
  double context = 0;
  std::vector<int64_t> of_prefix(4), of_generated(4);
  for (size_t i = 0; i < r.size(); ++i) {
    ASSERT_TRUE(Validate(r[i]).ok());
    ASSERT_TRUE(i == 0 || r[i].arrival >= r[i - 1].arrival);
    ASSERT_TRUE(r[i].context >= 100 && r[i].context <= 200);
    ASSERT_EQ(r[i].prefix_tokens, 64);
    context += static_cast<double>(r[i].context);
    ++of_prefix.at(r[i].prefix);
    ++of_generated.at(r[i].generated);
  }
  // All bounds are more than 5 standard deviations wide.
  EXPECT_NEAR(r.back().arrival, 400, 15);
  EXPECT_NEAR(context / 20'000, 150, 1.1);
  for (const int64_t n : of_prefix) EXPECT_NEAR(static_cast<double>(n), 5000, 310);
  EXPECT_EQ(of_generated[0], 0);
  for (int i = 1; i <= 3; ++i) EXPECT_NEAR(static_cast<double>(of_generated[i]), 6667, 340);

  EXPECT_EQ(GenerateTrace(o).value()[999].arrival, r[999].arrival);
  o.seed = 1;
  EXPECT_NE(GenerateTrace(o).value()[999].arrival, r[999].arrival);
}

TEST(GenerateTrace, OptionsOutOfRange) {
  const auto error = [](void (*change)(TraceOptions*)) {
    TraceOptions o;
    change(&o);
    return std::string(GenerateTrace(o).status().message());
  };
  EXPECT_EQ(error([](TraceOptions* o) { o->requests = 0; }), "requests: 0 is not in [1, 10000000]");
  EXPECT_EQ(error([](TraceOptions* o) { o->rate = 0; }), "rate: 0 is not in [0.001, 1e+09]");
  EXPECT_EQ(error([](TraceOptions* o) {
              o->context = {5, 4};
            }),
            "context: 4 is not in [5, 2147483647]");
  EXPECT_EQ(error([](TraceOptions* o) {
              o->generated = {-1, 4};
            }),
            "generated: -1 is not in [0, 2147483647]");
  EXPECT_EQ(error([](TraceOptions* o) { o->prefixes = 1; }),
            "prefixes: 1 and prefix_tokens: 0 go together");
  EXPECT_EQ(error([](TraceOptions* o) { o->prefix_tokens = 513; }),
            "prefix_tokens: 513 is not in [0, 512]");
}

}  // namespace
}  // namespace attnlab::paged
