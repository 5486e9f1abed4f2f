// What Append() does to one piece of a row: load, rotate, convert, store. Host and device share it.
//
// Plain C++ without Abseil, because device code includes it.
#ifndef PAGED_APPEND_ROWS_H_
#define PAGED_APPEND_ROWS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "attention/device/divisor.h"
#include "attention/device/host_device.h"
#include "attention/device/pages.h"
#include "attention/device/sequences.h"
#include "paged/piece.h"

namespace attnlab::paged {

// Rows of one tensor, K, V or Q, and where they go. Strides are in elements.
struct AppendStream {
  const void* from = nullptr;
  int64_t from_batch = 0, from_token = 0, from_head = 0;
  // K and V: `to_batch` is between pages, and `to_token` between tokens of a page.
  void* to = nullptr;
  int64_t to_batch = 0, to_token = 0, to_head = 0;
  bool to_pages = true;
  bool rotates = false;
  const float* scales = nullptr;  // null: 1
  int64_t scale_batch = 0, scale_head = 0;
  int32_t heads = 0, dim = 0;
  device::Divisor by_heads;  // heads
  // A row is moved in so many pieces; of one that is rotated by halves, `moved_with` pieces of its second
  // half move with those of the first. `doubles`: pieces have twice the width.
  device::Divisor by_pieces;
  int32_t moved_with = 0;
  bool doubles = false;
};

struct AppendRotary {
  const float* table = nullptr;
  int64_t position_stride = 0, positions = 0;
  int32_t dim = 0;
  bool interleaved = false;
};

struct AppendArguments {
  AppendStream streams[3];  // K, V, and Q if it is rotated
  int32_t count = 2;
  AppendRotary rotary;
  device::Sequences q_sequences, kv_sequences;
  int64_t b = 0, tokens = 0;  // rows of Q: all b * sq, or the packed ones
  device::Divisor by_sq;      // sq, if rows are not packed
  device::Pages pages;
  int64_t columns = 0;  // of the page table
};

// Where a token is, and its position in its sequence. position < 0: it goes nowhere.
struct AppendPlace {
  int64_t sequence = 0, from_batch = 0, from_token = 0;
  int64_t position = -1;
};

// `sequence` must be the one whose rows have `token`, counted over all rows of Q.
ATTNLAB_HOST_DEVICE inline AppendPlace PlaceOf(const AppendArguments& a, int64_t sequence,
                                               int64_t token) {
  const device::Span rows = a.q_sequences[sequence];
  const int64_t kv_len = a.kv_sequences[sequence].length;
  const bool packed = a.q_sequences.offsets != nullptr;
  AppendPlace place;
  place.sequence = sequence;
  place.from_batch = rows.batch;
  place.from_token = packed ? token : token - sequence * a.by_sq.Value();
  const int64_t j = place.from_token - rows.begin;
  const int64_t position = kv_len - rows.length + j;
  if (j < rows.length && position >> a.pages.shift < a.columns) place.position = position;
  return place;
}

// A token's row of one tensor, of head 0: what all pieces of all heads have in common.
struct AppendRow {
  int64_t from = 0;                // elements from the tensor's beginning
  const float* scale = nullptr;    // null: 1
  const float* cosines = nullptr;  // of its position; null: not rotated
  bool exists = false;
};

ATTNLAB_HOST_DEVICE inline AppendRow RowOf(const AppendStream& s, const AppendRotary& rotary,
                                           const AppendPlace& place) {
  if (place.position < 0) return {};
  AppendRow row;
  row.exists = true;
  row.from = place.from_batch * s.from_batch + place.from_token * s.from_token;
  if (s.scales != nullptr) row.scale = s.scales + place.sequence * s.scale_batch;
  if (s.rotates) {
    const int64_t last = rotary.positions - 1;
    row.cosines =
        rotary.table + (place.position < last ? place.position : last) * rotary.position_stride;
  }
  return row;
}

// The page table's entry for the token's page. Read it early.
ATTNLAB_HOST_DEVICE inline int32_t EntryOf(const AppendArguments& a, const AppendPlace& place) {
  return place.position < 0 ? -1 : a.pages.EntryOf(place.sequence, place.position);
}

// Where the row of head 0 goes, in elements; below 0: nowhere, because the entry is no page of the pool.
ATTNLAB_HOST_DEVICE inline int64_t ToOf(const AppendArguments& a, const AppendStream& s,
                                        const AppendPlace& place, int32_t entry) {
  if (entry != a.pages.PageOf(entry)) return -1;
  return s.to_pages ? entry * s.to_batch + a.pages.RowOf(place.position) * s.to_token
                    : place.from_batch * s.to_batch + place.from_token * s.to_token;
}

// A piece as words. Where elements have 16 bits, the compiler takes a piece apart right after its
// load, so the next load waits for it. It leaves words as they are until Elements().
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) PieceWords {
  using Word = std::conditional_t<sizeof(T) * kWidth % 4 == 0, uint32_t, uint16_t>;
  typedef Word AliasedWord __attribute__((may_alias));
  AliasedWord words[sizeof(T) * kWidth / sizeof(Word)];

  ATTNLAB_HOST_DEVICE Piece<T, kWidth> Elements() const {
    Piece<T, kWidth> piece;
    std::memcpy(&piece, words, sizeof(piece));
    return piece;
  }
};

// Moves piece `index` of the row of a head, and the piece that it is rotated with, if that is another
// one: so Q can be rotated where it lies. Load() and Store() come apart, so that a thread can load
// several before it stores one, and before the page is known. `Convert` has ToFloat(In), and
// FromFloats(x, to) for arrays of kWidth float and Out. kWidth is 1, or all rows begin at multiples of kWidth elements, those of the rotary
// table at multiples of kWidth / 2, and dims and half of the rotated dims are multiples of kWidth.
// Without kRotates, no row is rotated, and it takes fewer registers.
template <int kWidth, typename In, typename Out, typename Convert, bool kRotates = true>
class MovedPiece {
 public:
  ATTNLAB_HOST_DEVICE void Load(const AppendStream& s, const AppendRotary& rotary,
                                const AppendRow& row, int32_t head, int32_t index) {
    const int32_t begin = index * kWidth, half = rotary.dim / 2;
    const In* const from = static_cast<const In*>(s.from) + row.from + head * s.from_head + begin;
    to_ = static_cast<Out*>(s.to) + head * s.to_head + begin;
    scale_ = row.scale == nullptr ? 1 : row.scale[head * s.scale_head];
    rotates_ = false;
    partner_ = 0;
    if (kRotates && row.cosines != nullptr && begin < rotary.dim) {
      rotates_ = true;
      if (!(rotary.interleaved && kWidth > 1)) {
        // Moved with the other one of the pair.
        if (rotary.interleaved ? begin % 2 != 0 : begin >= half) {
          to_ = nullptr;
          return;
        }
        partner_ = rotary.interleaved ? 1 : half;
      }
      const float* const cosines = row.cosines + (rotary.interleaved ? begin / 2 : begin);
      LoadAngles(0, cosines, half);
      if (kWidth > 1 && partner_ != 0) LoadAngles(1, cosines, half);
    }
    x_ = *reinterpret_cast<const PieceWords<In, kWidth>*>(from);
    if (kRotates && partner_ != 0) {
      y_ = *reinterpret_cast<const PieceWords<In, kWidth>*>(from + partner_);
    }
  }

  // `row`: ToOf() of the row.
  ATTNLAB_HOST_DEVICE void Store(int64_t row) const {
    if (to_ == nullptr || row < 0) return;
    Out* const to = to_ + row;
    if constexpr (std::is_same_v<In, Out> && !kRotates) {
      *reinterpret_cast<PieceWords<Out, kWidth>*>(to) = x_;
      return;
    }
    float x[kWidth], y[kWidth];
    ToFloats(x_, x);
    if (kRotates && rotates_ && partner_ == 0) {
      for (int i = 0; i + 1 < kWidth; i += 2) Rotate(x[i], x[i + 1], i / 2);
    } else if (kRotates && rotates_) {
      ToFloats(y_, y);
      for (int i = 0; i < kWidth; ++i) Rotate(x[i], y[i], i);
      StoreAt(to + partner_, y);
    }
    StoreAt(to, x);
  }

 private:
  // A piece has one angle per two elements, or with its partner twice as many.
  static constexpr int kAngles = kWidth == 1 ? 1 : kWidth / 2;
  using Angles = Piece<float, kAngles>;

  ATTNLAB_HOST_DEVICE void LoadAngles(int i, const float* cosines, int32_t half) {
    cosines_[i] = *reinterpret_cast<const Angles*>(cosines + i * kAngles);
    sines_[i] = *reinterpret_cast<const Angles*>(cosines + half + i * kAngles);
  }
  ATTNLAB_HOST_DEVICE void Rotate(float& a, float& b, int angle) const {
    const float c = cosines_[angle / kAngles].x[angle % kAngles],
                s = sines_[angle / kAngles].x[angle % kAngles];
    const float rotated = a * c - b * s;
    b = b * c + a * s;
    a = rotated;
  }
  ATTNLAB_HOST_DEVICE static void ToFloats(const PieceWords<In, kWidth>& words,
                                           float (&x)[kWidth]) {
    const Piece<In, kWidth> piece = words.Elements();
    for (int i = 0; i < kWidth; ++i) x[i] = Convert::ToFloat(piece.x[i]);
  }
  ATTNLAB_HOST_DEVICE void StoreAt(Out* to, float (&x)[kWidth]) const {
    if (!std::is_same_v<In, Out> && scale_ != 1) {
      const float inverse = 1 / scale_;
      for (float& element : x) element *= inverse;
    }
    Piece<Out, kWidth> piece;
    Convert::FromFloats(x, piece.x);
    *reinterpret_cast<Piece<Out, kWidth>*>(to) = piece;
  }

  Out* to_ = nullptr;  // in the first row; null: nothing to store
  bool rotates_ = false;
  int32_t partner_ = 0;  // elements to the other one of the pair; 0: there is none
  float scale_ = 1;
  Angles cosines_[2], sines_[2];
  PieceWords<In, kWidth> x_, y_;
};

template <int kWidth, typename In, typename Out, typename Convert>
ATTNLAB_HOST_DEVICE void MovePiece(const AppendStream& s, const AppendRotary& rotary,
                                   const AppendRow& row, int64_t to, int32_t head, int32_t index) {
  MovedPiece<kWidth, In, Out, Convert> piece;
  piece.Load(s, rotary, row, head, index);
  piece.Store(to);
}

}  // namespace attnlab::paged

#endif  // PAGED_APPEND_ROWS_H_
