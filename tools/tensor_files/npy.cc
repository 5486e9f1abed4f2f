#include "tools/tensor_files/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/core/dtype.h"
#include "tools/lib/files.h"

namespace attnlab {
namespace {

absl::Status Invalid(absl::string_view file, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", message));
}

// Checks that the file has exactly the bytes that its header promises.
absl::Status CheckLength(absl::string_view file, const NpyHeader& header, int64_t file_bytes) {
  const int64_t expected = header.data_offset + header.NumBytes();
  if (file_bytes == expected) return absl::OkStatus();
  return Invalid(
      file, absl::StrCat(file_bytes < expected ? "is cut short" : "is too long", ": expected ",
                         expected, " bytes for shape (", absl::StrJoin(header.shape, ", "), ") of ",
                         Name(header.type), ", found ", file_bytes));
}

}  // namespace

NpyType NpyTypeOf(DType dtype) {
  return dtype == DType::kFloat16    ? NpyType::kFloat16
         : dtype == DType::kBFloat16 ? NpyType::kBFloat16
                                     : NpyType::kFloat32;
}

absl::StatusOr<NpyArray> ParseNpy(absl::string_view name, absl::string_view bytes) {
  absl::StatusOr<NpyHeader> header = ParseNpyHeader(name, bytes);
  if (!header.ok()) return header.status();
  if (absl::Status s = CheckLength(name, *header, static_cast<int64_t>(bytes.size())); !s.ok()) {
    return s;
  }
  absl::StatusOr<Buffer> data = Buffer::Allocate(Device::Cpu(), header->NumBytes());
  if (!data.ok()) return data.status();
  absl::Status s = data->CopyFromHost(bytes.data() + header->data_offset, header->NumBytes());
  if (!s.ok()) return s;
  return NpyArray{*std::move(header), *std::move(data)};
}

namespace {

// Reads `bytes`, or all there are if fewer, and returns their number.
absl::StatusOr<int64_t> ReadBytes(int fd, const std::string& name, void* to, int64_t bytes) {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t n =
        read(fd, static_cast<char*>(to) + done, std::min(bytes - done, int64_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus("cannot read", name, errno);
    if (n == 0) break;
    done += n;
  }
  return done;
}

// `size` of the file; -1 for a pipe.
absl::StatusOr<NpyArray> ReadNpy(int fd, const std::string& name, int64_t size) {
  std::string preamble(
      size < 0 ? kLongestNpyPreamble : std::min<int64_t>(kLongestNpyPreamble, size), '\0');
  const absl::StatusOr<int64_t> n =
      ReadBytes(fd, name, &preamble[0], static_cast<int64_t>(preamble.size()));
  if (!n.ok()) return n.status();
  preamble.resize(*n);
  absl::StatusOr<NpyHeader> header = ParseNpyHeader(name, preamble);
  if (!header.ok()) return header.status();
  if (size >= 0) {
    if (absl::Status s = CheckLength(name, *header, size); !s.ok()) return s;
  }
  const int64_t bytes = header->NumBytes();
  absl::StatusOr<Buffer> data = Buffer::Allocate(Device::Cpu(), bytes);
  if (!data.ok()) {
    return absl::Status(data.status().code(), absl::StrCat(name, ": ", data.status().message()));
  }
  const int64_t begun = std::min(*n - header->data_offset, bytes);
  std::copy_n(preamble.data() + header->data_offset, begun, static_cast<char*>(data->data()));
  const absl::StatusOr<int64_t> rest =
      ReadBytes(fd, name, static_cast<char*>(data->data()) + begun, bytes - begun);
  if (!rest.ok()) return rest.status();
  char more = 0;
  const absl::StatusOr<int64_t> beyond = ReadBytes(fd, name, &more, 1);
  if (!beyond.ok()) return beyond.status();
  absl::Status s = CheckLength(name, *header, *n + *rest + *beyond);
  if (!s.ok()) return s;
  return NpyArray{*std::move(header), *std::move(data)};
}

}  // namespace

absl::StatusOr<NpyArray> ReadNpy(const std::string& path) {
  if (path == "-") {
    if (isatty(STDIN_FILENO) != 0) {
      return Invalid("standard input", "is a terminal; a .npy file can be piped into it");
    }
    return ReadNpy(STDIN_FILENO, "standard input", -1);
  }
  // O_NONBLOCK: otherwise open() waits for a FIFO that nobody writes to.
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus("cannot open", path, errno);
  struct Closer {
    int fd;
    ~Closer() { close(fd); }
  } closer{fd};

  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus("cannot stat", path, errno);
  if (S_ISDIR(info.st_mode)) return Invalid(path, "is a directory, not a .npy file");
  if (!S_ISREG(info.st_mode)) return Invalid(path, "is not a regular file");
  return ReadNpy(fd, path, info.st_size);
}

absl::Status WriteNpy(const std::string& path, NpyType type, absl::Span<const int64_t> shape,
                      const void* data) {
  NpyHeader header;
  header.type = type;
  header.shape.assign(shape.begin(), shape.end());
  if (absl::Status s = CheckNpySize(path, header); !s.ok()) return s;
  absl::StatusOr<AtomicFile> file =
      path == "-" ? AtomicFile::StandardOutput() : AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  const std::string preamble = NpyPreamble(type, shape);
  absl::Status s = file->Append(preamble.data(), static_cast<int64_t>(preamble.size()));
  if (s.ok()) s = file->Append(data, header.NumBytes());
  if (s.ok()) s = file->Commit();
  return s;
}

double LoadAsDouble(const NpyArray& array, int64_t index) {
  const void* data = array.data.data();
  switch (array.header.type) {
    case NpyType::kFloat16:
      return LoadElement(data, DType::kFloat16, index);
    case NpyType::kBFloat16:
      return LoadElement(data, DType::kBFloat16, index);
    case NpyType::kFloat32:
      return static_cast<const float*>(data)[index];
    case NpyType::kFloat64:
      return static_cast<const double*>(data)[index];
    case NpyType::kInt32:
      return static_cast<const int32_t*>(data)[index];
    case NpyType::kInt64:
      return static_cast<double>(static_cast<const int64_t*>(data)[index]);
  }
  return 0;
}

}  // namespace attnlab
