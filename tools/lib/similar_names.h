// Names like one that there is not: what a user may have meant.
#ifndef TOOLS_LIB_SIMILAR_NAMES_H_
#define TOOLS_LIB_SIMILAR_NAMES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace attnlab {

// At most `most` of `names`, the nearest first: those that at most a third of its letters would
// have to change for (2 of a short name, 1 of 2 or 3 letters); if there are none, those that begin
// with it. Case does not matter.
std::vector<std::string> SimilarNames(absl::string_view name, absl::Span<const std::string> names,
                                      size_t most);

// "; did you mean a, b or c?", or nothing.
std::string DidYouMean(absl::Span<const std::string> names);

// The same for the one of `names` that is most like it.
std::string DidYouMean(absl::string_view name, absl::Span<const std::string> names);

}  // namespace attnlab

#endif  // TOOLS_LIB_SIMILAR_NAMES_H_
