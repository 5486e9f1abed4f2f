// Results as JSON: text, files, and the facts that every result records about its run.
#ifndef TOOLS_LIB_JSON_H_
#define TOOLS_LIB_JSON_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tools/lib/files.h"

namespace attnlab {

using Json = nlohmann::ordered_json;

// Indented, and safe for text that is not UTF-8, such as a file name.
std::string Dump(const Json& json);

// "2025-01-31T12:00:00Z", now.
std::string UtcNow();

// $ATTNLAB_COMMIT, or "".
std::string CommitOfEnvironment();

// The file of --json=FILE. It is created first, so that errors appear before the measurements. The
// old file stays until Write().
class JsonFile {
 public:
  // An empty path means no file. A relative path starts at the caller's directory (ResolvePath()).
  // Errors begin with "--json: ".
  static absl::StatusOr<JsonFile> Create(const std::string& path);

  absl::Status Write(const Json& json);

 private:
  std::optional<AtomicFile> file_;
};

}  // namespace attnlab

#endif  // TOOLS_LIB_JSON_H_
