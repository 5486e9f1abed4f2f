#include "profiling/kernel_name.h"

#include <cxxabi.h>

#include <cstdlib>
#include <string>

#include "absl/strings/match.h"

namespace attnlab::profiling {

std::string Demangled(const char* name) {
  int status = 0;
  char* const plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string demangled = status == 0 ? plain : name;
  std::free(plain);
  return demangled;
}

std::string ShortName(absl::string_view name) {
  // Drop template arguments, which may contain "::", "(" and spaces.
  const std::string anonymous = "(anonymous namespace)::";
  std::string plain;
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (absl::StartsWith(name.substr(i), anonymous)) {
      i += anonymous.size() - 1;
      continue;
    }
    const char c = name[i];
    if (depth == 0 && c == '(') break;  // parameters
    if (c == '<') ++depth;
    if (depth == 0) plain += c;
    if (c == '>') --depth;
  }
  const size_t space = plain.rfind(' ');
  if (space != std::string::npos) plain = plain.substr(space + 1);  // the return type
  const size_t colons = plain.rfind("::");
  if (colons != std::string::npos) plain = plain.substr(colons + 2);
  return plain.empty() ? std::string(name) : plain;
}

}  // namespace attnlab::profiling
