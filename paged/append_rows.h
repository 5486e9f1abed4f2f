// What Append() does to one piece of a token's rows: load, rotate, convert, store. Host and device share it.
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
  device::Sequences q_sequences;
  const int32_t* kv_lengths = nullptr;  // null: all are skv
  int64_t skv = 0;
  int64_t b = 0, tokens = 0;  // rows of Q: all b * sq, or the packed ones
  device::Divisor by_sq;      // sq; packed: above all tokens, so that they are one batch
  device::Pages pages;
  int64_t columns = 0;  // of the page table
};

// Where a token belongs. position < 0: it goes nowhere.
struct AppendPlace {
  int64_t sequence = 0;
  int64_t position = -1;
};

// The place of a token of a sequence with `length` tokens, or skv if that is less. `left`: of its new ones,
// those from this token on.
ATTNLAB_HOST_DEVICE inline AppendPlace PlaceOf(const AppendArguments& a, int64_t sequence,
                                               int64_t length, int64_t left) {
  const int64_t position = (length < a.skv ? length : a.skv) - left;
  const bool exists = left > 0 && position >> a.pages.shift < a.columns;
  return {sequence, exists ? position : -1};
}

// What divides the elements of a row that becomes fp8.
ATTNLAB_HOST_DEVICE inline float ScaleOf(const AppendStream& s, const AppendPlace& place,
                                         int64_t head) {
  return s.scales == nullptr ? 1 : s.scales[place.sequence * s.scale_batch + head * s.scale_head];
}

// Where row `token`, counted over all rows of Q, begins in a tensor with such strides.
ATTNLAB_HOST_DEVICE inline int64_t OffsetOf(const AppendArguments& a, int64_t token,
                                            int64_t batch_stride, int64_t token_stride) {
  const int64_t batch = a.by_sq.Divide(static_cast<uint32_t>(token));
  return batch * batch_stride + (token - batch * a.by_sq.Value()) * token_stride;
}

// The page table's entry for the token's page. Read it early.
ATTNLAB_HOST_DEVICE inline int32_t EntryOf(const AppendArguments& a, const AppendPlace& place) {
  return place.position < 0 ? -1 : a.pages.EntryOf(place.sequence, place.position);
}

// Where row `token` of head 0 goes, in elements; below 0: nowhere, because the entry is no page of the pool.
ATTNLAB_HOST_DEVICE inline int64_t ToOf(const AppendArguments& a, const AppendStream& s,
                                        int64_t token, const AppendPlace& place, int32_t entry) {
  if (entry != a.pages.PageOf(entry)) return -1;
  return s.to_pages ? entry * s.to_batch + a.pages.RowOf(place.position) * s.to_token
                    : OffsetOf(a, token, s.to_batch, s.to_token);
}

// A piece as words. Where elements have 16 bits, the compiler takes a piece apart right after its load, so
// the next load waits for it. It leaves words as they are until Elements().
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) PieceWords {
  using Word = std::conditional_t<sizeof(T) * kWidth % 4 == 0, uint32_t, uint16_t>;
  typedef Word AliasedWord __attribute__((may_alias));
  AliasedWord words[sizeof(T) * kWidth / sizeof(Word)];

  ATTNLAB_HOST_DEVICE Piece<T, kWidth> Elements() const {
    PieceWords whole = *this;
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(Word) == 4) {
      for (AliasedWord& word : whole.words) asm volatile("" : "+r"(word));
    }
#endif
    Piece<T, kWidth> piece;
    std::memcpy(&piece, whole.words, sizeof(piece));
    return piece;
  }
};

// Moves piece `index` of rows, and the piece that it is rotated with, if that is another one: so Q can be
// rotated where it lies. A thread can load pieces of several heads before it knows where they go.
// `Convert` has ToFloat(In), and FromFloats(x, to) for arrays of kWidth float and Out. kWidth is 1, or
// all rows begin at multiples of kWidth elements, those of the rotary table at multiples of kWidth / 2,
// and dims and half of the rotated dims are multiples of kWidth. Without kRotates, no row is rotated.
template <int kWidth, typename In, typename Out, typename Convert, bool kRotates = true>
class PieceMover {
 public:
  struct Words {
    PieceWords<In, kWidth> x, y;  // y: of the other one of the pair
  };

  ATTNLAB_HOST_DEVICE PieceMover(const AppendStream& s, const AppendRotary& rotary, int32_t index)
      : begin_(index * kWidth), half_(rotary.dim / 2) {
    if (!kRotates || !s.rotates || begin_ >= rotary.dim) return;
    angle_ = rotary.interleaved ? begin_ / 2 : begin_;
    if (rotary.interleaved && kWidth > 1) return;
    partner_ = rotary.interleaved ? 1 : half_;
    is_second_ = rotary.interleaved ? begin_ % 2 != 0 : begin_ >= half_;
  }

  // It is moved with the one before it in the pair.
  ATTNLAB_HOST_DEVICE bool IsSecond() const { return is_second_; }

  ATTNLAB_HOST_DEVICE Words Load(const In* row) const {
    Words words;
    words.x = *reinterpret_cast<const PieceWords<In, kWidth>*>(row + begin_);
    if (kRotates && partner_ != 0) {
      words.y = *reinterpret_cast<const PieceWords<In, kWidth>*>(row + begin_ + partner_);
    }
    return words;
  }

  // All heads have the same.
  ATTNLAB_HOST_DEVICE void LoadAngles(const AppendRotary& rotary, int64_t position) {
    if (!kRotates || angle_ < 0) return;
    const int64_t last = rotary.positions - 1;
    const float* const cosines =
        rotary.table + (position < last ? position : last) * rotary.position_stride + angle_;
    LoadAngles(0, cosines);
    if (kWidth > 1 && partner_ != 0) LoadAngles(1, cosines);
  }

  // `scale` divides what is converted.
  ATTNLAB_HOST_DEVICE void Store(const Words& words, float scale, Out* row) const {
    Out* const to = row + begin_;
    if constexpr (std::is_same_v<In, Out> && !kRotates) {
      *reinterpret_cast<PieceWords<Out, kWidth>*>(to) = words.x;
      return;
    }
    float x[kWidth], y[kWidth];
    ToFloats(words.x, x);
    if (kRotates && angle_ >= 0 && partner_ == 0) {
      for (int i = 0; i + 1 < kWidth; i += 2) Rotate(x[i], x[i + 1], i / 2);
    } else if (kRotates && angle_ >= 0) {
      ToFloats(words.y, y);
      for (int i = 0; i < kWidth; ++i) Rotate(x[i], y[i], i);
      StoreAt(to + partner_, scale, y);
    }
    StoreAt(to, scale, x);
  }

 private:
  // A piece has one angle per two elements, or with its partner twice as many.
  static constexpr int kAngles = kWidth == 1 ? 1 : kWidth / 2;
  using Angles = Piece<float, kAngles>;

  ATTNLAB_HOST_DEVICE void LoadAngles(int i, const float* cosines) {
    cosines_[i] = *reinterpret_cast<const Angles*>(cosines + i * kAngles);
    sines_[i] = *reinterpret_cast<const Angles*>(cosines + half_ + i * kAngles);
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
  ATTNLAB_HOST_DEVICE static void StoreAt(Out* to, float scale, float (&x)[kWidth]) {
    if (!std::is_same_v<In, Out> && scale != 1) {
      const float inverse = 1 / scale;
      for (float& element : x) element *= inverse;
    }
    Piece<Out, kWidth> piece;
    Convert::FromFloats(x, piece.x);
    *reinterpret_cast<Piece<Out, kWidth>*>(to) = piece;
  }

  int32_t begin_ = 0, half_ = 0;
  int32_t angle_ = -1;   // of the first pair; below 0: not rotated
  int32_t partner_ = 0;  // elements to the other one of the pair; 0: there is none
  bool is_second_ = false;
  Angles cosines_[2], sines_[2];
};

}  // namespace attnlab::paged

#endif  // PAGED_APPEND_ROWS_H_
