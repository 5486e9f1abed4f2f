#include "profiling/report/report_file.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "profiling/report/report.h"
#include "tools/files.h"

namespace attnlab::profiling {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostBytes = int64_t{1} << 30;

}  // namespace

absl::StatusOr<Json> ReadProfile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMostBytes);
  if (!text.ok()) return text.status();
  const auto not_one = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", why, "; `attnlab profile --json` prints what is wanted here"));
  };
  Json profile = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (profile.is_discarded()) return not_one("is not JSON");
  const Json command = profile.is_object() ? profile.value("command", Json()) : Json();
  if (command != "profile") {
    return not_one(command.is_string() ? absl::StrCat("is of `attnlab ", command.get<std::string>(),
                                                      "`, not a profile")
                                       : "is no profile: it has no \"command\": \"profile\"");
  }
  const Json rows = profile.value("rows", Json());
  if (!rows.is_array() || rows.empty()) return not_one("has no rows");
  return profile;
}

absl::Status WriteHtmlReport(const Json& profile, const std::string& path) {
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  const std::string page = HtmlReport(profile);
  const absl::Status s = file->Append(page.data(), static_cast<int64_t>(page.size()));
  return s.ok() ? file->Commit() : s;
}

}  // namespace attnlab::profiling
