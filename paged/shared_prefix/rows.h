// What a shared prefix takes besides attention: copies of Q and lengths before it, a merge after it. Host
// and device share it.
//
// Plain C++ without Abseil, because device code includes it.
#ifndef PAGED_SHARED_PREFIX_ROWS_H_
#define PAGED_SHARED_PREFIX_ROWS_H_

#include <cmath>
#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/divisor.h"
#include "attention/device/host_device.h"
#include "paged/piece.h"

namespace attnlab::paged {

// A piece of the row of query `query` of member `member`.
struct PrefixPlace {
  uint32_t member = 0, query = 0, head = 0, piece = 0;
};

// Rows of all members, divided into pieces: of 16 bytes if they are whole chunks, else of 1 element.
// There are fewer than 2^31 elements.
struct PrefixRows {
  device::Rows tensor;
  uint32_t count = 0;
  device::Divisor sq, hq, pieces;  // `pieces`: of the row of a head
  const int32_t* q_len = nullptr;  // of the members; null: all are sq

  ATTNLAB_HOST_DEVICE uint32_t Heads() const { return count * sq.Value() * hq.Value(); }
  ATTNLAB_HOST_DEVICE uint32_t Pieces() const { return Heads() * pieces.Value(); }
  // Of piece `index` of contiguous rows [count * sq, hq].
  ATTNLAB_HOST_DEVICE PrefixPlace PlaceOf(uint32_t index) const {
    const uint32_t head = pieces.Divide(index), row = hq.Divide(head), member = sq.Divide(row);
    return {member, row - member * sq.Value(), head - row * hq.Value(),
            index - head * pieces.Value()};
  }
  ATTNLAB_HOST_DEVICE bool Exists(const PrefixPlace& at) const {
    return q_len == nullptr || static_cast<int64_t>(at.query) < q_len[at.member];
  }
  template <typename T, int kWidth>
  ATTNLAB_HOST_DEVICE Piece<T, kWidth>& InTensor(const PrefixPlace& at) const {
    return *reinterpret_cast<Piece<T, kWidth>*>(static_cast<T*>(tensor.data) +
                                                tensor.Offset(at.member, at.query, at.head) +
                                                at.piece * kWidth);
  }
};

// Before attention: the queries once for each chunk, and the lengths.
struct PrefixInputs {
  PrefixRows rows;         // of Q
  void* copies = nullptr;  // [chunks, count * sq, hq, d]
  uint32_t chunks = 0;
  const int32_t* kv_len = nullptr;  // of the members; null: all are skv
  int64_t skv = 0, prefix_keys = 0, chunk_keys = 0;
  // Null: all are equal, and not wanted.
  int32_t *own_lengths = nullptr, *chunk_lengths = nullptr;

  template <typename T, int kWidth>
  ATTNLAB_HOST_DEVICE void CopyPiece(uint32_t index) const {
    // Padding may be NaN. Here it is inside a sequence, so it becomes 0.
    const PrefixPlace at = rows.PlaceOf(index);
    Piece<T, kWidth> piece = {};
    if (rows.Exists(at)) piece = rows.InTensor<T, kWidth>(at);
    auto* to = static_cast<Piece<T, kWidth>*>(copies) + index;
    for (uint32_t chunk = 0; chunk < chunks; ++chunk, to += rows.Pieces()) *to = piece;
  }
  // i: a member, and a chunk.
  ATTNLAB_HOST_DEVICE void SetLengths(uint32_t i) const {
    if (own_lengths != nullptr && i < rows.count) {
      const int64_t length = (kv_len == nullptr ? skv : kv_len[i]) - prefix_keys;
      own_lengths[i] = length < 0 ? 0 : static_cast<int32_t>(length);
    }
    if (chunk_lengths != nullptr && i < chunks) {
      const int64_t left = prefix_keys - i * chunk_keys;
      chunk_lengths[i] = static_cast<int32_t>(left < chunk_keys ? left : chunk_keys);
    }
  }
};

// After it. The parts of a row are those of the chunks, then that of its own keys. They are
// contiguous: O [chunks + 1, count * sq, hq, dv], LSE [chunks + 1, count * sq, hq].
struct PrefixMerge {
  PrefixRows rows;   // of O
  device::Rows lse;  // null data: not wanted
  const void* part_o = nullptr;
  const float* part_lse = nullptr;
  uint32_t chunks = 0;

  // Convert: ToFloat(T) and FromFloat<T>(float).
  template <typename T, int kWidth, typename Convert>
  ATTNLAB_HOST_DEVICE void MergePiece(uint32_t index) const {
    constexpr uint32_t kAhead = 8;  // parts that are loaded at a time
    const PrefixPlace at = rows.PlaceOf(index);
    if (!rows.Exists(at)) return;
    const auto lse_of = [&](uint32_t part) {
      return part_lse[int64_t{part} * rows.Heads() + rows.pieces.Divide(index)];
    };
    const auto piece_of = [&](uint32_t part) {
      return static_cast<const Piece<T, kWidth>*>(part_o)[int64_t{part} * rows.Pieces() + index];
    };
    float base = lse_of(chunks), sum = base == -INFINITY ? 0 : 1, x[kWidth];
    Piece<T, kWidth> piece = piece_of(chunks);
    for (int j = 0; j < kWidth; ++j) x[j] = Convert::ToFloat(piece.x[j]);
    for (uint32_t first = 0; first < chunks; first += kAhead) {
      Piece<T, kWidth> pieces[kAhead];
      float lses[kAhead];
      const float before = base;
      // Instead of a chunk that does not exist, the last one with a weight of 0.
      for (uint32_t i = 0; i < kAhead; ++i) {
        const uint32_t chunk = first + i < chunks ? first + i : chunks - 1;
        pieces[i] = piece_of(chunk);
        lses[i] = first + i < chunks ? lse_of(chunk) : -INFINITY;
      }
      for (uint32_t i = 0; i < kAhead; ++i) base = fmaxf(base, lses[i]);
      // Without any key so far, all weights must be 0, not NaN.
      const float shift = base == -INFINITY ? 0 : base, factor = expf(before - shift);
      sum *= factor;
      for (float& element : x) element *= factor;
      for (uint32_t i = 0; i < kAhead; ++i) {
        const float weight = expf(lses[i] - shift);
        sum += weight;
        for (int j = 0; j < kWidth; ++j) x[j] += weight * Convert::ToFloat(pieces[i].x[j]);
      }
    }
    const float inverse = sum == 0 ? 0 : 1 / sum;
    for (int j = 0; j < kWidth; ++j) piece.x[j] = Convert::template FromFloat<T>(x[j] * inverse);
    rows.InTensor<T, kWidth>(at) = piece;
    if (lse.data != nullptr && at.piece == 0) {
      static_cast<float*>(lse.data)[lse.Offset(at.member, at.query, at.head)] = base + logf(sum);
    }
  }
};

}  // namespace attnlab::paged

#endif  // PAGED_SHARED_PREFIX_ROWS_H_
