// attnlab profile in a build without a CUDA toolkit.
#include "absl/status/status.h"
#include "tools/arguments.h"
#include "tools/command/command.h"

namespace attnlab::command {

int Profile(const Arguments&, const Streams& streams) {
  return Fail(streams, "profile",
              absl::UnimplementedError("this program was built without a CUDA toolkit, whose CUPTI "
                                       "reads the counters"));
}

}  // namespace attnlab::command
