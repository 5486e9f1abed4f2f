#include "tools/command/npy.h"

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

// That the file has exactly the bytes that the header promises.
absl::Status CheckLength(absl::string_view file, const NpyHeader& header, int64_t file_bytes) {
  const int64_t wanted = header.data_offset + header.NumBytes();
  if (file_bytes == wanted) return absl::OkStatus();
  return Invalid(
      file, absl::StrCat(file_bytes < wanted ? "is cut short: " : "goes on behind its elements: ",
                         file_bytes, " bytes where shape (", absl::StrJoin(header.shape, ", "),
                         ") of ", Name(header.type), " takes ", wanted));
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

absl::StatusOr<NpyArray> ReadNpy(const std::string& path) {
  // O_NONBLOCK: a FIFO that nobody writes to would be waited for.
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

  // Reads [offset, offset + bytes) of the file, or as much of it as there is.
  const auto read_at = [&](char* to, int64_t bytes, int64_t offset) -> absl::StatusOr<int64_t> {
    int64_t done = 0;
    while (done < bytes) {
      const ssize_t n =
          pread(fd, to + done, std::min(bytes - done, int64_t{1} << 30), offset + done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus("cannot read", path, errno);
      if (n == 0) break;
      done += n;
    }
    return done;
  };

  std::string preamble(std::min<int64_t>(kLongestNpyPreamble, info.st_size), '\0');
  absl::StatusOr<int64_t> n = read_at(&preamble[0], static_cast<int64_t>(preamble.size()), 0);
  if (!n.ok()) return n.status();
  absl::StatusOr<NpyHeader> header =
      ParseNpyHeader(path, absl::string_view(preamble).substr(0, *n));
  if (!header.ok()) return header.status();
  if (absl::Status s = CheckLength(path, *header, info.st_size); !s.ok()) return s;
  absl::StatusOr<Buffer> data = Buffer::Allocate(Device::Cpu(), header->NumBytes());
  if (!data.ok()) {
    return absl::Status(data.status().code(), absl::StrCat(path, ": ", data.status().message()));
  }
  n = read_at(static_cast<char*>(data->data()), header->NumBytes(), header->data_offset);
  if (!n.ok()) return n.status();
  if (*n != header->NumBytes()) return Invalid(path, "became shorter while it was read");
  return NpyArray{*std::move(header), *std::move(data)};
}

absl::Status WriteNpy(const std::string& path, NpyType type, absl::Span<const int64_t> shape,
                      const void* data) {
  NpyHeader header;
  header.type = type;
  header.shape.assign(shape.begin(), shape.end());
  if (absl::Status s = CheckNpySize(path, header); !s.ok()) return s;
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
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
