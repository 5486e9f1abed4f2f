// The directory in which attnlab keeps what it measures once per machine: the ceilings of a GPU, and
// tuned configurations.
#ifndef TOOLS_COMMAND_CACHE_DIRECTORY_H_
#define TOOLS_COMMAND_CACHE_DIRECTORY_H_

#include <string>

#include "absl/strings/string_view.h"

namespace attnlab::command {

struct CacheDirectory {
  std::string path;    // absolute; "": there is none
  std::string remark;  // a warning if a variable has a relative path, which is ignored; else ""
};

// $XDG_CACHE_HOME/attnlab or ~/.cache/attnlab. `what` is kept there, in the words of the remark: "the
// ceilings".
CacheDirectory FindCacheDirectory(absl::string_view what);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_CACHE_DIRECTORY_H_
