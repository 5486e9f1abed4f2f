#include "profiling/report/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace attnlab::profiling {
namespace {

// The JSON replaces this part of the template.
constexpr absl::string_view kPlaceholder = "@PROFILE@";

constexpr unsigned char kTemplate[] = {
#include "profiling/report/template.inc"
};

absl::string_view Template() {
  return absl::string_view(reinterpret_cast<const char*>(kTemplate), sizeof(kTemplate));
}

}  // namespace

std::string HtmlReport(const nlohmann::ordered_json& profile) {
  const std::string json = profile.dump(-1, ' ', /*ensure_ascii=*/false,
                                        nlohmann::ordered_json::error_handler_t::replace);
  // JSON has "<" only inside strings, so this leaves none: neither "</script>", which would end the
  // element, nor "<!--", after which "</script>" would not end it.
  const std::string escaped = absl::StrReplaceAll(json, {{"<", "\\u003c"}});
  const size_t at = Template().find(kPlaceholder);
  return absl::StrCat(Template().substr(0, at), escaped,
                      Template().substr(at + kPlaceholder.size()));
}

}  // namespace attnlab::profiling
