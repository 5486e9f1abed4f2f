#include "tools/lib/arguments.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Values {
  bool json = false;
  std::string kernel = "cpu", csv;
  std::vector<std::string> problems;
  int64_t seed = 1;
  double scale = 0;
};

ArgumentParser MakeParser(Values* v) {
  ArgumentParser parser("tool run", "Runs.");
  parser.AddGroup("Input");
  parser.AddBool("json", &v->json, "Print JSON.");
  parser.AddOptional("csv", "FILE", &v->csv, "-", "Print CSV.");
  parser.AddString("kernel", "NAME", &v->kernel, "Which kernel.");
  parser.AddStrings("problem", "LINE", &v->problems, "Problems.");
  parser.AddGroup("Numbers");
  parser.AddInteger("cu_seqlens", "N", &v->seed, 0, 100, "Seed.");
  parser.AddNumber("scale", "X", &v->scale, 0, 10, "Scale.");
  parser.AddSection("Examples", "tool run --json\n\nand more");
  return parser;
}

absl::Status Parse(const std::vector<std::string>& arguments, Values* v) {
  ArgumentParser parser = MakeParser(v);
  return parser.Parse(arguments);
}

TEST(ArgumentsTest, EverySpelling) {
  Values v;
  ASSERT_TRUE(Parse({"--json", "--kernel", "ref", "--problem=a=1,b=2", "--problem", "c=3",
                     "--cu-seqlens=7", "--scale=0.5"},
                    &v)
                  .ok());
  EXPECT_TRUE(v.json);
  EXPECT_EQ(v.kernel, "ref");
  EXPECT_THAT(v.problems, ElementsAre("a=1,b=2", "c=3"));
  EXPECT_EQ(v.seed, 7);
  EXPECT_EQ(v.scale, 0.5);
}

TEST(ArgumentsTest, DefaultsStayAndBoolsCanBeFalse) {
  Values v;
  v.json = true;
  ASSERT_TRUE(Parse({"--json=false"}, &v).ok());
  EXPECT_FALSE(v.json);
  EXPECT_EQ(v.kernel, "cpu");
}

TEST(ArgumentsTest, NoNegatesWhatNeedsNoValue) {
  Values v;
  v.json = true;
  v.csv = "-";
  ASSERT_TRUE(Parse({"--no-json", "--no_csv"}, &v).ok());
  EXPECT_FALSE(v.json);
  EXPECT_EQ(v.csv, "");
}

TEST(ArgumentsTest, AnOptionalValueFollowsAnEqualsSignAlone) {
  for (const auto& [argument, value] :
       {std::pair{"--csv", "-"}, {"--csv=true", "-"}, {"--csv=false", ""}, {"--csv=a b", "a b"}}) {
    Values v;
    ASSERT_TRUE(Parse({argument, "--json"}, &v).ok()) << argument;
    EXPECT_EQ(v.csv, value);
  }
  Values v;
  EXPECT_EQ(Parse({"--csv", "a.csv"}, &v).message(),
            "unexpected argument \"a.csv\"; flags begin with --");
}

TEST(ArgumentsTest, DashesAndUnderscoresAreTheSame) {
  for (const char* spelling : {"--cu_long-name=7", "--cu-long_name=7", "--cu-long-name=7"}) {
    int64_t value = 0;
    ArgumentParser parser("tool", "Does.");
    parser.AddInteger("cu_long_name", "N", &value, 0, 9, "N.");
    EXPECT_TRUE(parser.Parse({spelling}).ok()) << spelling;
    EXPECT_EQ(value, 7);
  }
}

TEST(ArgumentsTest, AValueBehindAnEqualsSignMayLookLikeAFlag) {
  Values v;
  ASSERT_TRUE(Parse({"--kernel=--json"}, &v).ok());
  EXPECT_EQ(v.kernel, "--json");
  EXPECT_FALSE(v.json);
}

TEST(ArgumentsTest, TheFirstErrorIsReported) {
  const std::vector<std::string> wrong = {"--nonsense", "--scale=x", "--kernel=", "word",
                                          "--json=maybe"};
  for (const std::string& first : wrong) {
    Values v, both;
    const absl::Status s = Parse({first}, &v);
    for (const std::string& second : wrong) {
      EXPECT_EQ(Parse({first, second}, &both), s) << first << " " << second;
    }
  }
}

TEST(ArgumentsTest, ANegativeNumberIsAValue) {
  Values v;
  EXPECT_THAT(std::string(Parse({"--cu_seqlens", "-1"}, &v).message()),
              HasSubstr("--cu_seqlens: \"-1\" is not an integer in 0..100"));
}

TEST(ArgumentsTest, ErrorsNameFlagAndValue) {
  const struct {
    std::vector<std::string> arguments;
    std::string message;
  } kCases[] = {
      {{"--kernal=x"}, "unknown flag --kernal; did you mean --kernel?"},
      {{"--frobnicate"}, "unknown flag --frobnicate"},
      {{"--kernel"}, "--kernel needs a value: --kernel=NAME"},
      {{"--kernel", "--json"}, "--kernel needs a value"},
      {{"--kernel="}, "--kernel: the value is empty"},
      {{"--kernel", ""}, "--kernel: the value is empty"},
      {{"--kernel=a", "--kernel=b"}, "--kernel is given twice"},
      {{"--json=maybe"}, "--json: \"maybe\" is neither true nor false"},
      {{"--json="}, "--json: the value is empty"},
      {{"--cu_seqlens=x"}, "--cu_seqlens: \"x\" is not an integer in 0..100"},
      {{"--cu_seqlens=101"}, "is not an integer in 0..100"},
      {{"--scale=nan"}, "--scale: \"nan\" is not a number in 0..10"},
      {{"--scale=1e9"}, "is not a number in 0..10"},
      {{"--scale=1e-400"}, "--scale: \"1e-400\" is too small: a double would be 0"},
      {{"--scale=1e400"}, "--scale: \"1e400\" is too large: a double would be infinite"},
      {{"--no-kernel"}, "unknown flag --no-kernel"},
      {{"--noxjson"}, "unknown flag --noxjson"},
      {{"--no-json=true"}, "--no-json takes no value"},
      {{"--help=x"}, "--help takes no value"},
      {{"--jso"}, "unknown flag --jso; did you mean --json?"},
      {{"q.npy"}, "unexpected argument \"q.npy\"; flags begin with --"},
      {{"-json"}, "unexpected argument \"-json\""},
      {{"--"}, "unexpected argument \"--\""},
      {{""}, "unexpected argument \"\""},
  };
  for (const auto& c : kCases) {
    Values v;
    const absl::Status s = Parse(c.arguments, &v);
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(s.message()), HasSubstr(c.message));
  }
}

TEST(ArgumentsTest, HelpIsForThoseWithoutErrors) {
  Values v;
  ArgumentParser parser = MakeParser(&v);
  ASSERT_TRUE(parser.Parse({"--json", "-h"}).ok());
  EXPECT_TRUE(parser.help_wanted());
  EXPECT_TRUE(parser.Given("json"));
  EXPECT_FALSE(parser.Given("kernel"));
  for (const auto& words :
       {std::vector<std::string>{"--nonsense", "--help"}, {"-h", "--nonsense"}}) {
    EXPECT_EQ(Parse(words, &v).message(), "unknown flag --nonsense");
  }
}

TEST(ArgumentsTest, HelpShowsEverything) {
  Values v;
  const std::string help = MakeParser(&v).Help();
  EXPECT_EQ(help,
            "Runs.\n\nUsage: tool run [flags]\n"
            "\nInput:\n"
            "  --json                    Print JSON.\n"
            "  --csv[=FILE]              Print CSV.\n"
            "  --kernel=NAME             Which kernel.\n"
            "  --problem=LINE            Problems.\n"
            "\nNumbers:\n"
            "  --cu_seqlens=N            Seed.\n"
            "  --scale=X                 Scale.\n"
            "\nExamples:\n"
            "  tool run --json\n\n  and more\n");
}

TEST(ArgumentsTest, PositionalArgumentsWhereTheyAreTaken) {
  std::vector<std::string> files;
  bool json = false;
  ArgumentParser parser("tool", "Does.");
  parser.AddPositional("[FILE ...]", &files);
  parser.AddBool("json", &json, "Print JSON.");
  ASSERT_TRUE(parser.Parse({"a", "--json", "b=1"}).ok());
  EXPECT_TRUE(json);
  EXPECT_THAT(files, ElementsAre("a", "b=1"));
  EXPECT_THAT(parser.Help(), HasSubstr("Usage: tool [flags] [FILE ...]\n"));
  EXPECT_THAT(std::string(parser.Parse({"--jsn", "c"}).message()),
              HasSubstr("unknown flag --jsn; did you mean --json?"));
}

}  // namespace
}  // namespace attnlab
