#include "attention/multi_gpu/all_to_all.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "attention/attention.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/cuda/memory.h"
#include "attention/multi_gpu/executor.h"
#include "attention/multi_gpu/heads.h"
#include "attention/multi_gpu/part.h"

namespace attnlab::multi_gpu {
namespace {

// Rows of some chunks of a sequence, of some heads: a tensor as it travels.
struct Stretch {
  DType dtype;
  int64_t b, rows, heads, d;
  // The next one is aligned, too.
  int64_t Bytes() const { return AlignedBytes(b * rows * heads * d * SizeOf(dtype)); }
  TensorView At(void* data, Device device) const {
    return BshdView(data, dtype, device, b, rows, heads, d);
  }
};

class AllToAll {
 public:
  AllToAll(const AttentionProblem& p, const AllToAllOptions& options, Communicator& c,
           const AttentionTensors& mine, void* stream)
      : p_(p),
        options_(options),
        c_(c),
        mine_(mine),
        device_(mine.q.device),
        stream_(stream),
        here_(p) {}

  absl::Status Run() {
    absl::Status s = CheckPart("all-to-all", p_, RowsOf(Chunks(p_.sq, c_.rank())),
                               RowsOf(Chunks(p_.skv, c_.rank())), mine_);
    if (s.ok()) s = CheckDevice(device_, c_);
    if (s.ok()) s = Prepare();
    const std::string text = absl::StrCat(
        p_.ToString(), ",order=", static_cast<int>(options_.order), ",kernel=", options_.kernel);
    s = Agree(c_, "problem of all-to-all", text, s);
    if (s.ok()) s = ToHeads();
    if (s.ok() && call_.has_value()) s = Forward(call_->plan, whole_, call_->workspace, stream_);
    if (s.ok()) s = ToRows();
    return s;
  }

 private:
  int64_t Group() const { return p_.hq / p_.hkv; }
  Chunk KvHeads(int rank) const { return KvHeadsOf(p_, c_.ranks(), rank); }
  std::vector<Chunk> Chunks(int64_t length, int rank) const {
    return ChunksOf(length, c_.ranks(), rank, options_.order);
  }

  // What rank `from` has of the heads of rank `to`: Q, K, V. And what comes back: LSE, whose floats are
  // aligned, and O.
  std::vector<Stretch> Inputs(int from, int to) const {
    const int64_t q = RowsOf(Chunks(p_.sq, from)), kv = RowsOf(Chunks(p_.skv, from)),
                  heads = KvHeads(to).size();
    return {{p_.dtype, p_.b, q, heads * Group(), p_.d},
            {p_.dtype, p_.b, kv, heads, p_.d},
            {p_.dtype, p_.b, kv, heads, p_.dv}};
  }
  std::vector<Stretch> Outputs(int from, int to) const {
    const int64_t q = RowsOf(Chunks(p_.sq, to)), heads = KvHeads(from).size() * Group();
    return {{DType::kFloat32, p_.b, q, heads, 1}, {p_.ODType(), p_.b, q, heads, p_.dv}};
  }
  static int64_t BytesOf(const std::vector<Stretch>& stretches) {
    int64_t bytes = 0;
    for (const Stretch& s : stretches) bytes += s.Bytes();
    return bytes;
  }

  // Plans, and allocates everything.
  absl::Status Prepare() {
    absl::StatusOr<std::unique_ptr<Executor>> executor = MakeExecutor(device_, stream_);
    if (!executor.ok()) return executor.status();
    executor_ = *std::move(executor);
    here_.hkv = KvHeads(c_.rank()).size();
    here_.hq = here_.hkv * Group();
    const int64_t heads = here_.hq;
    TensorView* const views[] = {&q_, &k_, &v_, &lse_, &o_};
    const Stretch shapes[] = {{p_.dtype, p_.b, p_.sq, heads, p_.d},
                              {p_.dtype, p_.b, p_.skv, here_.hkv, p_.d},
                              {p_.dtype, p_.b, p_.skv, here_.hkv, p_.dv},
                              {DType::kFloat32, p_.b, p_.sq, heads, 1},
                              {p_.ODType(), p_.b, p_.sq, heads, p_.dv}};
    for (int i = 0; i < 5; ++i) {
      const absl::StatusOr<void*> memory = executor_->Allocate(shapes[i].Bytes());
      if (!memory.ok()) return memory.status();
      *views[i] = shapes[i].At(*memory, device_);
    }
    whole_.q = q_, whole_.k = k_, whole_.v = v_, whole_.o = o_, whole_.lse = lse_;
    absl::Status s = Reserve(&to_heads_, [this](int from, int to) { return Inputs(from, to); });
    if (s.ok()) s = Reserve(&to_rows_, [this](int from, int to) { return Outputs(from, to); });
    if (!s.ok() || here_.hq == 0) return s;
    absl::StatusOr<Call> call = PlanCall(here_, device_, options_.kernel, *executor_);
    if (call.ok()) call_ = *std::move(call);
    return call.status();
  }

  // Transfers from each rank to each of `stretches(from, to)`. The first is to this rank, and stays where it is.
  template <typename Stretches>
  absl::Status Reserve(std::vector<Transfer>* transfers, Stretches stretches) {
    const int n = c_.ranks(), rank = c_.rank();
    for (int i = 0; i < n; ++i) {
      Transfer& t = transfers->emplace_back();
      t.to = (rank + i) % n, t.from = (rank + n - i) % n;
      t.send_bytes = BytesOf(stretches(rank, t.to));
      t.receive_bytes = BytesOf(stretches(t.from, rank));
      const absl::StatusOr<void*> send = executor_->Allocate(t.send_bytes),
                                  receive = i == 0 ? send : executor_->Allocate(t.receive_bytes);
      if (!send.ok() || !receive.ok()) return send.ok() ? receive.status() : send.status();
      t.send = *send, t.receive = *receive;
    }
    return absl::OkStatus();
  }

  // After pack(other, data), transfers, then calls unpack(other, data).
  template <typename Pack, typename Unpack>
  absl::Status Exchange(absl::string_view what, const std::vector<Transfer>& transfers, Pack pack,
                        Unpack unpack) {
    for (const Transfer& t : transfers) {
      absl::Status s = pack(t.to, static_cast<char*>(const_cast<void*>(t.send)));
      if (!s.ok()) return s;
    }
    absl::Status s;
    for (Transfer t : transfers) {
      t.stream = stream_;
      if (t.to != c_.rank() && s.ok()) s = c_.Start(t);
    }
    // In any case: what travels uses memory of this object.
    s.Update(c_.Wait(what));
    if (!s.ok()) return s;
    for (const Transfer& t : transfers) {
      absl::Status s = unpack(t.from, static_cast<char*>(t.receive));
      if (!s.ok()) return s;
    }
    return absl::OkStatus();
  }

  // Rows of chunks, one after the other in `packed`: from their places in a sequence or, unless `packs`, to them.
  absl::Status CopyChunks(const std::vector<Chunk>& chunks, const TensorView& whole,
                          const TensorView& packed, bool packs) {
    int64_t at = 0;
    for (const Chunk& c : chunks) {
      const ConstTensorView there = SomeRows(whole, c.begin, c.size()),
                            here = SomeRows(packed, at, c.size());
      absl::Status s = executor_->Copy(packs ? there : here, Mutable(packs ? here : there));
      if (!s.ok()) return s;
      at += c.size();
    }
    return absl::OkStatus();
  }

  absl::Status ToHeads() {
    const auto pack = [&](int to, char* data) {
      const ConstTensorView from[] = {mine_.q, mine_.k, mine_.v};
      const Chunk heads = KvHeads(to);
      const std::vector<Stretch> stretches = Inputs(c_.rank(), to);
      absl::Status s;
      for (int i = 0; i < 3 && s.ok(); ++i) {
        const int64_t group = i == 0 ? Group() : 1;
        s = executor_->Copy(SomeHeads(from[i], heads.begin * group, heads.size() * group),
                            stretches[i].At(data, device_));
        data += stretches[i].Bytes();
      }
      return s;
    };
    const auto unpack = [&](int from, char* data) {
      const TensorView to[] = {q_, k_, v_};
      const std::vector<Stretch> stretches = Inputs(from, c_.rank());
      absl::Status s;
      for (int i = 0; i < 3 && s.ok(); ++i) {
        s = CopyChunks(Chunks(i == 0 ? p_.sq : p_.skv, from), to[i], stretches[i].At(data, device_),
                       /*packs=*/false);
        data += stretches[i].Bytes();
      }
      return s;
    };
    return Exchange("Q, K and V", to_heads_, pack, unpack);
  }

  absl::Status ToRows() {
    const auto pack = [&](int to, char* data) {
      const TensorView from[] = {lse_, o_};
      const std::vector<Stretch> stretches = Outputs(c_.rank(), to);
      absl::Status s;
      for (int i = 0; i < 2 && s.ok(); ++i) {
        s = CopyChunks(Chunks(p_.sq, to), from[i], stretches[i].At(data, device_), /*packs=*/true);
        data += stretches[i].Bytes();
      }
      return s;
    };
    const auto unpack = [&](int from, char* data) {
      const TensorView to[] = {mine_.lse, mine_.o};
      const Chunk heads = KvHeads(from);
      const std::vector<Stretch> stretches = Outputs(from, c_.rank());
      absl::Status s;
      for (int i = 0; i < 2 && s.ok(); ++i) {
        if (to[i].data != nullptr) {
          s = executor_->Copy(
              stretches[i].At(data, device_),
              Mutable(SomeHeads(to[i], heads.begin * Group(), heads.size() * Group())));
        }
        data += stretches[i].Bytes();
      }
      return s;
    };
    return Exchange("O and LSE", to_rows_, pack, unpack);
  }

  const AttentionProblem p_;
  const AllToAllOptions options_;
  Communicator& c_;
  const AttentionTensors mine_;
  const Device device_;
  void* const stream_;
  AttentionProblem here_;  // this rank's heads
  std::unique_ptr<Executor> executor_;
  TensorView q_, k_, v_, lse_, o_;  // all rows of this rank's heads
  AttentionTensors whole_;
  std::vector<Transfer> to_heads_, to_rows_;
  std::optional<Call> call_;  // none without heads
};

}  // namespace

absl::Status AllToAllForward(const AttentionProblem& problem, const AllToAllOptions& options,
                             Communicator& c, const AttentionTensors& mine, void* stream) {
  return AllToAll(problem, options, c, mine, stream).Run();
}

}  // namespace attnlab::multi_gpu
