// attnlab profile in a build without a CUDA toolkit.
#include "tools/command/command.h"
#include "tools/command/profile_without.h"

namespace attnlab::command {

int Profile(const Arguments& arguments, const Streams& streams) {
  return ProfileWithout(
      arguments, streams,
      "this program was built without a CUDA toolkit, whose CUPTI reads the counters; `./bazelw "
      "build //tools:attnlab` makes one that has it where nvcc is on PATH or CUDA_HOME=DIR says "
      "where a toolkit is");
}

}  // namespace attnlab::command
