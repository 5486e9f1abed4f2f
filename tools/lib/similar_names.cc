#include "tools/lib/similar_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attnlab {
namespace {

// The edit distance: letters to insert, remove or replace.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // from what is seen of `a` to the beginnings of `b`
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j < row.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> SimilarNames(absl::string_view name, absl::Span<const std::string> names,
                                      size_t most) {
  if (name.empty()) return {};
  const std::string wanted = absl::AsciiStrToLower(name);
  const size_t farthest = std::max(std::min<size_t>(2, wanted.size() / 2), wanted.size() / 3);
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& n : names) {
    const size_t lengths = n.size() > wanted.size() ? n.size() - wanted.size() : 0;
    if (lengths > farthest) continue;
    const size_t distance = Distance(wanted, absl::AsciiStrToLower(n));
    // If no letter would stay, the names are not similar.
    if (distance <= farthest && distance < n.size()) near.emplace_back(distance, n);
  }
  const bool by_prefix = near.empty();
  if (by_prefix) {
    for (const std::string& n : names) {
      if (absl::StartsWithIgnoreCase(n, wanted)) near.emplace_back(n.size(), n);
    }
  }
  std::sort(near.begin(), near.end());
  std::vector<std::string> similar;
  for (auto& [distance, n] : near) {
    if (similar.size() == most) break;
    // If one differs by a letter, drop those that differ by many.
    if (!by_prefix && distance > near.front().first + 1) break;
    similar.push_back(std::move(n));
  }
  return similar;
}

std::string DidYouMean(absl::Span<const std::string> names) {
  if (names.empty()) return "";
  const std::string others = absl::StrJoin(names.first(names.size() - 1), ", ");
  return absl::StrCat("; did you mean ", others, others.empty() ? "" : " or ", names.back(), "?");
}

std::string DidYouMean(absl::string_view name, absl::Span<const std::string> names) {
  return DidYouMean(SimilarNames(name, names, 1));
}

}  // namespace attnlab
