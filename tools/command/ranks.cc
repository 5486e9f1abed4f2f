#include "tools/command/ranks.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "attention/core/dtype.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/memory.h"
#include "attention/multi_gpu/all_to_all.h"
#include "attention/multi_gpu/gpus/peer_communicator.h"
#include "attention/multi_gpu/heads.h"
#include "attention/multi_gpu/memory_communicator.h"
#include "attention/multi_gpu/on_threads.h"
#include "attention/multi_gpu/split_kv.h"

namespace attnlab::command {
namespace {

using multi_gpu::Chunk;
using multi_gpu::Communicator;
using multi_gpu::Way;

constexpr absl::Duration kLimit = absl::Minutes(2);

constexpr NamedWay kWays[] = {{"zigzag", Way::kZigzagRing},
                              {"ring", Way::kRing},
                              {"alltoall", Way::kAllToAll},
                              {"splitkv", std::nullopt},
                              {"heads", Way::kHeads}};

// Some rows and heads of a tensor [b, rows, heads, d], on a rank's device.
class Share {
 public:
  static absl::StatusOr<Share> Make(const ConstTensorView& whole, std::vector<Chunk> rows,
                                    Chunk heads, Device device) {
    Share share;
    share.rows_ = std::move(rows), share.heads_ = heads;
    const int64_t b = whole.shape[0], count = multi_gpu::RowsOf(share.rows_), d = whole.shape[3];
    share.host_.resize(b * count * heads.size() * d * SizeOf(whole.dtype));
    absl::StatusOr<Buffer> memory =
        Buffer::Allocate(device, static_cast<int64_t>(share.host_.size()));
    if (!memory.ok()) return memory.status();
    share.memory_ = *std::move(memory);
    share.view_ = BshdView(share.memory_.data(), whole.dtype, device, b, count, heads.size(), d);
    return share;
  }

  absl::Status Upload(const ConstTensorView& whole) {
    ForRows(whole, [](char* mine, const char* theirs, int64_t bytes) {
      std::memcpy(mine, theirs, bytes);
    });
    return memory_.CopyFromHost(host_.data(), static_cast<int64_t>(host_.size()));
  }
  absl::Status Download(const TensorView& whole) {
    absl::Status s = memory_.CopyToHost(host_.data(), static_cast<int64_t>(host_.size()));
    ForRows(whole, [](const char* mine, const char* theirs, int64_t bytes) {
      std::memcpy(const_cast<char*>(theirs), mine, bytes);
    });
    return s;
  }
  // NaN: rows that are not written show.
  absl::Status Poison() { return memory_.Fill(0xFF); }
  const TensorView& view() const { return view_; }

 private:
  // Heads of a row are neighbours in both.
  template <typename Copy>
  void ForRows(const ConstTensorView& whole, Copy copy) {
    const int64_t size = SizeOf(whole.dtype), bytes = heads_.size() * whole.shape[3] * size;
    char* mine = host_.data();
    for (int64_t b = 0; b < whole.shape[0]; ++b) {
      for (const Chunk& c : rows_) {
        for (int64_t row = c.begin; row < c.end; ++row, mine += bytes) {
          copy(mine,
               static_cast<const char*>(whole.data) + whole.Offset(b, row, heads_.begin, 0) * size,
               bytes);
        }
      }
    }
  }

  std::vector<Chunk> rows_;
  Chunk heads_;
  std::vector<char> host_;
  Buffer memory_;
  TensorView view_;
};

}  // namespace

absl::Span<const NamedWay> Ways() { return kWays; }

absl::StatusOr<NamedWay> WayOf(absl::string_view name) {
  for (const NamedWay& way : kWays) {
    if (way.name == name) return way;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--parallel: \"", name, "\" is not one of ",
      absl::StrJoin(kWays, ", ", [](std::string* s, const NamedWay& w) { s->append(w.name); })));
}

absl::StatusOr<Ranks> MakeRanks(int count, bool on_cpu, int first) {
  if (on_cpu) return multi_gpu::RanksInMemory(count, kLimit);
  const auto devices = cuda_backend::Devices();
  if (!devices.ok()) return devices.status();
  if (static_cast<int>(devices->size()) < first + count) {
    return absl::UnavailableError(
        absl::StrCat("--gpus: ", first + count, ", but this machine has ", devices->size()));
  }
  std::vector<int> ordinals(count);
  for (int i = 0; i < count; ++i) ordinals[i] = first + i;
  return multi_gpu::RanksOnGpus(ordinals, kLimit);
}

absl::Status OnRanks(const Ranks& ranks, const std::function<absl::Status(int)>& of_rank) {
  absl::Status s;
  for (const absl::Status& of : multi_gpu::OnThreads(static_cast<int>(ranks.size()), of_rank)) {
    s.Update(of);
  }
  return s;
}

struct DividedProblem::Part {
  Communicator* communicator = nullptr;
  std::vector<Share> shares;
  AttentionTensors tensors;
};

DividedProblem::DividedProblem() = default;
DividedProblem::DividedProblem(DividedProblem&&) noexcept = default;
DividedProblem::~DividedProblem() = default;

absl::StatusOr<DividedProblem> DividedProblem::Make(const AttentionProblem& p, NamedWay way,
                                                    const Ranks& ranks,
                                                    const AttentionTensors& whole,
                                                    const ConstTensorView& o) {
  DividedProblem divided;
  divided.problem_ = p, divided.way_ = way;
  const int n = static_cast<int>(ranks.size());
  for (int rank = 0; rank < n; ++rank) {
    const Chunk kv = way.ByHeads() ? multi_gpu::KvHeadsOf(p, n, rank) : Chunk{0, p.hkv};
    const int64_t group = p.GroupSize();
    const Chunk query = {kv.begin * group, kv.end * group};
    const auto rows = [&](int64_t length, bool are_keys) {
      return way.ByHeads() || (way.SplitsKv() && !are_keys)
                 ? std::vector<Chunk>{{0, length}}
                 : multi_gpu::ChunksOf(length, n, rank, way.order());
    };
    const struct {
      ConstTensorView view;
      std::vector<Chunk> rows;
      Chunk heads;
    } kTensors[] = {{whole.q, rows(p.sq, false), query},
                    {whole.k, rows(p.skv, true), kv},
                    {whole.v, rows(p.skv, true), kv},
                    {o, rows(p.sq, false), query}};
    Part& part = divided.parts_.emplace_back();
    part.communicator = ranks[rank].get();
    for (const auto& t : kTensors) {
      absl::StatusOr<Share> share = Share::Make(t.view, t.rows, t.heads, ranks[rank]->device());
      absl::Status s = share.status();
      if (s.ok()) s = part.shares.size() < 3 ? share->Upload(t.view) : share->Poison();
      if (!s.ok()) return s;
      part.shares.push_back(*std::move(share));
    }
    part.tensors.q = part.shares[0].view(), part.tensors.k = part.shares[1].view();
    part.tensors.v = part.shares[2].view(), part.tensors.o = part.shares[3].view();
  }
  return divided;
}

absl::Status DividedProblem::Call(int rank, const std::string& kernel,
                                  std::vector<multi_gpu::StepTime>* steps) const {
  const AttentionTensors& t = parts_[rank].tensors;
  Communicator& c = *parts_[rank].communicator;
  if (way_.SplitsKv()) return multi_gpu::SplitKvForward(problem_, c, t, kernel);
  if (way_.ByHeads()) return multi_gpu::HeadsForward(problem_, kernel, c, t);
  if (way_.model == Way::kAllToAll) {
    return multi_gpu::AllToAllForward(problem_, {way_.order(), kernel}, c, t);
  }
  return multi_gpu::RingForward(problem_, {way_.order(), kernel, steps}, c, t);
}

absl::Status DividedProblem::GiveO(const TensorView& whole) {
  absl::Status s;
  for (Part& part : parts_) s.Update(part.shares[3].Download(whole));
  return s;
}

}  // namespace attnlab::command
