// Reads profiles from files, and writes their pages.
#ifndef PROFILING_REPORT_REPORT_FILE_H_
#define PROFILING_REPORT_REPORT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace attnlab::profiling {

// Reads a file with the output of `attnlab profile --json`. InvalidArgument if it is something
// else, or if no call was measured; otherwise errors of ReadFile() (tools/lib/files.h).
absl::StatusOr<nlohmann::ordered_json> ReadProfile(const std::string& path);

// Writes the page of the profile, completely or not at all. Errors are those of AtomicFile
// (tools/lib/files.h).
absl::Status WriteHtmlReport(const nlohmann::ordered_json& profile, const std::string& path);

}  // namespace attnlab::profiling

#endif  // PROFILING_REPORT_REPORT_FILE_H_
