// The messages for a CUPTI that is missing or unusable. Needs no GPU.
#include "profiling/cupti.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::profiling {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string WhyNot(const CuptiPlaces& places) {
  const absl::Status s = LoadCuptiFrom(places).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kUnavailable);
  return std::string(s.message());
}

std::string Named(const std::string& library) {
  CuptiPlaces places;
  places.attnlab_cupti = library;
  return WhyNot(places);
}

// A name that the loader does not know, whatever is installed on this machine.
const char* const kName = "libcupti.so.of_cupti_test";

// Makes a toolkit directory in which `library` is CUPTI.
std::string ToolkitWith(const std::string& directory, const std::string& library) {
  const std::string root = absl::StrCat(::testing::TempDir(), "/", directory);
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root + "/lib64");
  std::filesystem::create_symlink(std::filesystem::absolute(library),
                                  absl::StrCat(root, "/lib64/", kName));
  return root;
}

const char* const kOld = "profiling/libold_cupti.so";

TEST(CuptiTest, OneThatIsNamedAndNotThere) {
  const std::string why = Named("/nowhere/libcupti.so");
  EXPECT_THAT(why, AllOf(StartsWith("no CUPTI (libcupti.so."),
                         HasSubstr("ATTNLAB_CUPTI=/nowhere/libcupti.so: there is no such file"),
                         EndsWith("Set CUDA_HOME=DIR to a toolkit, or ATTNLAB_CUPTI=FILE to the "
                                  "library")));
  // No other place is searched.
  EXPECT_THAT(why, Not(HasSubstr("the loader")));
}

TEST(CuptiTest, OneThatIsNoLibrary) {
  const std::string path = ::testing::TempDir() + "/no_library.so";
  std::ofstream(path) << "no ELF";
  EXPECT_THAT(Named(path), HasSubstr(absl::StrCat("ATTNLAB_CUPTI=", path, ": ")));
  EXPECT_THAT(Named(path), Not(HasSubstr("too old")));
}

TEST(CuptiTest, OnlyACuptiIsTooOld) {
  EXPECT_THAT(Named("libm.so.6"), AllOf(HasSubstr("ATTNLAB_CUPTI=libm.so.6: is a library, but not"),
                                        Not(HasSubstr("too old"))));
  EXPECT_THAT(Named(kOld), AllOf(HasSubstr("CUPTI is too old: its version is 12 and has no cupti"),
                                 HasSubstr(absl::StrCat(CUPTI_API_VERSION, " is needed"))));
}

TEST(CuptiTest, SaysWhatWasSetAndTried) {
  CuptiPlaces places;
  places.cuda_home = "/nowhere/cuda";
  places.usual = "/nowhere/usual";
  places.name = kName;
  const std::string why = WhyNot(places);
  EXPECT_THAT(
      why,
      AllOf(HasSubstr("CUDA_HOME=/nowhere/cuda has none; CUDA_PATH is not set; "),
            HasSubstr("the loader (LD_LIBRARY_PATH, ld.so.conf): the loader finds no library "),
            HasSubstr("/nowhere/usual has none. ")));
  EXPECT_LT(why.size(), 400u) << why;
}

TEST(CuptiTest, WhatTheUserSaysComesFirst) {
  const absl::StatusOr<const Cupti*> usual = LoadCupti();
  ASSERT_TRUE(usual.ok()) << usual.status();
  // An unusable CUPTI in CUDA_HOME is reported, and the next place is tried.
  CuptiPlaces places;
  places.name = kName;
  places.cuda_home = ToolkitWith("old", kOld);
  places.cuda_path = places.usual = "/nowhere";
  EXPECT_THAT(WhyNot(places),
              HasSubstr(absl::StrCat("CUDA_HOME=", places.cuda_home, " has ", places.cuda_home,
                                     "/lib64/", kName, ": CUPTI is too old")));
  places.cuda_path = ToolkitWith("usual", (*usual)->path);
  const absl::StatusOr<Cupti> cupti = LoadCuptiFrom(places);
  EXPECT_TRUE(cupti.ok()) << cupti.status();
}

TEST(CuptiTest, ErrorsSayWhatToDo) {
  const absl::StatusOr<const Cupti*> cupti = LoadCupti();
  ASSERT_TRUE(cupti.ok()) << cupti.status();
  EXPECT_TRUE((*cupti)->Check(CUPTI_SUCCESS, "call").ok());
  const absl::Status denied = (*cupti)->Check(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, "call");
  EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(denied.message()),
              HasSubstr("call: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"));
  EXPECT_THAT(std::string(denied.message()), HasSubstr("CAP_SYS_ADMIN"));
  const absl::Status busy = (*cupti)->Check(CUPTI_ERROR_HARDWARE_BUSY, "call");
  EXPECT_EQ(busy.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(busy.message()), HasSubstr("Another profiler"));
}

// No message repeats the name of the result.
TEST(CuptiTest, NamesAreNotRepeated) {
  const absl::StatusOr<const Cupti*> cupti = LoadCupti();
  ASSERT_TRUE(cupti.ok()) << cupti.status();
  for (int i = 1; i < 80; ++i) {
    const auto result = static_cast<CUptiResult>(i);
    const char* name = nullptr;
    if ((*cupti)->cuptiGetResultString(result, &name) != CUPTI_SUCCESS || name == nullptr) continue;
    const std::string message((*cupti)->Check(result, "call").message());
    EXPECT_THAT(message, Not(HasSubstr(absl::StrCat(name, ", ", name))));
  }
}

}  // namespace
}  // namespace attnlab::profiling
