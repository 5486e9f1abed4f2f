// Names similar to an unknown one: what a user may have meant.
#ifndef TOOLS_LIB_SIMILAR_NAMES_H_
#define TOOLS_LIB_SIMILAR_NAMES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace attnlab {

// At most `most` of `names`, the nearest first: those within an edit distance of a third of its
// letters (2 for a short name); if there are none, those that begin with it. Ignores case.
std::vector<std::string> SimilarNames(absl::string_view name, absl::Span<const std::string> names,
                                      size_t most);

// "; did you mean a, b or c?", or nothing.
std::string DidYouMean(absl::Span<const std::string> names);

// The same for the most similar of `names`.
std::string DidYouMean(absl::string_view name, absl::Span<const std::string> names);

}  // namespace attnlab

#endif  // TOOLS_LIB_SIMILAR_NAMES_H_
