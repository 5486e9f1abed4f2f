// Which page of a paged K and V has a key. The first axis of a paged K or V is the page, the second
// the row in it, so device::Rows gives the offset of both:
//
//   const int32_t entry = pages.EntryOf(sequence, key);  // read it early: it takes as long as K
//   k.Offset(pages.PageOf(entry), pages.RowOf(key), head)
//
// K and V that are not paged are the case in which every sequence is one page, longer than any
// sequence. So a kernel needs no second path for pages.
//
// A table in device memory cannot be checked on the host without waiting for the device. So its
// entries are clamped here: whatever they say, the page is one of K and V. EntryOf() does not do it,
// because then it would wait for the entry.
#ifndef ATTENTION_DEVICE_PAGES_H_
#define ATTENTION_DEVICE_PAGES_H_

#include <cstdint>

#include "attention/device/host_device.h"

namespace attnlab::device {

struct Pages {
  const int32_t* table = nullptr;  // null: not paged
  int64_t row_stride = 0;          // entries from one sequence's row of the table to the next
  uint32_t last = 0xFFFFFFFF;      // the last page of K and V
  int32_t shift = 31;              // a page has 2^shift keys

  // The entry for key `key` of sequence `batch` (Span::batch). Not paged: `batch` itself. The key
  // must exist: entries beyond a sequence's length are not read.
  ATTNLAB_HOST_DEVICE int32_t EntryOf(int64_t batch, int64_t key) const {
    if (table == nullptr) return static_cast<int32_t>(batch);
    return table[batch * row_stride + (key >> shift)];
  }

  // The page that an entry says; the last one if there is no such page. Negative entries, as
  // unsigned numbers, are above `last`, too.
  ATTNLAB_HOST_DEVICE int32_t PageOf(int32_t entry) const {
    const auto page = static_cast<uint32_t>(entry);
    return static_cast<int32_t>(page < last ? page : last);
  }

  // The key's row in its page. Not paged: its row in its sequence.
  ATTNLAB_HOST_DEVICE int32_t RowOf(int64_t key) const {
    return static_cast<int32_t>(static_cast<uint32_t>(key) & ((1u << shift) - 1));
  }

  // Keys per page. Only of paged K and V.
  ATTNLAB_HOST_DEVICE int32_t Rows() const { return static_cast<int32_t>(1u << shift); }

  // Whether `keys` keys from a multiple of `keys` on lie in one page. `keys` is a power of two.
  ATTNLAB_HOST_DEVICE bool Hold(int32_t keys) const {
    return (1u << shift) >= static_cast<uint32_t>(keys);
  }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_PAGES_H_
