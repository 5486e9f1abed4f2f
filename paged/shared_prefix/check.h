// Compares SharedPrefixPlan with attention over each sequence's own row of the table.
#ifndef PAGED_SHARED_PREFIX_CHECK_H_
#define PAGED_SHARED_PREFIX_CHECK_H_

#include "attention/core/device.h"

namespace attnlab::paged {

// Fails the test that calls it if a row is wrong, or a row that no sequence uses is written.
void CheckSharedPrefixes(Device device);

}  // namespace attnlab::paged

#endif  // PAGED_SHARED_PREFIX_CHECK_H_
