// Fuzzes ParseTrace: any text gives valid requests or an error that names a line or says that there
// are no requests.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "paged/replay/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using attnlab::paged::Request;
  const absl::StatusOr<std::vector<Request>> requests =
      attnlab::paged::ParseTrace({reinterpret_cast<const char*>(data), size});
  if (!requests.ok()) {
    const absl::string_view message = requests.status().message();
    if (!absl::IsInvalidArgument(requests.status()) || message.size() > 400) std::abort();
    if (!absl::StartsWith(message, "line ") &&
        !absl::StartsWith(message, "there are no requests")) {
      std::abort();
    }
    return 0;
  }
  if (requests->empty()) std::abort();
  for (const Request& request : *requests) {
    if (!attnlab::paged::Validate(request).ok()) std::abort();
  }
  return 0;
}
