#include "tools/command/profile_flags.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/lib/arguments.h"

namespace attnlab::command {
namespace {

using ::testing::HasSubstr;

absl::Status Check(const std::vector<std::string>& arguments) {
  ProfileFlags flags;
  ArgumentParser parser = MakeProfileParser(&flags);
  const absl::Status s = parser.Parse(arguments);
  return s.ok() ? CheckTogether(parser, flags) : s;
}

TEST(ProfileFlagsTest, FlagsThatGoTogether) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"--problem=gpt2", "--set=l2", "--metric=m", "--html=f", "--json", "--seed=1"},
           {"--list_metrics"},
           {"--list_metrics=false", "--problem=gpt2"},
           {"--list_metrics", "--device=cuda:1", "--set=l2", "--metric=m", "--json"},
           {"--list_metrics", "--chip=GH100", "--match=dram"},
           {"--gpus=2", "--problem=gpt2", "--parallel=ring", "--trace=f", "--seed=1"},
           {"--from=in.json", "--html=out.html"}}) {
    EXPECT_TRUE(Check(arguments).ok()) << arguments[0] << ": " << Check(arguments);
  }
}

TEST(ProfileFlagsTest, FlagsThatDoNotAreNamed) {
  const struct {
    std::vector<std::string> arguments;
    const char* says;
  } kCases[] = {
      {{"--chip=GH100", "--problem=gpt2"}, "--chip goes with --list_metrics alone"},
      {{"--match=dram", "--problem=gpt2"}, "--match goes with --list_metrics alone"},
      {{"--list_metrics", "--problem=gpt2"}, "--problem does not go with --list_metrics"},
      {{"--list_metrics", "--json=f"}, "--json=FILE does not go with --list_metrics"},
      {{"--list_metrics", "--html=f"}, "--html does not go with --list_metrics"},
      {{"--list_metrics", "--ceilings=none"}, "--ceilings does not go with --list_metrics"},
      {{"--list_metrics", "--seed=0"}, "--seed does not go with --list_metrics"},
      {{"--list_metrics", "--chip=GH100", "--device=cuda:0"}, "--chip does not go with --device"},
      {{"--list_metrics", "--match=dram", "--set=l2"}, "--set does not go with --match"},
      {{"--list_metrics", "--match=dram", "--metric=m"}, "--metric does not go with --match"},
      {{"--problem=gpt2", "--metric=m", "--metric=m"}, "--metric: m is given twice"},
      {{"--problem=gpt2", "--trace=f"}, "--trace goes with --gpus alone"},
      {{"--gpus=2", "--problem=gpt2", "--set=l2"}, "--set does not go with --gpus"},
      {{"--list_metrics", "--gpus=2"}, "--gpus does not go with --list_metrics"},
      {{"--from=in.json"}, "--from: --html=FILE says what to make of it"},
      {{"--problem=gpt2", "--html=-"}, "--html: - is no name of a file"},
      {{"--from=in.json", "--html=-"}, "--html: - is no name of a file"},
      {{"--from=in.json", "--html=f", "--json"}, "--json does not go with --from"},
      {{"--from=in.json", "--html=f", "--kernel=fa2"}, "--kernel does not go with --from"},
      {{"--from=in.json", "--html=f", "--list_metrics"}, "--list_metrics does not go with --from"},
  };
  for (const auto& c : kCases) {
    const absl::Status s = Check(c.arguments);
    EXPECT_TRUE(absl::IsInvalidArgument(s)) << c.says;
    EXPECT_THAT(std::string(s.message()), HasSubstr(c.says));
  }
}

TEST(ProfileFlagsTest, AReportDoesNotReplaceItsProfile) {
  ProfileFlags flags;
  flags.from = flags.html = testing::TempDir() + "/profile.json";
  const absl::Status s = WriteReportOfFile(flags);
  EXPECT_TRUE(absl::IsInvalidArgument(s));
  EXPECT_THAT(std::string(s.message()), HasSubstr("is the file of --from"));
}

TEST(ProfileFlagsTest, ErrorsBeginWithTheFlag) {
  EXPECT_TRUE(OfFlag(absl::OkStatus(), "--html").ok());
  EXPECT_EQ(OfFlag(absl::NotFoundError("no file"), "--html"),
            absl::NotFoundError("--html: no file"));
  EXPECT_EQ(OfFlag(absl::NotFoundError("device: there is none"), "--device"),
            absl::NotFoundError("--device: there is none"));
  EXPECT_EQ(OfFlag(absl::NotFoundError("--device: there is none"), "--device"),
            absl::NotFoundError("--device: there is none"));
}

}  // namespace
}  // namespace attnlab::command
