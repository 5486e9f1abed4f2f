// Files of the caller: where a relative path points, and outputs that are there whole or not.
#ifndef TOOLS_LIB_FILES_H_
#define TOOLS_LIB_FILES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attnlab {

// The error of a system call on a file, "PATH: ACTION: No such file or directory", from its errno:
// NotFound, PermissionDenied, ResourceExhausted for memory, else FailedPrecondition, since the
// file system is the caller's to put right.
absl::Status ErrnoStatus(absl::string_view action, absl::string_view path, int error);

// A relative path seen from the caller's directory: under `bazel run` that is what
// BUILD_WORKING_DIRECTORY says, since the process itself starts elsewhere. "-" stays.
std::string ResolvePath(absl::string_view path);

// Whether both paths lead to one file, by any name or link; of files that do not exist yet,
// whether writing to both would make one.
bool SameFile(const std::string& a, const std::string& b);

// The whole file. NotFound, PermissionDenied, …, with the path in the message; OutOfRange when
// it has more than `limit` bytes.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit);

// A file that appears under its name when all of it is written, or not at all: what was there
// before stays until then. Bytes go to a temporary file, which Commit() renames. It has no name
// until then, so that a process that is killed leaves nothing behind; where the file system
// cannot do that (O_TMPFILE), it lies beside the target.
//
//   absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
//   absl::Status s = file->Append(text);
//   if (s.ok()) s = file->Commit();
//
// A symbolic link is followed: its target is replaced, not the link. A device or the pipe of a
// shell (/dev/null, /dev/stdout) is written to as it is, because a rename would replace it.
class AtomicFile {
 public:
  // NotFound without the directory, FailedPrecondition when the path is a directory or a FIFO,
  // PermissionDenied, …; nothing is created under the path itself.
  static absl::StatusOr<AtomicFile> Create(const std::string& path);

  // The standard output, as it is: nothing is left to Commit(), which still has to be called.
  static absl::StatusOr<AtomicFile> StandardOutput();

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();  // without Commit(): the temporary file goes, the path is as it was

  // FailedPrecondition when the disk is full; the file system is the caller's to put right.
  absl::Status Append(const void* data, int64_t bytes);
  absl::Status Append(absl::string_view text) {
    return Append(text.data(), static_cast<int64_t>(text.size()));
  }
  absl::Status Commit();

 private:
  AtomicFile() = default;
  absl::Status Error(absl::string_view action) const;
  absl::Status GiveName();

  std::string path_;       // as the caller wrote it, for messages
  std::string target_;     // what the temporary file will replace
  std::string temporary_;  // empty when written in place, nameless, or committed
  bool nameless_ = false;
  int fd_ = -1;
};

// An AtomicFile of that text.
absl::Status WriteFile(const std::string& path, absl::string_view text);

}  // namespace attnlab

#endif  // TOOLS_LIB_FILES_H_
