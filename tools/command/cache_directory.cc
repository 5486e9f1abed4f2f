#include "tools/command/cache_directory.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace attnlab::command {

CacheDirectory FindCacheDirectory(absl::string_view what) {
  constexpr struct {
    const char *variable, *below;
  } kPlaces[] = {{"XDG_CACHE_HOME", "/attnlab"}, {"HOME", "/.cache/attnlab"}};
  CacheDirectory directory;
  std::string relative;
  for (const auto& place : kPlaces) {
    const char* const value = std::getenv(place.variable);
    if (value == nullptr || value[0] == '\0') continue;
    if (value[0] == '/') {
      directory.path = absl::StrCat(value, place.below);
      break;
    }
    // A relative path would mean another directory each time the command runs elsewhere.
    if (relative.empty()) relative = absl::StrCat(place.variable, ": ", value);
  }
  if (relative.empty()) return directory;
  directory.remark = absl::StrCat(
      relative, " is a relative path, which is not followed; ", what,
      directory.path.empty() ? " are not kept" : absl::StrCat(" are kept in ", directory.path));
  return directory;
}

}  // namespace attnlab::command
