// Does the copies that a PageManager asks for: of pages of one tensor, K or V of one layer.
#ifndef PAGED_COPY_PAGES_H_
#define PAGED_COPY_PAGES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "attention/core/device.h"
#include "paged/page_manager.h"

namespace attnlab::paged {

// Pages that lie one after another, in the pool and on the host.
struct PageMemory {
  Device device;  // of the pool
  void* pool = nullptr;
  void* host = nullptr;  // null: there is none
  int64_t page_bytes = 0;
  int64_t pages = 0, host_pages = 0;
};

// Copies in order. On a GPU asynchronous on the stream (cudaStream_t); from and to the host only if
// its memory is page-locked, otherwise CUDA waits. InvalidArgument for a page that does not exist,
// before anything is copied.
absl::Status CopyPages(absl::Span<const PageCopy> copies, const PageMemory& memory,
                       void* stream = nullptr);

}  // namespace attnlab::paged

#endif  // PAGED_COPY_PAGES_H_
