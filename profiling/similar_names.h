// Names like one that there is not: what a user may have meant.
#ifndef PROFILING_SIMILAR_NAMES_H_
#define PROFILING_SIMILAR_NAMES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace attnlab::profiling {

// At most so many of `names`, the likest first: those that a quarter of its letters or less would
// have to change for; if there are none, those that begin with it. Case does not matter.
std::vector<std::string> SimilarNames(absl::string_view name, absl::Span<const std::string> names,
                                      size_t most);

// "; did you mean a, b or c?", or nothing.
std::string DidYouMean(absl::Span<const std::string> names);

}  // namespace attnlab::profiling

#endif  // PROFILING_SIMILAR_NAMES_H_
