#include "tools/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tools/files.h"

namespace attnlab {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr int64_t kMagicBytes = 6;
constexpr int64_t kLongestHeader = 65535;  // NumPy itself stops at 10,000 for files it distrusts
constexpr int64_t kLongestPreamble = kMagicBytes + 2 + 4 + kLongestHeader;
constexpr int64_t kMostAxes = 64;  // as NumPy 2
constexpr int64_t kMostBytes = int64_t{1} << 60;

absl::Status Invalid(absl::string_view file, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", message));
}

// A value of a damaged file, fit to print.
std::string Quoted(absl::string_view text) {
  constexpr size_t kLongest = 60;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kLongest)),
                      text.size() > kLongest ? "…" : "", "'");
}

absl::StatusOr<NpyType> ParseDescr(absl::string_view file, absl::string_view descr) {
  if (descr == "<f4") return NpyType::kFloat32;
  if (descr == "<f2") return NpyType::kFloat16;
  if (descr == "<f8") return NpyType::kFloat64;
  if (descr == "<i4") return NpyType::kInt32;
  if (descr == "<i8") return NpyType::kInt64;
  if (descr == "<V2" || descr == "|V2") return NpyType::kBFloat16;
  if (absl::StartsWith(descr, ">")) {
    return Invalid(file, absl::StrCat("descr: ", Quoted(descr),
                                      " is big endian; numpy: x.astype(x.dtype.newbyteorder('<'))"
                                      " makes it little endian"));
  }
  return Invalid(file,
                 absl::StrCat("descr: ", Quoted(descr),
                              " is not one of '<f2', '<f4', '<f8', '<V2' (bf16), '<i4', '<i8'"));
}

// A cursor over the header: as much of Python's literals as numpy.save writes.
class HeaderParser {
 public:
  HeaderParser(absl::string_view file, absl::string_view text) : file_(file), rest_(text) {}

  absl::Status Parse(NpyHeader* header) {
    bool has_descr = false, has_order = false, has_shape = false;
    if (!Take('{')) return Malformed("does not begin with '{'");
    while (!Take('}')) {
      absl::string_view key;
      if (!TakeString(&key)) return Malformed("a key is not a string");
      if (!Take(':')) return Malformed(absl::StrCat("no ':' behind the key ", Quoted(key)));
      absl::Status s;
      bool* seen = key == "descr"           ? &has_descr
                   : key == "fortran_order" ? &has_order
                   : key == "shape"         ? &has_shape
                                            : nullptr;
      if (seen == nullptr) return Malformed(absl::StrCat("unknown key ", Quoted(key)));
      if (*seen) return Malformed(absl::StrCat("the key ", Quoted(key), " is there twice"));
      *seen = true;
      if (key == "descr") {
        s = ParseType(&header->type);
      } else if (key == "fortran_order") {
        s = ParseOrder();
      } else {
        s = ParseShape(&header->shape);
      }
      if (!s.ok()) return s;
      if (!Take(',') && !Peek('}')) return Malformed("no ',' or '}' behind a value");
    }
    SkipBlanks();
    if (!rest_.empty()) {
      return Malformed(absl::StrCat("goes on behind '}' with ", Quoted(rest_)));
    }
    if (!has_descr) return Malformed("has no key 'descr'");
    if (!has_order) return Malformed("has no key 'fortran_order'");
    if (!has_shape) return Malformed("has no key 'shape'");
    return absl::OkStatus();
  }

 private:
  absl::Status Malformed(absl::string_view message) const {
    return Invalid(file_, absl::StrCat("header: ", message));
  }

  void SkipBlanks() { rest_ = absl::StripLeadingAsciiWhitespace(rest_); }

  bool Peek(char c) {
    SkipBlanks();
    return !rest_.empty() && rest_[0] == c;
  }

  bool Take(char c) {
    if (!Peek(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool TakeString(absl::string_view* value) {
    if (!Peek('\'') && !Peek('"')) return false;
    const size_t end = rest_.find(rest_[0], 1);
    if (end == absl::string_view::npos) return false;
    *value = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return true;
  }

  absl::Status ParseType(NpyType* type) {
    if (Peek('[')) {
      return Invalid(file_, "descr: is a structured type, not one of plain numbers");
    }
    absl::string_view descr;
    if (!TakeString(&descr)) return Malformed("the value of 'descr' is not a string");
    absl::StatusOr<NpyType> parsed = ParseDescr(file_, descr);
    if (!parsed.ok()) return parsed.status();
    *type = *parsed;
    return absl::OkStatus();
  }

  absl::Status ParseOrder() {
    SkipBlanks();
    if (absl::ConsumePrefix(&rest_, "False")) return absl::OkStatus();
    if (absl::ConsumePrefix(&rest_, "True")) {
      return Invalid(file_,
                     "fortran_order: True is not supported; numpy.ascontiguousarray(x) makes it "
                     "False");
    }
    return Malformed("the value of 'fortran_order' is neither True nor False");
  }

  absl::Status ParseShape(std::vector<int64_t>* shape) {
    if (!Take('(')) return Malformed("the value of 'shape' does not begin with '('");
    bool comma = true;  // before the next extent
    while (!Take(')')) {
      SkipBlanks();
      size_t digits = 0;
      while (digits < rest_.size() && absl::ascii_isdigit(rest_[digits])) ++digits;
      int64_t extent = 0;
      if (!comma || digits == 0) {
        return Invalid(file_, absl::StrCat("shape: ", Quoted(rest_.substr(0, 20)),
                                           " where an extent, ',' or ')' is wanted"));
      }
      if (!absl::SimpleAtoi(rest_.substr(0, digits), &extent)) {
        return Invalid(file_, absl::StrCat("shape: the extent ", rest_.substr(0, digits),
                                           " is above 2^63 - 1"));
      }
      shape->push_back(extent);
      if (static_cast<int64_t>(shape->size()) > kMostAxes) {
        return Invalid(file_, absl::StrCat("shape: has more than ", kMostAxes, " axes"));
      }
      rest_.remove_prefix(digits);
      comma = Take(',');
    }
    // "(3)" is a number in Python, not a shape.
    if (shape->size() == 1 && !comma) return Invalid(file_, "shape: no ',' behind the one extent");
    return absl::OkStatus();
  }

  absl::string_view file_;
  absl::string_view rest_;
};

absl::Status CheckSize(absl::string_view file, const NpyHeader& header) {
  int64_t bytes = SizeOf(header.type);
  const bool empty = std::count(header.shape.begin(), header.shape.end(), 0) > 0;
  for (int64_t extent : header.shape) {
    if (empty) break;
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > kMostBytes) {
      return Invalid(file,
                     absl::StrCat("shape: (", absl::StrJoin(header.shape, ", "), ") elements of ",
                                  SizeOf(header.type), " bytes exceed 2^60 bytes"));
    }
  }
  return absl::OkStatus();
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

int64_t SizeOf(NpyType type) {
  switch (type) {
    case NpyType::kFloat16:
    case NpyType::kBFloat16:
      return 2;
    case NpyType::kFloat32:
    case NpyType::kInt32:
      return 4;
    case NpyType::kFloat64:
    case NpyType::kInt64:
      return 8;
  }
  return 0;
}

absl::string_view Name(NpyType type) {
  switch (type) {
    case NpyType::kFloat16:
      return "fp16";
    case NpyType::kFloat32:
      return "fp32";
    case NpyType::kFloat64:
      return "fp64";
    case NpyType::kBFloat16:
      return "bf16";
    case NpyType::kInt32:
      return "int32";
    case NpyType::kInt64:
      return "int64";
  }
  return "unknown";
}

NpyType NpyTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return NpyType::kFloat16;
    case DType::kBFloat16:
      return NpyType::kBFloat16;
    case DType::kFloat32:
    case DType::kFloat8E4M3:
      break;
  }
  return NpyType::kFloat32;
}

int64_t NpyHeader::NumElements() const {
  int64_t count = 1;
  // Zero first: the product of the others may not fit where one extent is zero.
  if (std::count(shape.begin(), shape.end(), 0) > 0) return 0;
  for (int64_t extent : shape) count *= extent;
  return count;
}

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view name, absl::string_view bytes) {
  const absl::string_view magic(kMagic, kMagicBytes);
  if (absl::StartsWith(bytes, "PK\x03\x04")) {
    return Invalid(name,
                   "is a zip archive, such as a .npz; numpy.save(file, archive['name']) makes a "
                   ".npy of one array");
  }
  if (!absl::StartsWith(bytes, magic)) {
    return Invalid(name,
                   absl::StrCat("is not a .npy file: it begins with ",
                                Quoted(bytes.substr(0, kMagicBytes)), ", not ", Quoted(magic)));
  }
  bytes.remove_prefix(kMagicBytes);
  if (bytes.size() < 2) return Invalid(name, "is cut short in the version");
  const int major = static_cast<uint8_t>(bytes[0]);
  const int minor = static_cast<uint8_t>(bytes[1]);
  if (major < 1 || major > 3 || minor != 0) {
    return Invalid(name, absl::StrCat("version: ", major, ".", minor, " is not 1.0, 2.0 or 3.0"));
  }
  bytes.remove_prefix(2);
  const int64_t length_bytes = major == 1 ? 2 : 4;
  if (static_cast<int64_t>(bytes.size()) < length_bytes) {
    return Invalid(name, "is cut short in the header length");
  }
  int64_t length = 0;
  for (int64_t i = 0; i < length_bytes; ++i) {
    length |= int64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  bytes.remove_prefix(length_bytes);
  if (length > kLongestHeader) {
    return Invalid(name, absl::StrCat("header length: ", length, " is above ", kLongestHeader));
  }
  if (static_cast<int64_t>(bytes.size()) < length) {
    return Invalid(
        name, absl::StrCat("is cut short in the header: ", bytes.size(), " of ", length, " bytes"));
  }
  NpyHeader header;
  header.data_offset = kMagicBytes + 2 + length_bytes + length;
  if (absl::Status s = HeaderParser(name, bytes.substr(0, length)).Parse(&header); !s.ok()) {
    return s;
  }
  if (absl::Status s = CheckSize(name, header); !s.ok()) return s;
  return header;
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
  const auto error = [&path](absl::string_view action, int number) {
    const std::string message = absl::StrCat(path, ": ", action, ": ", strerror(number));
    if (number == ENOENT || number == ENOTDIR) return absl::NotFoundError(message);
    if (number == EACCES || number == EPERM) return absl::PermissionDeniedError(message);
    return absl::FailedPreconditionError(message);
  };
  if (fd < 0) return error("cannot open", errno);
  struct Closer {
    int fd;
    ~Closer() { close(fd); }
  } closer{fd};

  struct stat info;
  if (fstat(fd, &info) != 0) return error("cannot stat", errno);
  if (S_ISDIR(info.st_mode)) return Invalid(path, "is a directory, not a .npy file");
  if (!S_ISREG(info.st_mode)) return Invalid(path, "is not a regular file");

  // Reads [offset, offset + bytes) of the file, or as much of it as there is.
  const auto read_at = [&](char* to, int64_t bytes, int64_t offset) -> absl::StatusOr<int64_t> {
    int64_t done = 0;
    while (done < bytes) {
      const ssize_t n =
          pread(fd, to + done, std::min(bytes - done, int64_t{1} << 30), offset + done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return error("cannot read", errno);
      if (n == 0) break;
      done += n;
    }
    return done;
  };

  std::string preamble(std::min<int64_t>(kLongestPreamble, info.st_size), '\0');
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

std::string NpyPreamble(NpyType type, absl::Span<const int64_t> shape) {
  absl::string_view descr = "<f4";
  switch (type) {
    case NpyType::kFloat16:
      descr = "<f2";
      break;
    case NpyType::kFloat32:
      descr = "<f4";
      break;
    case NpyType::kFloat64:
      descr = "<f8";
      break;
    case NpyType::kBFloat16:
      descr = "<V2";
      break;
    case NpyType::kInt32:
      descr = "<i4";
      break;
    case NpyType::kInt64:
      descr = "<i8";
      break;
  }
  std::string header =
      absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  // Blanks and a newline, so that the elements begin at a multiple of 64 bytes.
  const auto pad = [&header](size_t before) {
    header.append(63 - (before + header.size()) % 64, ' ');
    header.push_back('\n');
  };
  std::string preamble(kMagic, kMagicBytes);
  const bool short_header = header.size() + 64 < 65536;
  preamble.push_back(short_header ? 1 : 2);
  preamble.push_back(0);
  const int length_bytes = short_header ? 2 : 4;
  pad(preamble.size() + length_bytes);
  for (int i = 0; i < length_bytes; ++i) {
    preamble.push_back(static_cast<char>((header.size() >> (8 * i)) & 0xFF));
  }
  return preamble + header;
}

absl::Status WriteNpy(const std::string& path, NpyType type, absl::Span<const int64_t> shape,
                      const void* data) {
  NpyHeader header;
  header.type = type;
  header.shape.assign(shape.begin(), shape.end());
  for (int64_t extent : shape) {
    if (extent < 0) return Invalid(path, absl::StrCat("shape: ", extent, " is negative"));
  }
  if (absl::Status s = CheckSize(path, header); !s.ok()) return s;
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
