#include "attention/multi_gpu/all_to_all.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "attention/attention.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/cuda/memory.h"
#include "attention/multi_gpu/heads.h"
#include "attention/multi_gpu/part.h"

namespace attnlab::multi_gpu {
namespace {

// Rows of some chunks of a sequence, of some heads: a tensor as it travels.
struct Stretch {
  DType dtype;
  int64_t b, rows, heads, d;
  int64_t Bytes() const { return b * rows * heads * d * SizeOf(dtype); }
  TensorView At(char* data) const {
    return BshdView(static_cast<void*>(data), dtype, Device::Cpu(), b, rows, heads, d);
  }
};

TensorView Mutable(const ConstTensorView& view) {
  return {const_cast<void*>(view.data), view.dtype, view.device, view.shape, view.strides};
}
ConstTensorView SomeHeads(ConstTensorView view, int64_t begin, int64_t heads) {
  view.data = static_cast<const char*>(view.data) + begin * view.strides[2] * SizeOf(view.dtype);
  view.shape[2] = heads;
  return view;
}

class AllToAll {
 public:
  AllToAll(const AttentionProblem& p, const AllToAllOptions& options, Communicator& c,
           const AttentionTensors& mine)
      : p_(p), options_(options), c_(c), mine_(mine), here_(p) {}

  absl::Status Run() {
    absl::Status s = CheckPart("all-to-all", p_, RowsOf(Chunks(p_.sq, c_.rank())),
                               RowsOf(Chunks(p_.skv, c_.rank())), mine_);
    const std::string text = absl::StrCat(
        p_.ToString(), ",order=", static_cast<int>(options_.order), ",kernel=", options_.kernel);
    s = Agree(c_, "problem of all-to-all", text, s);
    if (!s.ok()) return s;
    here_.hkv = KvHeads(c_.rank()).size();
    here_.hq = here_.hkv * Group();
    s = Allocate();
    if (s.ok()) s = ToHeads();
    if (s.ok() && here_.hq > 0) s = ForwardOnce(here_, whole_, options_.kernel);
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

  absl::Status Allocate() {
    const int64_t heads = here_.hq;
    TensorView* const views[] = {&q_, &k_, &v_, &lse_, &o_};
    const Stretch shapes[] = {{p_.dtype, p_.b, p_.sq, heads, p_.d},
                              {p_.dtype, p_.b, p_.skv, here_.hkv, p_.d},
                              {p_.dtype, p_.b, p_.skv, here_.hkv, p_.dv},
                              {DType::kFloat32, p_.b, p_.sq, heads, 1},
                              {p_.ODType(), p_.b, p_.sq, heads, p_.dv}};
    for (int i = 0; i < 5; ++i) {
      absl::StatusOr<Buffer> buffer = Buffer::Allocate(Device::Cpu(), shapes[i].Bytes());
      if (!buffer.ok()) return buffer.status();
      memory_[i] = *std::move(buffer);
      *views[i] = shapes[i].At(static_cast<char*>(memory_[i].data()));
    }
    whole_.q = q_, whole_.k = k_, whole_.v = v_, whole_.o = o_, whole_.lse = lse_;
    return absl::OkStatus();
  }

  // Sends `sizes(rank, other)` to each rank, this one too, after pack(other, data), and gives what comes to
  // unpack(other, data).
  template <typename Sizes, typename Pack, typename Unpack>
  absl::Status Exchange(absl::string_view what, Sizes sizes, Pack pack, Unpack unpack) {
    const int n = c_.ranks(), rank = c_.rank();
    std::vector<Buffer> sent(n), received(n);
    std::vector<Transfer> transfers(n);
    for (int i = 0; i < n; ++i) {
      const int to = (rank + i) % n, from = (rank + n - i) % n;
      Transfer& t = transfers[i];
      t.to = to, t.from = from;
      t.send_bytes = BytesOf(sizes(rank, to)), t.receive_bytes = BytesOf(sizes(from, rank));
      absl::StatusOr<Buffer> out = Buffer::Allocate(Device::Cpu(), t.send_bytes),
                             in = Buffer::Allocate(Device::Cpu(), t.receive_bytes);
      if (!out.ok() || !in.ok()) return out.ok() ? in.status() : out.status();
      pack(to, static_cast<char*>(out->data()));
      t.send = out->data(), t.receive = in->data();
      sent[to] = *std::move(out), received[from] = *std::move(in);
    }
    for (const Transfer& t : transfers) {
      if (absl::Status s = c_.Start(t); !s.ok()) return s;
    }
    if (absl::Status s = c_.Wait(what); !s.ok()) return s;
    for (int from = 0; from < n; ++from) unpack(from, static_cast<char*>(received[from].data()));
    return absl::OkStatus();
  }

  // Rows of chunks, one after the other in `packed`: from their places in a sequence or, unless `packs`, to them.
  static void CopyChunks(const std::vector<Chunk>& chunks, const TensorView& whole,
                         const TensorView& packed, bool packs) {
    int64_t at = 0;
    for (const Chunk& c : chunks) {
      const ConstTensorView there = SomeRows(whole, c.begin, c.size()),
                            here = SomeRows(packed, at, c.size());
      CopyElements(packs ? there : here, Mutable(packs ? here : there));
      at += c.size();
    }
  }

  absl::Status ToHeads() {
    const auto pack = [&](int to, char* data) {
      const ConstTensorView from[] = {mine_.q, mine_.k, mine_.v};
      const Chunk heads = KvHeads(to);
      const std::vector<Stretch> stretches = Inputs(c_.rank(), to);
      for (int i = 0; i < 3; ++i) {
        const int64_t group = i == 0 ? Group() : 1;
        CopyElements(SomeHeads(from[i], heads.begin * group, heads.size() * group),
                     stretches[i].At(data));
        data += stretches[i].Bytes();
      }
    };
    const auto unpack = [&](int from, char* data) {
      const TensorView to[] = {q_, k_, v_};
      const std::vector<Stretch> stretches = Inputs(from, c_.rank());
      for (int i = 0; i < 3; ++i) {
        CopyChunks(Chunks(i == 0 ? p_.sq : p_.skv, from), to[i], stretches[i].At(data),
                   /*packs=*/false);
        data += stretches[i].Bytes();
      }
    };
    return Exchange(
        "Q, K and V", [&](int from, int to) { return Inputs(from, to); }, pack, unpack);
  }

  absl::Status ToRows() {
    const auto pack = [&](int to, char* data) {
      const TensorView from[] = {lse_, o_};
      const std::vector<Stretch> stretches = Outputs(c_.rank(), to);
      for (int i = 0; i < 2; ++i) {
        CopyChunks(Chunks(p_.sq, to), from[i], stretches[i].At(data), /*packs=*/true);
        data += stretches[i].Bytes();
      }
    };
    const auto unpack = [&](int from, char* data) {
      const TensorView to[] = {mine_.lse, mine_.o};
      const Chunk heads = KvHeads(from);
      const std::vector<Stretch> stretches = Outputs(from, c_.rank());
      for (int i = 0; i < 2; ++i) {
        if (to[i].data != nullptr) {
          CopyElements(stretches[i].At(data),
                       Mutable(SomeHeads(to[i], heads.begin * Group(), heads.size() * Group())));
        }
        data += stretches[i].Bytes();
      }
    };
    return Exchange(
        "O and LSE", [&](int from, int to) { return Outputs(from, to); }, pack, unpack);
  }

  const AttentionProblem p_;
  const AllToAllOptions options_;
  Communicator& c_;
  const AttentionTensors mine_;
  AttentionProblem here_;  // this rank's heads
  Buffer memory_[5];
  TensorView q_, k_, v_, lse_, o_;  // all rows of this rank's heads
  AttentionTensors whole_;
};

}  // namespace

absl::Status AllToAllForward(const AttentionProblem& problem, const AllToAllOptions& options,
                             Communicator& c, const AttentionTensors& mine) {
  return AllToAll(problem, options, c, mine).Run();
}

}  // namespace attnlab::multi_gpu
