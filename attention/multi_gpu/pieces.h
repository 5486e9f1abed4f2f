// How sequences are divided among ranks, and what a part of the queries sees of a part of the keys.
#ifndef ATTENTION_MULTI_GPU_PIECES_H_
#define ATTENTION_MULTI_GPU_PIECES_H_

#include <cstdint>
#include <vector>

#include "attention/core/problem.h"

namespace attnlab::multi_gpu {

// Rows [begin, end) of a sequence.
struct Chunk {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
// What both have, counted from `from`.
Chunk Overlap(Chunk a, Chunk b, int64_t from);

enum class Order {
  kInOrder,  // rank i has the i-th of n chunks
  // Rank i has the i-th and the (2 n - 1 - i)-th of 2 n chunks. Under a causal mask early chunks see few keys
  // and late ones many, so all ranks have the same work.
  kZigzag,
};

// The chunks of a rank, in the order in which its rows lie in its tensors. Chunks differ by at most one row,
// and may be empty.
std::vector<Chunk> ChunksOf(int64_t length, int ranks, int rank, Order order);
int64_t RowsOf(const std::vector<Chunk>& chunks);

// What queries [q.begin, q.end) see of keys [kv.begin, kv.end) of a sequence of q_len and kv_len: a problem of
// its own, of the chunk's first `rows` queries and of `keys` keys from `first_key` on; others see, or are seen by,
// nothing. rows or keys of 0: nothing is seen.
struct Piece {
  int64_t rows = 0, first_key = 0, keys = 0;
  Mask mask;
};
Piece PieceOf(const Mask& mask, int64_t q_len, int64_t kv_len, Chunk q, Chunk kv);

// What travels in a ring: Q, if Q, O and LSE of all queries have fewer bytes than K and V. Otherwise K and V.
bool QTravels(const AttentionProblem& problem);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_PIECES_H_
