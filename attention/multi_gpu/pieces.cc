#include "attention/multi_gpu/pieces.h"

#include <algorithm>

#include "attention/core/dtype.h"

namespace attnlab::multi_gpu {

Chunk Overlap(Chunk a, Chunk b, int64_t from) {
  const int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
  return {begin - from, std::max(begin, end) - from};
}

std::vector<Chunk> ChunksOf(int64_t length, int ranks, int rank, Order order) {
  const int64_t count = order == Order::kZigzag ? 2 * int64_t{ranks} : ranks;
  const auto chunk = [&](int64_t i) {
    // Without overflow: the first length % count chunks have one row more.
    const auto begin = [&](int64_t j) {
      return j * (length / count) + std::min(j, length % count);
    };
    return Chunk{begin(i), begin(i + 1)};
  };
  if (order == Order::kZigzag) return {chunk(rank), chunk(count - 1 - rank)};
  return {chunk(rank)};
}

int64_t RowsOf(const std::vector<Chunk>& chunks) {
  int64_t rows = 0;
  for (const Chunk& c : chunks) rows += c.size();
  return rows;
}

Piece PieceOf(const Mask& mask, int64_t q_len, int64_t kv_len, Chunk q, Chunk kv) {
  Piece piece = {q.size(), 0, kv.size(), Mask::None()};
  if (mask.kind == Mask::Kind::kNone || piece.rows == 0 || piece.keys == 0) return piece;
  // Row i of the piece sees its keys [i + offset - left, i + offset + right].
  int64_t offset = q.begin + kv_len - q_len - kv.begin;
  const bool bounded = mask.kind == Mask::Kind::kSlidingWindow;
  const int64_t far = q_len + kv_len;  // sees all
  const int64_t left = bounded ? std::min(mask.left, far) : far, right = std::min(mask.right, far);
  // Keys that no row sees, and rows that see no key, at the ends.
  piece.keys = std::clamp<int64_t>(piece.rows + offset + right, 0, piece.keys);
  piece.rows = std::clamp<int64_t>(piece.keys - offset + left, 0, piece.rows);
  if (piece.rows == 0 || piece.keys == 0) return {};
  piece.first_key = std::clamp<int64_t>(offset - left, 0, piece.keys);
  piece.keys -= piece.first_key, offset -= piece.first_key;
  if (offset + right >= piece.keys - 1 && piece.rows - 1 + offset - left <= 0) return piece;
  // The piece's own mask counts from its last row and key.
  const int64_t shift = offset - (piece.keys - piece.rows);
  if (!bounded && right + shift == 0) {
    piece.mask = Mask::Causal();
  } else {
    piece.mask = Mask::SlidingWindow(left - shift, right + shift);
  }
  return piece;
}

bool QTravels(const AttentionProblem& p) {
  const double q = p.d * SizeOf(p.dtype) + p.dv * SizeOf(p.ODType()) + SizeOf(DType::kFloat32),
               kv = (p.d + p.dv) * SizeOf(p.dtype);
  return static_cast<double>(p.sq * p.hq) * q < static_cast<double>(p.skv * p.hkv) * kv;
}

}  // namespace attnlab::multi_gpu
