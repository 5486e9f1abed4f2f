// Profiles and their pages as files.
#ifndef PROFILING_REPORT_REPORT_FILE_H_
#define PROFILING_REPORT_REPORT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace attnlab::profiling {

// What `attnlab profile --json` printed into the file. InvalidArgument where that is something
// else, or no call was measured; otherwise errors of ReadFile() (tools/lib/files.h).
absl::StatusOr<nlohmann::ordered_json> ReadProfile(const std::string& path);

// The page of the profile, all of it or none. Errors are those of AtomicFile (tools/lib/files.h).
absl::Status WriteHtmlReport(const nlohmann::ordered_json& profile, const std::string& path);

}  // namespace attnlab::profiling

#endif  // PROFILING_REPORT_REPORT_FILE_H_
