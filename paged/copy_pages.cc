#include "paged/copy_pages.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "paged/gpu.h"

namespace attnlab::paged {

absl::Status CopyPages(absl::Span<const PageCopy> copies, const PageMemory& memory, void* stream) {
  for (size_t i = 0; i < copies.size(); ++i) {
    const PageCopy& copy = copies[i];
    const int64_t host_pages = memory.host == nullptr ? 0 : memory.host_pages;
    const int64_t from = copy.kind == PageCopy::kFromHost ? host_pages : memory.pages;
    const int64_t to = copy.kind == PageCopy::kToHost ? host_pages : memory.pages;
    if (copy.from >= 0 && copy.from < from && copy.to >= 0 && copy.to < to) continue;
    return absl::InvalidArgumentError(absl::StrCat("copies: entry ", i, " is from page ", copy.from,
                                                   " of ", from, " to page ", copy.to, " of ", to));
  }
  for (const PageCopy& copy : copies) {
    void* const from_memory = copy.kind == PageCopy::kFromHost ? memory.host : memory.pool;
    void* const to_memory = copy.kind == PageCopy::kToHost ? memory.host : memory.pool;
    const char* const from = static_cast<char*>(from_memory) + copy.from * memory.page_bytes;
    char* const to = static_cast<char*>(to_memory) + copy.to * memory.page_bytes;
    if (memory.device.kind == DeviceKind::kCpu) {
      std::memcpy(to, from, memory.page_bytes);
      continue;
    }
    absl::Status s = CopyOnGpu(memory.device.ordinal, to, from, memory.page_bytes, stream);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace attnlab::paged
