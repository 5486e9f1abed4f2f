// Reads and writes NumPy's .npy files, format versions 1.0, 2.0 and 3.0.
//
// The format is described in numpy/lib/_format_impl.py: a magic string, a version, the length of
// a header, the header (a Python dictionary of descr, fortran_order and shape), and the elements.
// This code takes C order and little endian, and these types:
//
//   descr          here                 in NumPy
//   <f4            fp32                 float32
//   <f2            fp16                 float16
//   <f8            fp64                 float64
//   <V2, |V2       bf16                 ml_dtypes.bfloat16
//   <i4, <i8       int32, int64         int32, int64: lengths
//
// NumPy has no bfloat16 of its own. The ml_dtypes package adds one. numpy.save writes it with the
// descr '<V2' (seen with NumPy 2.4 and ml_dtypes 0.6), and numpy.load reads it as raw "V2":
// numpy.load(path).view(ml_dtypes.bfloat16) is the array.
//
//   absl::StatusOr<NpyArray> q = ReadNpy("q.npy");
//   absl::Status s = WriteNpy("o.npy", NpyType::kFloat32, {2, 512, 8, 64}, data);
//
// Every error names the file, the field and the value:
//   q.npy: fortran_order: True is not supported; numpy.ascontiguousarray(x) makes it False
#ifndef TOOLS_TENSOR_FILES_NPY_H_
#define TOOLS_TENSOR_FILES_NPY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attention/core/dtype.h"
#include "attention/cuda/memory.h"
#include "tools/lib/npy_header.h"

namespace attnlab {

struct NpyArray {
  NpyHeader header;
  Buffer data;  // on the host, header.NumBytes() bytes
};

// The type of a tensor's elements in a file. `dtype` is fp32, fp16 or bf16.
NpyType NpyTypeOf(DType dtype);

// Parses a whole file in memory.
absl::StatusOr<NpyArray> ParseNpy(absl::string_view name, absl::string_view bytes);

// Reads a file, or for "-" the standard input, which may be a pipe. It compares a file's size with
// the header before it allocates memory, so a damaged header costs nothing. NotFound,
// PermissionDenied, … for a file that cannot be read. InvalidArgument for one that is not a .npy of
// the types above, is truncated, or has bytes after its elements.
absl::StatusOr<NpyArray> ReadNpy(const std::string& path);

// Writes a file, completely or not at all (AtomicFile), or for "-" the standard output. The version
// is 1.0, or 2.0 if the shape needs a longer header.
absl::Status WriteNpy(const std::string& path, NpyType type, absl::Span<const int64_t> shape,
                      const void* data);

// Element `index` as a double. An int64 above 2^53 is rounded.
double LoadAsDouble(const NpyArray& array, int64_t index);

}  // namespace attnlab

#endif  // TOOLS_TENSOR_FILES_NPY_H_
