// The types of elements that .npy files (npy.h) are read and written with.
#ifndef TOOLS_NPY_TYPE_H_
#define TOOLS_NPY_TYPE_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "attention/dtype.h"

namespace attnlab {

enum class NpyType { kFloat16, kFloat32, kFloat64, kBFloat16, kInt32, kInt64 };

constexpr std::array<NpyType, 6> kAllNpyTypes = {NpyType::kFloat16, NpyType::kFloat32,
                                                 NpyType::kFloat64, NpyType::kBFloat16,
                                                 NpyType::kInt32,   NpyType::kInt64};

int64_t SizeOf(NpyType type);
absl::string_view Name(NpyType type);   // "fp16", …, "int64"
absl::string_view Descr(NpyType type);  // as NumPy writes it: "<f2", …, "<i8"

// The NumPy type of elements of a tensor. `dtype` is fp32, fp16 or bf16.
NpyType NpyTypeOf(DType dtype);

}  // namespace attnlab

#endif  // TOOLS_NPY_TYPE_H_
