// Readable names of kernels.
#ifndef PROFILING_KERNEL_NAME_H_
#define PROFILING_KERNEL_NAME_H_

#include <string>

#include "absl/strings/string_view.h"

namespace attnlab::profiling {

// "_ZN1a6KernelEv" becomes "a::Kernel()"; names that are not mangled stay as they are.
std::string Demangled(const char* name);

// "void a::b::Kernel<64, true>(float const*)" becomes "Kernel". Names that are not C++ stay as they
// are.
std::string ShortName(absl::string_view name);

}  // namespace attnlab::profiling

#endif  // PROFILING_KERNEL_NAME_H_
