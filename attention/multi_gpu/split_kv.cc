#include "attention/multi_gpu/split_kv.h"

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

// A part as it travels: O, then LSE.
struct Packed {
  int64_t o_bytes, bytes;
  explicit Packed(const AttentionProblem& p)
      : o_bytes(p.b * p.sq * p.hq * p.dv * SizeOf(p.ODType())),
        bytes(o_bytes + p.b * p.sq * p.hq * SizeOf(DType::kFloat32)) {}
};

}  // namespace

absl::Status SplitKvForward(const AttentionProblem& p, Communicator& c,
                            const AttentionTensors& mine, const std::string& kernel) {
  const Chunk keys = ChunksOf(p.skv, c.ranks(), c.rank(), Order::kInOrder)[0];
  if (absl::Status s = CheckPart("split KV", p, p.sq, keys.size(), mine); !s.ok()) return s;
  if (absl::Status s = Agree(c, "problem of split KV", p.ToString()); !s.ok()) return s;
  const Packed packed(p);
  absl::StatusOr<Buffer> all = Buffer::Allocate(Device::Cpu(), packed.bytes * c.ranks()),
                         sent = Buffer::Allocate(Device::Cpu(), packed.bytes);
  if (!all.ok() || !sent.ok()) return all.ok() ? sent.status() : all.status();

  // Queries behind `rows` see none of these keys.
  const Piece piece = PieceOf(p.mask, p.sq, p.skv, {0, p.sq}, keys);
  std::memset(sent->data(), 0, packed.o_bytes);
  auto* const bytes = static_cast<char*>(sent->data());
  auto* const logs = reinterpret_cast<float*>(bytes + packed.o_bytes);
  for (int64_t i = 0; i < p.b * p.sq * p.hq; ++i) logs[i] = -std::numeric_limits<float>::infinity();
  const auto o_of = [&](char* at) {
    return BshdView(static_cast<void*>(at), p.ODType(), Device::Cpu(), p.b, p.sq, p.hq, p.dv);
  };
  const auto lse_of = [&](char* at) {
    return LseView(reinterpret_cast<float*>(at + packed.o_bytes), Device::Cpu(), p.b, p.sq, p.hq);
  };
  if (piece.rows > 0 && piece.keys > 0) {
    absl::StatusOr<Part> part = ComputePart(p, piece, mine.q, mine.k, mine.v, kernel);
    if (!part.ok()) return part.status();
    const TensorView o = o_of(bytes), lse = lse_of(bytes);
    const int64_t size = SizeOf(p.ODType());
    for (int64_t b = 0; b < p.b; ++b) {
      for (int64_t row = 0; row < piece.rows; ++row) {
        for (int64_t head = 0; head < p.hq; ++head) {
          std::memcpy(
              bytes + o.Offset(b, row, head, 0) * size,
              static_cast<const char*>(part->o.data) + part->o.Offset(b, row, head, 0) * size,
              p.dv * size);
          logs[lse.Offset(b, row, head, 0)] =
              LoadElement(part->lse.data, DType::kFloat32, part->lse.Offset(b, row, head, 0));
        }
      }
    }
  }
  absl::Status s = Gather(c, "parts of O", sent->data(), packed.bytes, all->data());
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
