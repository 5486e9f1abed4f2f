// What the program does without a GPU.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/lib/process.h"

namespace attnlab {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ProcessResult Microbench(const std::vector<std::string>& arguments) {
  return RunProcess(Runfile("profiling/microbench/microbench"), arguments);
}

TEST(MicrobenchTest, HelpHasLessonsAndExitCodes) {
  for (const char* flag : {"--help", "-h"}) {
    const ProcessResult r = Microbench({flag});
    EXPECT_EQ(r.exit_code, 0);
    EXPECT_THAT(r.out, AllOf(HasSubstr("--json=FILE"), HasSubstr("coalescing "),
                             HasSubstr("Exit codes"), HasSubstr("130")));
    EXPECT_THAT(r.err, IsEmpty());
  }
}

TEST(MicrobenchTest, BadArgumentsAreNamed) {
  const struct {
    std::vector<std::string> arguments;
    const char* says;
  } kCases[] = {
      {{"coalesing"}, "there is no lesson \"coalesing\"; did you mean coalescing?"},
      {{"--jsn=f"}, "unknown flag --jsn; did you mean --json?"},
      {{"--json", "/no/such/file.json"}, "--json: /no/such/file.json: cannot create"},
      {{"--json=/no/such/file.json", "coalescing"}, "--json: /no/such/file.json: cannot create"},
  };
  for (const auto& c : kCases) {
    const ProcessResult r = Microbench(c.arguments);
    EXPECT_EQ(r.exit_code, 2) << c.says;
    EXPECT_THAT(r.err, HasSubstr(c.says));
    EXPECT_THAT(r.out, IsEmpty());
  }
}

TEST(MicrobenchTest, WithoutAGpuItSaysSoAndReplacesNothing) {
  const std::string path = testing::TempDir() + "/microbench.json";
  std::ofstream(path) << "before";
  ProcessOptions options;
  options.environment["CUDA_VISIBLE_DEVICES"] = "";
  const ProcessResult r = RunProcess(Runfile("profiling/microbench/microbench"),
                                     {"--json", path, "coalescing"}, options);
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_THAT(r.err, HasSubstr("looking for GPUs"));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "before");
}

}  // namespace
}  // namespace attnlab
