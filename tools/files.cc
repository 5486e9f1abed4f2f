#include "tools/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attnlab {
namespace {

// The kernel moves at most 2^31 - 4096 bytes a call.
constexpr int64_t kLargestTransfer = int64_t{1} << 30;

// What realpath gives; "" for a path that leads nowhere.
std::string RealPath(const std::string& path) {
  char* real = realpath(path.c_str(), nullptr);
  if (real == nullptr) return "";
  std::string result = real;
  free(real);
  return result;
}

// With its slash; "./" for a name alone.
std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

// The path that a file has, or would have when it is made under this name; the name itself where
// its directory does not exist.
std::string FollowLinks(const std::string& path) {
  std::string next = path;
  // As many links as Linux follows.
  for (int links = 0; links < 40; ++links) {
    struct stat info;
    if (stat(next.c_str(), &info) == 0) {
      const std::string real = RealPath(next);
      return real.empty() ? next : real;  // /dev/stdout that is a pipe has no path
    }
    const std::string directory = RealPath(DirectoryOf(next));
    if (directory.empty()) return path;
    const std::string name = next.substr(next.rfind('/') + 1);
    next = absl::StrCat(directory, directory == "/" ? "" : "/", name);
    char link[PATH_MAX];
    const ssize_t length = readlink(next.c_str(), link, sizeof(link));
    if (length < 0) return next;
    const absl::string_view target(link, length);
    next = !target.empty() && target[0] == '/' ? std::string(target)
                                               : absl::StrCat(DirectoryOf(next), target);
  }
  return path;
}

// As a shell's | makes them, and /dev/stdout leads to; not one with a name of its own.
bool IsAnonymousPipe(const std::string& path) {
  struct statfs info;
  return statfs(path.c_str(), &info) == 0 && info.f_type == PIPEFS_MAGIC;
}

std::string DescriptorPath(int fd) { return absl::StrCat("/proc/self/fd/", fd); }

// A file in that directory that goes with its descriptor, even when the process is killed; -1
// where the file system has none, or where it could not be given a name later.
int OpenNameless(const std::string& directory) {
  const int fd = open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0 || access(DescriptorPath(fd).c_str(), F_OK) == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace

absl::Status ErrnoStatus(absl::string_view action, absl::string_view path, int error) {
  const std::string message = absl::StrCat(path, ": ", action, ": ", strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOMEM:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::FailedPreconditionError(message);
  }
}

std::string ResolvePath(absl::string_view path) {
  const char* directory = getenv("BUILD_WORKING_DIRECTORY");
  if (path.empty() || path[0] == '/' || directory == nullptr || directory[0] == '\0') {
    return std::string(path);
  }
  return absl::StrCat(directory, "/", path);
}

bool SameFile(const std::string& a, const std::string& b) {
  struct stat sa, sb;
  const bool a_exists = stat(a.c_str(), &sa) == 0, b_exists = stat(b.c_str(), &sb) == 0;
  if (a_exists != b_exists) return false;
  if (!a_exists) return FollowLinks(a) == FollowLinks(b);
  return sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit) {
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus("cannot open", path, errno);
  struct stat info;
  if (fstat(fd, &info) != 0 || S_ISFIFO(info.st_mode)) {
    close(fd);
    return absl::FailedPreconditionError(absl::StrCat(path, ": is not a regular file"));
  }
  std::string content;
  for (char block[1 << 16];;) {
    const ssize_t n = read(fd, block, sizeof(block));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      close(fd);
      return ErrnoStatus("cannot read", path, error);
    }
    if (n == 0) break;
    content.append(block, n);
    if (static_cast<int64_t>(content.size()) > limit) {
      close(fd);
      return absl::OutOfRangeError(absl::StrCat(path, ": has more than ", limit, " bytes"));
    }
  }
  close(fd);
  return content;
}

absl::StatusOr<AtomicFile> AtomicFile::Create(const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("the path of an output is empty");
  AtomicFile file;
  file.path_ = path;
  file.target_ = FollowLinks(path);
  struct stat info;
  mode_t mode = 0666;
  const bool exists = stat(file.target_.c_str(), &info) == 0;
  if (!exists && errno == ENAMETOOLONG) return ErrnoStatus("cannot create", path, errno);
  if (exists && S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": is a directory"));
  }
  // To open it would wait for a reader, who may never come.
  if (exists && S_ISFIFO(info.st_mode) && !IsAnonymousPipe(path)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": is a FIFO, not a regular file"));
  }
  if (exists && !S_ISREG(info.st_mode)) {
    file.fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.fd_ < 0) return ErrnoStatus("cannot open for writing", path, errno);
    return file;
  }
  if (exists) {
    if (access(file.target_.c_str(), W_OK) != 0) return ErrnoStatus("cannot write", path, errno);
    mode = info.st_mode & 07777;
  } else {
    const mode_t mask = umask(0);
    umask(mask);
    mode &= ~mask;
  }
  file.fd_ = OpenNameless(DirectoryOf(file.target_));
  file.nameless_ = file.fd_ >= 0;
  if (!file.nameless_) {
    std::string name = absl::StrCat(file.target_, ".XXXXXX");
    file.fd_ = mkostemp(&name[0], O_CLOEXEC);
    if (file.fd_ < 0) return ErrnoStatus("cannot create", path, errno);
    file.temporary_ = std::move(name);
  }
  // It is private so far; the result should be like any file of the caller.
  if (fchmod(file.fd_, mode) != 0) return file.Error("cannot set the mode");
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, std::string())),
      nameless_(std::exchange(other.nameless_, false)),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status AtomicFile::Error(absl::string_view action) const {
  return ErrnoStatus(action, path_, errno);
}

absl::Status AtomicFile::Append(const void* data, int64_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = write(fd_, next, std::min(bytes, kLargestTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error("cannot write");
    next += n;
    bytes -= n;
  }
  return absl::OkStatus();
}

// Linking never replaces a file, so it is the temporary name that a nameless file gets.
absl::Status AtomicFile::GiveName() {
  constexpr int kMostTries = 1000;
  const std::string from = DescriptorPath(fd_);
  for (int i = 0; i < kMostTries; ++i) {
    // Short, because the target's name may be as long as a name can be.
    std::string name = absl::StrCat(DirectoryOf(target_), ".attnlab.", getpid(), ".", i);
    if (linkat(AT_FDCWD, from.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      temporary_ = std::move(name);
      nameless_ = false;
      return absl::OkStatus();
    }
    if (errno != EEXIST) break;
  }
  return Error("cannot name");
}

absl::Status AtomicFile::Commit() {
  if (temporary_.empty() && !nameless_) {  // a device or a pipe
    if (close(std::exchange(fd_, -1)) != 0) return Error("cannot write");
    return absl::OkStatus();
  }
  // Before the rename, so that after a crash the name has either the old bytes or all the new.
  if (fsync(fd_) != 0) return Error("cannot write");
  if (nameless_) {
    if (absl::Status s = GiveName(); !s.ok()) return s;
  }
  if (close(std::exchange(fd_, -1)) != 0) return Error("cannot write");
  if (rename(temporary_.c_str(), target_.c_str()) != 0) return Error("cannot rename");
  temporary_.clear();
  return absl::OkStatus();
}

}  // namespace attnlab
