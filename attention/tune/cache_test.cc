#include "attention/tune/cache.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "attention/cuda/machine.h"
#include "gtest/gtest.h"
#include "tools/lib/files.h"
#include "tools/lib/json.h"

namespace attnlab::tune {
namespace {

Key KeyFor(const std::string& problem) { return {"a GPU", "580.1", "c0ffee", "fa2", problem}; }

Choice ChoiceFor(const std::string& config, double seconds = 1e-3) {
  return {*LaunchConfig::Parse(config), seconds, 2e-3};
}

// A path of its own for each test.
std::string Path() {
  const std::string path =
      absl::StrCat(testing::TempDir(), "/",
                   testing::UnitTest::GetInstance()->current_test_info()->name(), "/tuning.json");
  return std::filesystem::path(path).lexically_normal().string();
}

std::string Found(const Cache& cache, const Key& key, std::string* remark) {
  const std::optional<Choice> choice = cache.Find(key, remark);
  return choice ? choice->config.ToString() : "nothing";
}

TEST(CacheTest, KeepsChoicesByTheWholeKey) {
  const Cache cache(Path());
  std::string remark;
  EXPECT_EQ(Found(cache, KeyFor("a"), &remark), "nothing");
  ASSERT_TRUE(cache.Store(KeyFor("a"), ChoiceFor("tile_q=64"), &remark).ok());
  ASSERT_TRUE(cache.Store(KeyFor("b"), ChoiceFor(""), &remark).ok());
  EXPECT_EQ(Found(cache, KeyFor("a"), &remark), "tile_q=64");
  EXPECT_EQ(Found(cache, KeyFor("b"), &remark), "");
  EXPECT_EQ(cache.Find(KeyFor("a"), &remark)->seconds, 1e-3);
  EXPECT_EQ(cache.Find(KeyFor("a"), &remark)->default_seconds, 2e-3);
  for (std::string Key::*part : {&Key::device, &Key::driver, &Key::build, &Key::kernel}) {
    Key other = KeyFor("a");
    other.*part = "another";
    EXPECT_EQ(Found(cache, other, &remark), "nothing");
  }
  ASSERT_TRUE(cache.Store(KeyFor("a"), ChoiceFor("tile_q=32"), &remark).ok());
  EXPECT_EQ(Found(cache, KeyFor("a"), &remark), "tile_q=32");
  EXPECT_EQ(remark, "");
}

TEST(CacheTest, TheOldestEntriesAreDropped) {
  const std::string path = Path();
  const Cache cache(path);
  std::string remark;
  ASSERT_TRUE(cache.Store(KeyFor("first"), ChoiceFor(""), &remark).ok());
  Json json = Json::parse(*ReadFile(path, 1 << 20));
  Json entry = json["entries"][0];
  for (int i = 1; i < Cache::kMostEntries; ++i) {
    entry["problem"] = absl::StrCat(i);
    json["entries"].push_back(entry);
  }
  ASSERT_TRUE(WriteFile(path, Dump(json)).ok());
  EXPECT_EQ(Found(cache, KeyFor("first"), &remark), "");
  ASSERT_TRUE(cache.Store(KeyFor("last"), ChoiceFor(""), &remark).ok());
  EXPECT_EQ(Found(cache, KeyFor("first"), &remark), "nothing");
  EXPECT_EQ(Found(cache, KeyFor("1"), &remark), "");
  EXPECT_EQ(Found(cache, KeyFor("last"), &remark), "");
  EXPECT_EQ(remark, "");
}

// What Store() does with a file that has this text.
void ExpectNotTrusted(const std::string& text, const std::string& reason) {
  const std::string path = Path();
  const Cache cache(path);
  std::string remark;
  std::filesystem::remove(path + ".damaged");
  ASSERT_TRUE(cache.Store(KeyFor("before"), ChoiceFor(""), &remark).ok());
  ASSERT_TRUE(WriteFile(path, text).ok());
  EXPECT_EQ(Found(cache, KeyFor("before"), &remark), "nothing");
  EXPECT_NE(remark.find(absl::StrCat(path, ": ", reason)), std::string::npos) << remark;
  remark.clear();
  ASSERT_TRUE(cache.Store(KeyFor("a"), ChoiceFor("x=1"), &remark).ok());
  EXPECT_NE(remark.find(reason), std::string::npos) << remark;
  EXPECT_NE(remark.find(path + ".damaged"), std::string::npos) << remark;
  EXPECT_EQ(*ReadFile(path + ".damaged", 1 << 20), text);  // nothing is lost
  remark.clear();
  EXPECT_EQ(Found(cache, KeyFor("a"), &remark), "x=1");
  EXPECT_EQ(remark, "");
}

TEST(CacheTest, ADamagedFileIsReportedAndKeptAside) {
  ExpectNotTrusted("{\"format\": \"attnlab tuning 1\", \"entr", "is damaged");
  ExpectNotTrusted("", "is damaged");
  ExpectNotTrusted(std::string(3, '\0'), "is damaged");
}

TEST(CacheTest, WhatWasKeptAsideStays) {
  const std::string path = Path();
  const Cache cache(path);
  std::string remark;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  for (const std::string text : {"first", "second", "third"}) {
    ASSERT_TRUE(WriteFile(path, text).ok());
    ASSERT_TRUE(cache.Store(KeyFor("a"), ChoiceFor(""), &remark).ok());
  }
  EXPECT_EQ(*ReadFile(path + ".damaged", 100), "first");
  EXPECT_EQ(*ReadFile(path + ".damaged.2", 100), "second");
  EXPECT_EQ(*ReadFile(path + ".damaged.3", 100), "third");
}

TEST(CacheTest, ByWayOfALinkTheFileIsTheSame) {
  const std::string path = Path(), link = path + ".link";
  std::string remark;
  ASSERT_TRUE(Cache(path).Store(KeyFor("a"), ChoiceFor("x=1"), &remark).ok());
  std::filesystem::create_symlink(path, link);
  ASSERT_TRUE(Cache(link).Store(KeyFor("b"), ChoiceFor("x=2"), &remark).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(Found(Cache(path), KeyFor("b"), &remark), "x=2");
  EXPECT_FALSE(std::filesystem::exists(link + ".lock"));
}

TEST(CacheTest, ADeviceIsLeftAlone) {
  std::string remark;
  const absl::Status s = Cache("/dev/null").Store(KeyFor("a"), ChoiceFor(""), &remark);
  EXPECT_FALSE(s.ok());
  EXPECT_EQ(Found(Cache("/dev/null"), KeyFor("a"), &remark), "nothing");
  EXPECT_EQ(remark, "/dev/null: is not a regular file");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(CacheTest, AForeignFileIsReportedAndKeptAside) {
  ExpectNotTrusted("[1, 2]", "is no tuning cache of this version");
  ExpectNotTrusted("{\"format\": \"attnlab tuning 0\", \"entries\": []}", "is no tuning cache");
  ExpectNotTrusted("{\"format\": \"attnlab tuning 1\"}", "is no tuning cache");
}

TEST(CacheTest, AFileWithAWrongEntryIsNotTrusted) {
  const std::string path = Path();
  std::string remark;
  ASSERT_TRUE(Cache(path).Store(KeyFor("a"), ChoiceFor("x=1"), &remark).ok());
  const Json good = Json::parse(*ReadFile(path, 1 << 20));
  const auto expect_wrong = [&](const char* key, const Json& value) {
    Json json = good;
    json["entries"][0][key] = value;
    ExpectNotTrusted(Dump(json), "is damaged: entry 0 is not one");
  };
  expect_wrong("config", "x=1,x=2");
  expect_wrong("config", 3);
  expect_wrong("seconds", 0);
  expect_wrong("seconds", "1");
  expect_wrong("default_seconds", -1);
  expect_wrong("problem", nullptr);
}

TEST(CacheTest, AnUnreadablePlaceIsAnError) {
  std::string remark;
  const Cache directory(testing::TempDir());
  EXPECT_EQ(Found(directory, KeyFor("a"), &remark), "nothing");
  EXPECT_NE(remark, "");
  EXPECT_FALSE(directory.Store(KeyFor("a"), ChoiceFor(""), &remark).ok());
  EXPECT_FALSE(Cache("/proc/tuning.json").Store(KeyFor("a"), ChoiceFor(""), &remark).ok());
}

TEST(CacheTest, AKilledWriterLeavesAWholeFile) {
  const std::string path = Path();
  const Cache cache(path);
  std::string remark;
  ASSERT_TRUE(cache.Store(KeyFor("kept"), ChoiceFor("x=1"), &remark).ok());
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int i = 0;; ++i) {
        std::string ignored;
        if (!cache.Store(KeyFor(absl::StrCat(i % 100)), ChoiceFor("y=2"), &ignored).ok()) _exit(1);
      }
    }
    usleep(5000 + 1000 * round);
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed";
    EXPECT_EQ(Found(cache, KeyFor("kept"), &remark), "x=1");
    // Nor is the lock left behind.
    ASSERT_TRUE(cache.Store(KeyFor("after"), ChoiceFor(""), &remark).ok());
    ASSERT_EQ(remark, "");
  }
}

TEST(CacheTest, ProcessesThatStoreAtTheSameTimeLoseNothing) {
  const Cache cache(Path());
  constexpr int kProcesses = 4, kEntries = 25;
  pid_t children[kProcesses];
  for (int i = 0; i < kProcesses; ++i) {
    children[i] = fork();
    ASSERT_GE(children[i], 0);
    if (children[i] != 0) continue;
    for (int j = 0; j < kEntries; ++j) {
      std::string remark;
      const absl::Status s =
          cache.Store(KeyFor(absl::StrCat(i, ".", j)), ChoiceFor("x=1"), &remark);
      if (!s.ok() || !remark.empty()) _exit(1);
    }
    _exit(0);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  std::string remark;
  for (int i = 0; i < kProcesses; ++i) {
    for (int j = 0; j < kEntries; ++j) {
      EXPECT_EQ(Found(cache, KeyFor(absl::StrCat(i, ".", j)), &remark), "x=1") << i << "." << j;
    }
  }
  EXPECT_EQ(remark, "");
}

TEST(CacheTest, TheKeyNamesMachineAndBuild) {
  const absl::StatusOr<Key> key = KeyOf(CpuInfo(), "cpu", "a");
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_NE(key->device.find(absl::StrCat(CpuInfo().threads, " threads")), std::string::npos);
  EXPECT_GE(key->build.size(), 16u);
  EXPECT_EQ(key->build.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(*KeyOf(CpuInfo(), "cpu", "a"), *key);
}

}  // namespace
}  // namespace attnlab::tune
