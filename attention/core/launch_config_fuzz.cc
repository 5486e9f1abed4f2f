// Fuzzes LaunchConfig::Parse: any line gives a configuration or an error with a message, and a
// printed configuration parses back to itself.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/core/launch_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using attnlab::LaunchConfig;
  const absl::string_view line(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<LaunchConfig> config = LaunchConfig::Parse(line);
  if (!config.ok()) {
    if (config.status().message().empty()) std::abort();
    return 0;
  }
  const absl::StatusOr<LaunchConfig> again = LaunchConfig::Parse(config->ToString());
  if (!again.ok() || !(*again == *config)) std::abort();
  const absl::StatusOr<int64_t> tile = config->GetInteger("tile_q", 16, 1, 256);
  if (tile.ok() ? (*tile < 1 || *tile > 256) : tile.status().message().empty()) std::abort();
  return 0;
}
