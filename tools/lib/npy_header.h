// The header of a .npy file: type, shape, and their text.
#ifndef TOOLS_LIB_NPY_HEADER_H_
#define TOOLS_LIB_NPY_HEADER_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace attnlab {

// The types of elements that are read and written.
enum class NpyType { kFloat16, kFloat32, kFloat64, kBFloat16, kInt32, kInt64 };

constexpr std::array<NpyType, 6> kAllNpyTypes = {NpyType::kFloat16, NpyType::kFloat32,
                                                 NpyType::kFloat64, NpyType::kBFloat16,
                                                 NpyType::kInt32,   NpyType::kInt64};

int64_t SizeOf(NpyType type);
absl::string_view Name(NpyType type);   // "fp16", …, "int64"
absl::string_view Descr(NpyType type);  // as NumPy writes it: "<f2", …, "<i8"

struct NpyHeader {
  NpyType type = NpyType::kFloat32;
  std::vector<int64_t> shape;  // empty: one element, a scalar
  int64_t data_offset = 0;     // bytes from the start of the file to the first element

  int64_t NumElements() const;
  int64_t NumBytes() const { return NumElements() * SizeOf(type); }
};

// The longest preamble: the header and what precedes it.
constexpr int64_t kLongestNpyPreamble = 6 + 2 + 4 + 65535;

// Parses the header at the start of `bytes`, which may end anywhere after it. `name` is the file's
// name for messages. The shape has at most 64 axes and the elements at most 2^60 bytes.
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view name, absl::string_view bytes);

// The bytes of a file before the elements, for other writers and tests.
std::string NpyPreamble(NpyType type, absl::Span<const int64_t> shape);

// InvalidArgument if an extent is negative or the elements exceed 2^60 bytes.
absl::Status CheckNpySize(absl::string_view name, const NpyHeader& header);

}  // namespace attnlab

#endif  // TOOLS_LIB_NPY_HEADER_H_
