#include "tools/lib/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attnlab {
namespace {

namespace fs = std::filesystem;

// The kernel moves at most 2^31 - 4096 bytes a call.
constexpr int64_t kLargestTransfer = int64_t{1} << 30;

// With its slash; "./" for a name alone.
std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

// The path that a file has, or would have when it is made under this name; `path` itself where
// there is none, as of the pipe that /dev/stdout may be.
std::string FollowLinks(const std::string& path) {
  std::error_code error;
  fs::path next = fs::absolute(path, error);
  // weakly_canonical() follows no link that leads nowhere yet. As many as Linux follows.
  for (int links = 0; links < 40 && fs::is_symlink(next, error) && !fs::exists(next, error);
       ++links) {
    next = next.parent_path() / fs::read_symlink(next, error);
  }
  next = fs::weakly_canonical(next, error);
  return error ? path : next.string();
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
  if (path.empty() || path == "-" || path[0] == '/' || directory == nullptr ||
      directory[0] == '\0') {
    return std::string(path);
  }
  return absl::StrCat(directory, "/", path);
}

bool SameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::exists(a, error) || fs::exists(b, error)) return fs::equivalent(a, b, error);
  return FollowLinks(a) == FollowLinks(b);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit) {
  std::error_code error;
  if (fs::is_fifo(path, error)) {  // one that nobody writes to would be waited for
    return absl::FailedPreconditionError(absl::StrCat(path, ": is not a regular file"));
  }
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return ErrnoStatus("cannot open", path, errno);
  std::string content;
  char block[1 << 16];
  while (static_cast<int64_t>(content.size()) <= limit) {
    const size_t n = std::fread(block, 1, sizeof(block), file);
    if (n == 0) break;
    content.append(block, n);
  }
  const absl::Status s =
      std::ferror(file) != 0 ? ErrnoStatus("cannot read", path, errno) : absl::OkStatus();
  std::fclose(file);
  if (!s.ok()) return s;
  if (static_cast<int64_t>(content.size()) > limit) {
    return absl::OutOfRangeError(absl::StrCat(path, ": has more than ", limit, " bytes"));
  }
  return content;
}

absl::Status WriteFile(const std::string& path, absl::string_view text) {
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  const absl::Status s = file->Append(text);
  return s.ok() ? file->Commit() : s;
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
  // To open it would wait for a reader, who may never come. The pipe of a shell has no path.
  std::error_code error;
  if (exists && S_ISFIFO(info.st_mode) && !fs::canonical(path, error).empty()) {
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

absl::StatusOr<AtomicFile> AtomicFile::StandardOutput() {
  AtomicFile file;
  file.path_ = "standard output";
  file.fd_ = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
  if (file.fd_ < 0) return file.Error("cannot open for writing");
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
