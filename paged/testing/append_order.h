// For tests: a call of Append() on a GPU that reads what the one ahead of it writes.
#ifndef PAGED_TESTING_APPEND_ORDER_H_
#define PAGED_TESTING_APPEND_ORDER_H_

#include <string>

namespace attnlab::paged {

// "" or what is wrong after two calls in a row, on a stream and in a graph. The second one starts early, and first
// reads what the first one writes last.
std::string CheckAppendOrder();

}  // namespace attnlab::paged

#endif  // PAGED_TESTING_APPEND_ORDER_H_
