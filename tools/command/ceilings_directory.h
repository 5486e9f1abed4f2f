// The directory in which `attnlab profile` keeps the ceilings of a GPU.
#ifndef TOOLS_COMMAND_CEILINGS_DIRECTORY_H_
#define TOOLS_COMMAND_CEILINGS_DIRECTORY_H_

#include <string>

namespace attnlab::command {

struct CeilingsDirectory {
  std::string path;    // absolute; "": ceilings are not kept
  std::string remark;  // a warning if a variable has a relative path, which is ignored; else ""
};

// $XDG_CACHE_HOME/attnlab or ~/.cache/attnlab.
CeilingsDirectory FindCeilingsDirectory();

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_CEILINGS_DIRECTORY_H_
