// Shared by the files that implement attention_c.h: errors as codes, and reading and writing of
// structs of any version.
#ifndef ATTENTION_C_ATTENTION_C_INTERNAL_H_
#define ATTENTION_C_ATTENTION_C_INTERNAL_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "attention/c/attention_c.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"

namespace attnlab::c {

// The code of what `call` returns; an error's message becomes the thread's last one. No exception
// escapes. Large allocations report a Status; only small ones can still throw.
int32_t Report(absl::FunctionRef<absl::Status()> call);

// The thread's last message.
const char* LastError();

absl::Status Invalid(absl::string_view field, absl::string_view message);

// Checks the size field of a struct that has `known` bytes in this library. Fields are at most 8
// bytes and aligned, so a valid size cuts no field in two.
absl::Status CheckSize(absl::string_view name, uint64_t size, uint64_t known);

// Copies the fields of T that the caller's struct has, and zero for the rest. If the caller's
// struct is longer than ours, the bytes beyond ours must be zero.
template <typename T>
absl::StatusOr<T> Read(absl::string_view name, const T* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (from == nullptr) return Invalid(name, "is null");
  const uint64_t size = from->size;
  if (absl::Status s = CheckSize(name, size, sizeof(T)); !s.ok()) return s;
  T copy;
  std::memset(&copy, 0, sizeof(copy));
  std::memcpy(&copy, from, std::min<uint64_t>(size, sizeof(T)));
  const char* bytes = reinterpret_cast<const char*>(from);
  for (uint64_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return Invalid(name, absl::StrCat("byte ", i, " of ", size,
                                        " is set, in a field that this library, of interface "
                                        "version ",
                                        ATTNLAB_ABI_VERSION, ", does not know"));
    }
  }
  return copy;
}

// Fills in the caller's struct, of which only the size is set: as much of `value` as fits, and zero
// for fields that we do not know.
template <typename T>
absl::Status Write(absl::string_view name, T value, T* to) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (to == nullptr) return Invalid(name, "is null");
  const uint64_t size = to->size;
  if (absl::Status s = CheckSize(name, size, sizeof(T)); !s.ok()) return s;
  value.size = size;
  std::memcpy(to, &value, std::min<uint64_t>(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(reinterpret_cast<char*>(to) + sizeof(T), 0, size - sizeof(T));
  return absl::OkStatus();
}

absl::StatusOr<Device> ReadDevice(int32_t kind, int32_t ordinal);
absl::StatusOr<AttentionProblem> ReadProblem(const attnlab_problem* from);
attnlab_problem ToC(const AttentionProblem& problem);
absl::StatusOr<TensorView> ReadTensor(absl::string_view name, const attnlab_tensor* from);

// The tensors of a call. They are well-formed, but may not fit the problem. The problem gives the
// number of lengths, because C passes only pointers.
absl::StatusOr<AttentionTensors> ReadTensors(const AttentionProblem& problem,
                                             const attnlab_forward_args& args);

}  // namespace attnlab::c

#endif  // ATTENTION_C_ATTENTION_C_INTERNAL_H_
