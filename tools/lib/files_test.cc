#include "tools/lib/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class FilesTest : public testing::Test {
 protected:
  FilesTest() {
    std::string name = absl::StrCat(testing::TempDir(), "/files test XXXXXX");
    directory_ = mkdtemp(&name[0]);
  }

  std::string Path(absl::string_view name) const { return absl::StrCat(directory_, "/", name); }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    DIR* dir = opendir(directory_.c_str());
    while (const dirent* entry = readdir(dir)) {
      if (entry->d_name[0] != '.') names.push_back(entry->d_name);
    }
    closedir(dir);
    return names;
  }

  std::string directory_;
};

TEST_F(FilesTest, ErrorsOfSystemCallsSayWhatIsWrongAndWhoseItIs) {
  EXPECT_EQ(ErrnoStatus("cannot open", "a b", ENOENT),
            absl::NotFoundError("a b: cannot open: No such file or directory"));
  EXPECT_EQ(ErrnoStatus("", "", EROFS).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrnoStatus("", "", ENOMEM).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoStatus("", "", ENOSPC).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(FilesTest, RelativePathsAreThoseOfTheCaller) {
  ASSERT_EQ(setenv("BUILD_WORKING_DIRECTORY", "/home/me/my work", 1), 0);
  EXPECT_EQ(ResolvePath("q.npy"), "/home/me/my work/q.npy");
  EXPECT_EQ(ResolvePath("/tmp/q.npy"), "/tmp/q.npy");
  EXPECT_EQ(ResolvePath(""), "");
  EXPECT_EQ(ResolvePath("-"), "-");
  ASSERT_EQ(unsetenv("BUILD_WORKING_DIRECTORY"), 0);
  EXPECT_EQ(ResolvePath("q.npy"), "q.npy");
}

TEST_F(FilesTest, AppearsWholeUnderItsNameAlone) {
  {
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(Path("out"));
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Append("ab").ok());
    EXPECT_NE(access(Path("out").c_str(), F_OK), 0);
    ASSERT_TRUE(file->Append("c").ok());
    ASSERT_TRUE(file->Commit().ok());
  }
  EXPECT_EQ(*ReadFile(Path("out"), 100), "abc");
  EXPECT_THAT(Names(), UnorderedElementsAre("out"));
}

TEST_F(FilesTest, WithoutCommitNothingChanges) {
  ASSERT_TRUE(WriteFile(Path("out"), "old").ok());
  {
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(Path("out"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Append("new").ok());
    EXPECT_EQ(*ReadFile(Path("out"), 100), "old");
  }
  EXPECT_EQ(*ReadFile(Path("out"), 100), "old");
  EXPECT_THAT(Names(), UnorderedElementsAre("out"));
}

TEST_F(FilesTest, ATooLongNameIsAnErrorBeforeAnythingIsWritten) {
  EXPECT_THAT(std::string(AtomicFile::Create(Path(std::string(256, 'x'))).status().message()),
              HasSubstr("cannot create: File name too long"));
}

TEST_F(FilesTest, AKilledProcessLeavesNothingBehind) {
  const int probe = open(directory_.c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (probe < 0) GTEST_SKIP() << "this file system has no files without a name";
  close(probe);
  ASSERT_TRUE(WriteFile(Path("out"), "old").ok());
  const pid_t child = fork();
  if (child == 0) {
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(Path("out"));
    if (!file.ok() || !file->Append("new").ok()) _exit(1);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(*ReadFile(Path("out"), 100), "old");
  EXPECT_THAT(Names(), UnorderedElementsAre("out"));
}

TEST_F(FilesTest, ReplacesTheTargetOfALinkAndKeepsItsMode) {
  ASSERT_TRUE(WriteFile(Path("target"), "old").ok());
  ASSERT_EQ(chmod(Path("target").c_str(), 0640), 0);
  ASSERT_EQ(symlink("target", Path("link").c_str()), 0);
  ASSERT_TRUE(WriteFile(Path("link"), "new").ok());
  EXPECT_EQ(*ReadFile(Path("target"), 100), "new");
  struct stat info;
  ASSERT_EQ(lstat(Path("link").c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
  ASSERT_EQ(stat(Path("target").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST_F(FilesTest, ANewFileHasTheModeOfTheUmask) {
  const mode_t before = umask(027);
  ASSERT_TRUE(WriteFile(Path("out"), "x").ok());
  umask(before);
  struct stat info;
  ASSERT_EQ(stat(Path("out").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST_F(FilesTest, WritesToDevicesInPlace) {
  EXPECT_TRUE(WriteFile("/dev/null", "x").ok());
  struct stat info;
  ASSERT_EQ(stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
  EXPECT_EQ(WriteFile("/dev/full", "x").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(FilesTest, FifosAreRefusedNotWaitedFor) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0666), 0);
  EXPECT_EQ(AtomicFile::Create(Path("fifo")).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(WriteFile(Path("fifo"), "x").message()), HasSubstr("is a FIFO"));
  EXPECT_EQ(ReadFile(Path("fifo"), 1).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(FilesTest, WritesToAPipeWithoutAName) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_TRUE(WriteFile(absl::StrCat("/proc/self/fd/", ends[1]), "x").ok());
  char got = 0;
  EXPECT_EQ(read(ends[0], &got, 1), 1);
  EXPECT_EQ(got, 'x');
  close(ends[0]);
  close(ends[1]);
}

TEST_F(FilesTest, ErrorsNameThePath) {
  EXPECT_EQ(WriteFile(Path("none/out"), "x").code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(WriteFile(Path("none/out"), "x").message()),
              HasSubstr("none/out: cannot create: No such file or directory"));
  EXPECT_THAT(std::string(WriteFile(directory_, "x").message()), HasSubstr("is a directory"));
  EXPECT_EQ(WriteFile("", "x").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile(Path("none"), 1).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteFile(Path("out"), "123").ok());
  EXPECT_EQ(ReadFile(Path("out"), 2).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(FilesTest, SameFileSeesThroughNames) {
  ASSERT_TRUE(WriteFile(Path("a"), "x").ok());
  ASSERT_TRUE(WriteFile(Path("b"), "x").ok());
  ASSERT_EQ(symlink("a", Path("to a").c_str()), 0);
  ASSERT_EQ(link(Path("a").c_str(), Path("also a").c_str()), 0);
  EXPECT_TRUE(SameFile(Path("a"), Path("to a")));
  EXPECT_TRUE(SameFile(Path("a"), Path("also a")));
  EXPECT_TRUE(SameFile(Path("a"), Path("./a")));
  EXPECT_FALSE(SameFile(Path("a"), Path("b")));
  EXPECT_FALSE(SameFile(Path("a"), Path("none")));
}

TEST_F(FilesTest, SameFileKnowsWhatIsNotThereYet) {
  ASSERT_EQ(mkdir(Path("in").c_str(), 0777), 0);
  ASSERT_EQ(symlink("in", Path("also in").c_str()), 0);
  ASSERT_EQ(symlink("in/new", Path("to new").c_str()), 0);
  ASSERT_EQ(symlink("loop", Path("loop").c_str()), 0);
  EXPECT_TRUE(SameFile(Path("new"), Path("./new")));
  EXPECT_TRUE(SameFile(Path("new"), Path("in/../new")));
  EXPECT_TRUE(SameFile(Path("in/new"), Path("also in/new")));
  EXPECT_TRUE(SameFile(Path("in/new"), Path("to new")));
  EXPECT_TRUE(SameFile("not there.npy", "./not there.npy"));
  EXPECT_FALSE(SameFile(Path("new"), Path("in/new")));
  EXPECT_FALSE(SameFile(Path("new"), Path("newer")));
  EXPECT_FALSE(SameFile(Path("loop"), Path("new")));
}

TEST_F(FilesTest, ALinkToWhatIsNotThereYetStaysALink) {
  ASSERT_EQ(symlink("target", Path("link").c_str()), 0);
  ASSERT_TRUE(WriteFile(Path("link"), "new").ok());
  struct stat info;
  ASSERT_EQ(lstat(Path("link").c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
  EXPECT_EQ(*ReadFile(Path("target"), 100), "new");
}

}  // namespace
}  // namespace attnlab
