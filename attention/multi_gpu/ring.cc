#include "attention/multi_gpu/ring.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/cuda/memory.h"
#include "attention/multi_gpu/part.h"

namespace attnlab::multi_gpu {
namespace {

class Ring {
 public:
  Ring(const AttentionProblem& p, const RingOptions& options, Communicator& c,
       const AttentionTensors& mine)
      : p_(p), options_(options), c_(c), mine_(mine) {}

  absl::Status Run() {
    std::string text = absl::StrCat(p_.ToString(), ",order=", static_cast<int>(options_.order),
                                    ",kernel=", options_.kernel);
    if (absl::Status s = Agree(c_, "problem of a ring", text, Check(&text)); !s.ok()) return s;
    if (absl::Status s = Allocate(); !s.ok()) return s;

    const int n = c_.ranks(), next = (c_.rank() + 1) % n, previous = (c_.rank() + n - 1) % n;
    Buffer *here = &kv_[0], *coming = &kv_[1];
    Pack(*here);
    for (int step = 0; step < n; ++step) {
      const int owner = (c_.rank() + n - step) % n;  // whose K and V are here
      const bool moves = step + 1 < n;
      if (moves) {
        const int64_t bytes = BytesOf(owner), others = BytesOf((owner + n - 1) % n);
        const Transfer t = {here->data(), next, coming->data(), previous, bytes, others};
        if (absl::Status s = c_.Start(t); !s.ok()) return s;
      }
      absl::Status s = Step(owner, *here);
      if (moves) {
        // In any case: what travels uses memory of this object.
        s.Update(c_.Wait(absl::StrCat("K and V for step ", step + 1, " of ", n)));
        std::swap(here, coming);
      }
      if (!s.ok()) return s;
    }
    merged_.Store(mine_.o, mine_.lse);
    return absl::OkStatus();
  }

 private:
  // For ranks to compare offsets.
  static uint64_t Digest(const LengthsView& offsets) {
    uint64_t digest = 14695981039346656037u;
    for (int64_t i = 0; i < offsets.count; ++i) {
      digest = (digest ^ static_cast<uint64_t>(offsets.data[i])) * 1099511628211u;
    }
    return digest;
  }

  std::vector<Chunk> Chunks(int64_t length, int rank) const {
    return ChunksOf(length, c_.ranks(), rank, options_.order);
  }
  int64_t KeysOf(int rank) const { return RowsOf(Chunks(p_.skv, rank)); }
  int64_t BytesOf(int rank) const {
    return p_.b * KeysOf(rank) * p_.hkv * (p_.d + p_.dv) * SizeOf(p_.dtype);
  }

  // Also finds the sequences. Then p_ is the problem of a piece, but for its lengths and mask.
  absl::Status Check(std::string* text) {
    if (absl::Status s = CheckKind("a ring", p_, mine_, /*packed=*/true); !s.ok()) return s;
    absl::StatusOr<std::vector<Sequence>> sequences = SequencesOf(p_, mine_);
    if (!sequences.ok()) return sequences.status();
    sequences_ = *std::move(sequences);
    if (p_.lens == Lengths::kPacked) {
      absl::StrAppend(text, ",cu_seqlens_q#", Digest(mine_.cu_seqlens_q), ",cu_seqlens_kv#",
                      Digest(mine_.cu_seqlens_kv));
      p_.lens = Lengths::kFixed, p_.b = 1;
      p_.sq = sequences_.back().q.end, p_.skv = sequences_.back().kv.end;
    }
    q_chunks_ = Chunks(p_.sq, c_.rank());
    return CheckPart("a ring", p_, RowsOf(q_chunks_), KeysOf(c_.rank()), mine_);
  }

  absl::Status Allocate() {
    int64_t most = 0;
    for (int rank = 0; rank < c_.ranks(); ++rank) most = std::max(most, BytesOf(rank));
    for (Buffer& kv : kv_) {
      absl::StatusOr<Buffer> buffer = Buffer::Allocate(Device::Cpu(), most);
      if (!buffer.ok()) return buffer.status();
      kv = *std::move(buffer);
    }
    return merged_.Reset(p_.b, RowsOf(q_chunks_), p_.hq, p_.dv);
  }

  // K and V of so many keys lie one after the other in what travels.
  struct Pair {
    TensorView k, v;
  };
  Pair ViewsOf(Buffer& kv, int64_t keys) const {
    auto* const bytes = static_cast<char*>(kv.data());
    const TensorView k =
        BshdView(static_cast<void*>(bytes), p_.dtype, Device::Cpu(), p_.b, keys, p_.hkv, p_.d);
    void* const behind = bytes + k.NumElements() * SizeOf(p_.dtype);
    return {k, BshdView(behind, p_.dtype, Device::Cpu(), p_.b, keys, p_.hkv, p_.dv)};
  }
  void Pack(Buffer& kv) const {
    const Pair to = ViewsOf(kv, KeysOf(c_.rank()));
    CopyElements(mine_.k, to.k);
    CopyElements(mine_.v, to.v);
  }

  // This rank's queries with the keys of `owner`.
  absl::Status Step(int owner, Buffer& kv) {
    const std::vector<Chunk> kv_chunks = Chunks(p_.skv, owner);
    const Pair views = ViewsOf(kv, RowsOf(kv_chunks));
    int64_t first_row = 0;
    for (const Chunk& q : q_chunks_) {
      int64_t first_key = 0;
      for (const Chunk& keys : kv_chunks) {
        for (const Sequence& of : sequences_) {
          const Chunk q_part = Overlap(q, of.q, of.q.begin),
                      kv_part = Overlap(keys, of.kv, of.kv.begin);
          const Piece piece = PieceOf(p_.mask, of.q.size(), of.kv.size(), q_part, kv_part);
          if (piece.rows == 0 || piece.keys == 0) continue;
          const int64_t row = first_row + of.q.begin + q_part.begin - q.begin,
                        key = first_key + of.kv.begin + kv_part.begin - keys.begin;
          absl::Status s = Compute(piece, row, SomeRows(views.k, key, piece.keys),
                                   SomeRows(views.v, key, piece.keys));
          if (!s.ok()) return s;
        }
        first_key += keys.size();
      }
      first_row += q.size();
    }
    return absl::OkStatus();
  }

  absl::Status Compute(const Piece& piece, int64_t first_row, const ConstTensorView& k,
                       const ConstTensorView& v) {
    absl::StatusOr<Part> part =
        ComputePart(p_, piece, SomeRows(mine_.q, first_row, piece.rows), k, v, options_.kernel);
    if (!part.ok()) return part.status();
    merged_.Add(part->o, part->lse, first_row);
    return absl::OkStatus();
  }

  AttentionProblem p_;
  const RingOptions options_;
  Communicator& c_;
  const AttentionTensors mine_;
  std::vector<Sequence> sequences_;
  std::vector<Chunk> q_chunks_;
  Buffer kv_[2];
  Merged merged_;
};

}  // namespace

absl::Status RingForward(const AttentionProblem& problem, const RingOptions& options,
                         Communicator& c, const AttentionTensors& mine) {
  return Ring(problem, options, c, mine).Run();
}

}  // namespace attnlab::multi_gpu
