// attnlab profile in a build with a CUDA toolkit that lacks the CUPTI it wants.
#include "tools/command/command.h"
#include "tools/command/profile_without.h"

namespace attnlab::command {

int Profile(const Arguments& arguments, const Streams& streams) {
  return ProfileWithout(
      arguments, streams,
      "this program was built with a CUDA toolkit that has no CUPTI, which reads the counters, or "
      "none that counts ranges (cupti_range_profiler.h, from CUDA 12.6 on): install the toolkit's "
      "CUPTI and build it again");
}

}  // namespace attnlab::command
