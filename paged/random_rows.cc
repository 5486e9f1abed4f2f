#include "paged/random_rows.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/status/status.h"

namespace attnlab::paged {

absl::StatusOr<Buffer> RandomRows(Device device, DType dtype, int64_t elements) {
  const int64_t drawn = std::min<int64_t>(elements, 1 << 16);
  std::vector<char> rows(drawn * SizeOf(dtype));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < drawn; ++i) StoreElement(rows.data(), dtype, i, normal(random));
  const int64_t bytes = elements * SizeOf(dtype);
  absl::StatusOr<Buffer> buffer = Buffer::Allocate(device, bytes);
  if (!buffer.ok()) return buffer;
  const auto step = static_cast<int64_t>(rows.size());
  for (int64_t at = 0; at < bytes; at += step) {
    absl::Status s = buffer->CopyFromHost(rows.data(), std::min(bytes - at, step), at);
    if (!s.ok()) return s;
  }
  return buffer;
}

}  // namespace attnlab::paged
