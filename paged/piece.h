// Plain C++, because device code includes it.
#ifndef PAGED_PIECE_H_
#define PAGED_PIECE_H_

namespace attnlab::paged {

// Adjacent elements of a row. They are loaded and stored at once.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Piece {
  T x[kWidth];
};

}  // namespace attnlab::paged

#endif  // PAGED_PIECE_H_
