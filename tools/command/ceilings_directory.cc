#include "tools/command/ceilings_directory.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "profiling/ceilings_cache.h"

namespace attnlab::command {
namespace {

// The variable's value, if that is a relative path.
std::string Relative(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr || value[0] == '/' ? "" : value;
}

}  // namespace

CeilingsDirectory FindCeilingsDirectory() {
  CeilingsDirectory directory = {profiling::CacheDirectory(), ""};
  // Of a relative HOME: it would be another directory wherever the command is run.
  if (!directory.path.empty() && directory.path[0] != '/') directory.path.clear();
  for (const char* variable : {"XDG_CACHE_HOME", "HOME"}) {
    const std::string value = Relative(variable);
    if (value.empty() || !directory.remark.empty()) continue;
    if (!directory.path.empty() && std::string(variable) == "HOME") continue;
    directory.remark = absl::StrCat(
        variable, ": ", value, " is a relative path, which is not followed; ",
        directory.path.empty() ? "the ceilings are not kept"
                               : absl::StrCat("the ceilings are kept in ", directory.path));
  }
  return directory;
}

}  // namespace attnlab::command
