// make_report IN.json OUT.html: the page of a profile that `attnlab profile --json` printed.
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "profiling/report/report.h"
#include "tools/files.h"

namespace attnlab::profiling {
namespace {

absl::Status MakeReport(const std::string& in, const std::string& out) {
  const absl::StatusOr<std::string> text = ReadFile(in, int64_t{1} << 30);
  if (!text.ok()) return text.status();
  const auto profile = nlohmann::ordered_json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (profile.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(in, ": not JSON"));
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(out);
  if (!file.ok()) return file.status();
  const std::string page = HtmlReport(profile);
  const absl::Status s = file->Append(page.data(), static_cast<int64_t>(page.size()));
  return s.ok() ? file->Commit() : s;
}

}  // namespace
}  // namespace attnlab::profiling

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: make_report IN.json OUT.html\n");
    return 2;
  }
  const absl::Status s =
      attnlab::profiling::MakeReport(attnlab::ResolvePath(argv[1]), attnlab::ResolvePath(argv[2]));
  if (s.ok()) return 0;
  std::fprintf(stderr, "make_report: %s\n", std::string(s.message()).c_str());
  return 1;
}
