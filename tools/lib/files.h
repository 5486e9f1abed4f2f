// The caller's files: relative paths, and outputs that appear complete or not at all.
#ifndef TOOLS_LIB_FILES_H_
#define TOOLS_LIB_FILES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attnlab {

// The error of a system call on a file, "PATH: ACTION: No such file or directory", from its errno:
// NotFound, PermissionDenied, ResourceExhausted for memory, otherwise FailedPrecondition, because the
// caller must repair the file system.
absl::Status ErrnoStatus(absl::string_view action, absl::string_view path, int error);

// Resolves a relative path from the caller's directory. Under `bazel run` that is
// BUILD_WORKING_DIRECTORY, because the process starts elsewhere. "-" stays.
std::string ResolvePath(absl::string_view path);

// Whether both paths lead to the same file, by any name or link. If they do not exist yet: whether
// writing to both would create one file.
bool SameFile(const std::string& a, const std::string& b);

// Reads the whole file. NotFound, PermissionDenied, …, with the path in the message; OutOfRange if
// it has more than `limit` bytes.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit);

// A file that replaces the old one only when it is complete. Bytes go to a temporary file, which
// Commit() renames. The temporary file has no name until then, so a killed process leaves nothing
// behind. If the file system cannot do that (O_TMPFILE), the file lies beside the target.
//
//   absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
//   absl::Status s = file->Append(text);
//   if (s.ok()) s = file->Commit();
//
// A symbolic link is followed: its target is replaced, not the link. A device or the pipe of a
// shell (/dev/null, /dev/stdout) is written to directly, because a rename would replace it.
class AtomicFile {
 public:
  // NotFound if there is no directory, FailedPrecondition if the path is a directory or a FIFO,
  // PermissionDenied, …. Creates nothing under the path itself.
  static absl::StatusOr<AtomicFile> Create(const std::string& path);

  // The standard output, as it is: nothing is left to Commit(), which still has to be called.
  static absl::StatusOr<AtomicFile> StandardOutput();

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();  // without Commit(): removes the temporary file and leaves the path unchanged

  // FailedPrecondition if the disk is full.
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

// Writes the text through an AtomicFile.
absl::Status WriteFile(const std::string& path, absl::string_view text);

}  // namespace attnlab

#endif  // TOOLS_LIB_FILES_H_
