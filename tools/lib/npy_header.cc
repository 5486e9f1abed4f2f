#include "tools/lib/npy_header.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace attnlab {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr int64_t kMagicBytes = 6;
constexpr int64_t kLongestHeader = 65535;  // NumPy itself stops at 10,000 for files it distrusts
static_assert(kLongestNpyPreamble == kMagicBytes + 2 + 4 + kLongestHeader, "");
constexpr int64_t kMostAxes = 64;  // as NumPy 2
constexpr int64_t kMostBytes = int64_t{1} << 60;

struct TypeFacts {
  int64_t size;
  absl::string_view name, descr;
};

// In the order of NpyType.
constexpr TypeFacts kTypeFacts[] = {{2, "fp16", "<f2"}, {4, "fp32", "<f4"},  {8, "fp64", "<f8"},
                                    {2, "bf16", "<V2"}, {4, "int32", "<i4"}, {8, "int64", "<i8"}};

const TypeFacts& FactsOf(NpyType type) { return kTypeFacts[static_cast<size_t>(type)]; }

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
  for (NpyType type : kAllNpyTypes) {
    if (descr == Descr(type)) return type;
  }
  if (descr == "|V2") return NpyType::kBFloat16;
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
        return Invalid(file_, absl::StrCat("shape: expected an extent, ',' or ')', found ",
                                           Quoted(rest_.substr(0, 20))));
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

}  // namespace

int64_t SizeOf(NpyType type) { return FactsOf(type).size; }
absl::string_view Name(NpyType type) { return FactsOf(type).name; }
absl::string_view Descr(NpyType type) { return FactsOf(type).descr; }

int64_t NpyHeader::NumElements() const {
  int64_t count = 1;
  // Zero first: the product of the others may not fit where one extent is zero.
  if (std::count(shape.begin(), shape.end(), 0) > 0) return 0;
  for (int64_t extent : shape) count *= extent;
  return count;
}

absl::Status CheckNpySize(absl::string_view file, const NpyHeader& header) {
  int64_t bytes = SizeOf(header.type);
  const bool empty = std::count(header.shape.begin(), header.shape.end(), 0) > 0;
  for (int64_t extent : header.shape) {
    if (extent < 0) return Invalid(file, absl::StrCat("shape: ", extent, " is negative"));
    if (empty) continue;
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > kMostBytes) {
      return Invalid(file,
                     absl::StrCat("shape: (", absl::StrJoin(header.shape, ", "), ") elements of ",
                                  SizeOf(header.type), " bytes exceed 2^60 bytes"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view name, absl::string_view bytes) {
  const absl::string_view magic(kMagic, kMagicBytes);
  if (bytes.empty()) return Invalid(name, "is empty, not a .npy file");
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
  if (absl::Status s = CheckNpySize(name, header); !s.ok()) return s;
  return header;
}

std::string NpyPreamble(NpyType type, absl::Span<const int64_t> shape) {
  std::string header =
      absl::StrCat("{'descr': '", Descr(type), "', 'fortran_order': False, 'shape': (",
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

}  // namespace attnlab
