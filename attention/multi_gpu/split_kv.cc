#include "attention/multi_gpu/split_kv.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/cuda/memory.h"
#include "attention/multi_gpu/part.h"
#include "attention/multi_gpu/pieces.h"

namespace attnlab::multi_gpu {
namespace {

// A part as it travels: LSE, then O. LSE comes first, and parts have whole words, since floats are aligned.
struct Packed {
  int64_t lse_bytes, bytes;
  explicit Packed(const AttentionProblem& p)
      : lse_bytes(p.b * p.sq * p.hq * SizeOf(DType::kFloat32)),
        bytes(lse_bytes + (p.b * p.sq * p.hq * p.dv * SizeOf(p.ODType()) + 3) / 4 * 4) {}
};

}  // namespace

absl::Status SplitKvForward(const AttentionProblem& p, Communicator& c,
                            const AttentionTensors& mine, const std::string& kernel) {
  const Chunk keys = ChunksOf(p.skv, c.ranks(), c.rank(), Order::kInOrder)[0];
  const absl::Status checked = CheckPart("split KV", p, p.sq, keys.size(), mine);
  absl::Status s =
      Agree(c, "problem of split KV", absl::StrCat(p.ToString(), ",kernel=", kernel), checked);
  if (!s.ok()) return s;
  const Packed packed(p);
  absl::StatusOr<Buffer> all = Buffer::Allocate(Device::Cpu(), packed.bytes * c.ranks()),
                         sent = Buffer::Allocate(Device::Cpu(), packed.bytes);
  if (!all.ok() || !sent.ok()) return all.ok() ? sent.status() : all.status();

  const auto o_of = [&](char* at) {
    return BshdView(static_cast<void*>(at + packed.lse_bytes), p.ODType(), Device::Cpu(), p.b, p.sq,
                    p.hq, p.dv);
  };
  const auto lse_of = [&](char* at) {
    return LseView(reinterpret_cast<float*>(at), Device::Cpu(), p.b, p.sq, p.hq);
  };
  // Queries behind `rows` see none of these keys.
  const Piece piece = PieceOf(p.mask, p.sq, p.skv, {0, p.sq}, keys);
  auto* const bytes = static_cast<char*>(sent->data());
  std::memset(bytes, 0, packed.bytes);
  std::fill_n(reinterpret_cast<float*>(bytes), p.b * p.sq * p.hq,
              -std::numeric_limits<float>::infinity());
  if (piece.rows > 0 && piece.keys > 0) {
    absl::StatusOr<Part> part = ComputePart(p, piece, mine.q, mine.k, mine.v, kernel);
    if (!part.ok()) return part.status();
    CopyElements(part->o, o_of(bytes));
    CopyElements(part->lse, lse_of(bytes));
  }
  s = Gather(c, "parts of O", sent->data(), packed.bytes, all->data());
  if (!s.ok()) return s;
  Merged merged;
  if (s = merged.Reset(p.b, p.sq, p.hq, p.dv); !s.ok()) return s;
  for (int rank = 0; rank < c.ranks(); ++rank) {
    char* const at = static_cast<char*>(all->data()) + rank * packed.bytes;
    merged.Add(o_of(at), lse_of(at), 0);
  }
  merged.Store(mine.o, mine.lse);
  return absl::OkStatus();
}

}  // namespace attnlab::multi_gpu
