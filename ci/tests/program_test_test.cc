// A program under program_test() gets what a cc_test gets (arguments, environment, data, shards),
// and is built for the architectures that the test names.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace {

std::vector<std::string>* arguments = new std::vector<std::string>;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "(not set)" : value;
}

std::string Line(const std::string& path) {
  std::ifstream file(path);
  std::string line = "(no file " + path + ")";
  std::getline(file, line);
  return line;
}

TEST(ProgramTest, Arguments) {
  ASSERT_EQ(arguments->size(), 3);
  EXPECT_EQ(arguments->at(1), "two words");
  EXPECT_EQ(arguments->at(2), "ci/tests/archs");
}

TEST(ProgramTest, Environment) {
  EXPECT_EQ(Variable("PLAIN"), "a b");
  EXPECT_EQ(Variable("WHERE"), "ci/tests/archs");
}

// Data of the test and data of the program are built for the same architectures.
TEST(ProgramTest, IsBuiltForItsArchitectures) {
  EXPECT_EQ(Line("ci/tests/archs"), Variable("EXPECTED_ARCHS"));
  EXPECT_EQ(Line("ci/tests/program_archs"), Variable("EXPECTED_ARCHS"));
}

TEST(ProgramTest, ReportsItsCases) { EXPECT_NE(Variable("XML_OUTPUT_FILE"), "(not set)"); }

// Each of two shards runs half of the tests.
TEST(ProgramTest, IsOneOfTwoShards) {
  EXPECT_EQ(Variable("TEST_TOTAL_SHARDS"), "2");
  const ::testing::TestSuite* const suite =
      ::testing::UnitTest::GetInstance()->current_test_suite();
  EXPECT_LT(suite->test_to_run_count(), suite->total_test_count());
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  arguments->assign(argv, argv + argc);
  return RUN_ALL_TESTS();
}
