// Where `attnlab profile` keeps the ceilings of a GPU, and what a user is told of it.
#ifndef TOOLS_COMMAND_CEILINGS_DIRECTORY_H_
#define TOOLS_COMMAND_CEILINGS_DIRECTORY_H_

#include <string>

namespace attnlab::command {

struct CeilingsDirectory {
  std::string path;    // absolute; "" for nowhere
  std::string remark;  // where the environment has a relative path, which is not followed; else ""
};

// $XDG_CACHE_HOME/attnlab or ~/.cache/attnlab.
CeilingsDirectory FindCeilingsDirectory();

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_CEILINGS_DIRECTORY_H_
