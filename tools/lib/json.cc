#include "tools/lib/json.h"

#include <cstdlib>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attnlab {

std::string Dump(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string CommitOfEnvironment() {
  const char* const commit = std::getenv("ATTNLAB_COMMIT");
  return commit == nullptr ? "" : commit;
}

absl::StatusOr<JsonFile> JsonFile::Create(const std::string& path) {
  JsonFile json;
  if (path.empty()) return json;
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(ResolvePath(path));
  if (!file.ok()) {
    return absl::Status(file.status().code(), absl::StrCat("--json: ", file.status().message()));
  }
  json.file_.emplace(*std::move(file));
  return json;
}

absl::Status JsonFile::Write(const Json& json) {
  if (!file_) return absl::OkStatus();
  const absl::Status s = file_->Append(Dump(json));
  return s.ok() ? file_->Commit() : s;
}

}  // namespace attnlab
