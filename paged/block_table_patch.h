// Changes of a block table, small enough for the arguments of a kernel.
//
// Plain C++ without Abseil, because device code includes it.
#ifndef PAGED_BLOCK_TABLE_PATCH_H_
#define PAGED_BLOCK_TABLE_PATCH_H_

#include <cstdint>

#include "attention/device/host_device.h"

namespace attnlab::paged {

struct TablePatch {
  struct Entry {
    int32_t row, column, value;
  };
  static constexpr int32_t kMost = 320;  // arguments of 4 KB suit every GPU

  int32_t *pages = nullptr, *lengths = nullptr;
  int64_t columns = 0;
  int32_t count = 0;
  Entry entries[kMost];

  // Column -1 is the length of a row.
  ATTNLAB_HOST_DEVICE void Apply(int32_t i) const {
    const Entry& e = entries[i];
    (e.column < 0 ? lengths[e.row] : pages[e.row * columns + e.column]) = e.value;
  }
};
static_assert(sizeof(TablePatch) <= 4096, "the arguments of a kernel");

}  // namespace attnlab::paged

#endif  // PAGED_BLOCK_TABLE_PATCH_H_
