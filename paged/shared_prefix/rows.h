// What a shared prefix takes besides attention: copies of Q and lengths before it, a merge after it. Host
// and device share it.
//
// Plain C++ without Abseil, because device code includes it.
#ifndef PAGED_SHARED_PREFIX_ROWS_H_
#define PAGED_SHARED_PREFIX_ROWS_H_

#include <cmath>
#include <cstdint>

#include "attention/device/host_device.h"

namespace attnlab::paged {

// Rows of all members: row i * sq + j is query j of member i. Strides are in elements. There are fewer
// than 2^31 elements: divisions of 64 bits would take longer than the rest.
struct PrefixRows {
  uint32_t count = 0, sq = 0, hq = 0, dim = 0;
  int64_t batch_stride = 0, token_stride = 0, head_stride = 0;

  ATTNLAB_HOST_DEVICE uint32_t Heads() const { return count * sq * hq; }
  ATTNLAB_HOST_DEVICE uint32_t Elements() const { return Heads() * dim; }
  // Element `index` of contiguous rows [count * sq, hq, dim], in the tensor.
  ATTNLAB_HOST_DEVICE int64_t Offset(uint32_t index) const {
    const uint32_t head = index / dim, row = head / hq, member = row / sq;
    return member * batch_stride + (row - member * sq) * token_stride +
           (head - row * hq) * head_stride + (index - head * dim);
  }
};

// Before attention: the queries once for each chunk, and the lengths.
struct PrefixInputs {
  PrefixRows rows;  // of Q
  const void* q = nullptr;
  void* copies = nullptr;  // [chunks, count * sq, hq, d]
  uint32_t chunks = 0;
  const int32_t* q_len = nullptr;   // of the members; null: all are sq
  const int32_t* kv_len = nullptr;  // of the members; null: all are skv
  int64_t skv = 0, prefix_keys = 0, chunk_keys = 0;
  int32_t *own_lengths = nullptr, *chunk_lengths = nullptr;

  template <typename T>
  ATTNLAB_HOST_DEVICE void CopyElement(uint32_t index) const {
    // Padding may be NaN. Here it is inside a sequence, so it becomes 0.
    const uint32_t row = index / rows.dim / rows.hq, member = row / rows.sq;
    const bool exists =
        q_len == nullptr || static_cast<int64_t>(row - member * rows.sq) < q_len[member];
    const T x = exists ? static_cast<const T*>(q)[rows.Offset(index)] : T(0);
    T* to = static_cast<T*>(copies) + index;
    for (uint32_t chunk = 0; chunk < chunks; ++chunk, to += rows.Elements()) *to = x;
  }
  // i: a member, and a chunk.
  ATTNLAB_HOST_DEVICE void SetLengths(uint32_t i) const {
    if (i < rows.count) {
      const int64_t length = (kv_len == nullptr ? skv : kv_len[i]) - prefix_keys;
      own_lengths[i] = length < 0 ? 0 : static_cast<int32_t>(length);
    }
    if (i < chunks) {
      const int64_t left = prefix_keys - i * chunk_keys;
      chunk_lengths[i] = static_cast<int32_t>(left < chunk_keys ? left : chunk_keys);
    }
  }
};

// After it. Parts are contiguous: O [count * sq, hq, dv], LSE [count * sq, hq]; those of the prefix have
// one for each chunk.
struct PrefixMerge {
  PrefixRows rows;  // of O
  const void *prefix_o = nullptr, *own_o = nullptr;
  const float *prefix_lse = nullptr, *own_lse = nullptr;
  uint32_t chunks = 0;
  void* o = nullptr;
  float* lse = nullptr;  // null: not wanted
  int64_t lse_batch = 0, lse_token = 0, lse_head = 0;
  const int32_t* q_len = nullptr;  // of the members; null: all are sq

  // Convert: ToFloat(T) and FromFloat<T>(float).
  template <typename T, typename Convert>
  ATTNLAB_HOST_DEVICE void MergeElement(uint32_t index) const {
    const uint32_t head = index / rows.dim, row = head / rows.hq, member = row / rows.sq,
                   query = row - member * rows.sq;
    if (q_len != nullptr && static_cast<int64_t>(query) >= q_len[member]) return;
    float most = own_lse[head];
    for (uint32_t c = 0; c < chunks; ++c) {
      most = fmaxf(most, prefix_lse[int64_t{c} * rows.Heads() + head]);
    }
    // Minus infinity if the row sees no key at all; then all weights must be 0, not NaN.
    const float base = most == -INFINITY ? 0 : most;
    float sum = 0, x = 0;
    const auto add = [&](float part_lse, const void* part, int64_t at) {
      const float weight = expf(part_lse - base);
      sum += weight;
      x += weight * Convert::ToFloat(static_cast<const T*>(part)[at]);
    };
    for (uint32_t c = 0; c < chunks; ++c) {
      add(prefix_lse[int64_t{c} * rows.Heads() + head], prefix_o,
          int64_t{c} * rows.Elements() + index);
    }
    add(own_lse[head], own_o, index);
    static_cast<T*>(o)[rows.Offset(index)] = Convert::template FromFloat<T>(sum == 0 ? 0 : x / sum);
    if (lse != nullptr && index == head * rows.dim) {
      lse[member * lse_batch + query * lse_token + (head - row * rows.hq) * lse_head] =
          sum == 0 ? -INFINITY : base + logf(sum);
    }
  }
};

}  // namespace attnlab::paged

#endif  // PAGED_SHARED_PREFIX_ROWS_H_
