// For tests: calls of Append() on a GPU, of which each reads what the one ahead of it writes.
#ifndef PAGED_TESTING_APPEND_ORDER_H_
#define PAGED_TESTING_APPEND_ORDER_H_

#include <string>

namespace attnlab::paged {

// "" or what is wrong after many calls in a row, on a stream and in a graph. Each call starts early, and moves
// rows on by a page. It does not see that one does not wait if its blocks follow those whose rows they read.
std::string CheckAppendOrder();

}  // namespace attnlab::paged

#endif  // PAGED_TESTING_APPEND_ORDER_H_
