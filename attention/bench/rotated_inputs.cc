#include "attention/bench/rotated_inputs.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"

namespace attnlab::bench {
namespace {

constexpr int64_t kUnknownCache = int64_t{64} << 20;
// Each set has fences, which the system is asked for one by one: more would take seconds.
constexpr int64_t kMostSets = 1024;

// From a sixteenth of `longest` to `longest` in equal steps, in random order.
std::vector<int32_t> LengthsUpTo(int64_t longest, int64_t count, uint64_t seed) {
  std::vector<int32_t> lens(count, static_cast<int32_t>(longest));
  const int64_t least = (longest + 15) / 16;
  for (int64_t i = 0; i + 1 < count; ++i) {
    lens[i] = static_cast<int32_t>(least + (longest - least) * i / (count - 1));
  }
  std::shuffle(lens.begin(), lens.end(), std::mt19937_64(seed));
  return lens;
}

int64_t Bytes(const ConstTensorView& view) { return view.NumElements() * SizeOf(view.dtype); }

// The bytes of K or V in use: without unused pages, and without the rest of last pages.
int64_t KvBytes(const AttentionProblem& p, const ConstTensorView& view,
                absl::Span<const int32_t> kv_lens) {
  if (p.page == 0) return Bytes(view);
  const int64_t tokens = std::accumulate(kv_lens.begin(), kv_lens.end(), int64_t{0});
  return tokens * view.shape[2] * view.shape[3] * SizeOf(view.dtype);
}

}  // namespace

absl::StatusOr<RotatedInputs> RotatedInputs::Make(const AttentionProblem& problem,
                                                  const DeviceInfo& device, uint64_t seed,
                                                  bool with_lse, int64_t memory_bytes) {
  RotatedInputs rotated;
  oracle::InputOptions options;
  options.seed = seed;
  if (problem.lens != Lengths::kFixed) {
    if (absl::Status s = problem.Validate(); !s.ok()) return s;
    options.q_lens = LengthsUpTo(problem.sq, problem.b, seed);
    options.kv_lens =
        problem.skv == problem.sq ? options.q_lens : LengthsUpTo(problem.skv, problem.b, seed + 1);
  }
  int64_t sets = 1;
  for (int64_t i = 0; i < sets; ++i) {
    absl::StatusOr<oracle::Inputs> inputs = oracle::Inputs::Make(problem, device.device, options);
    if (!inputs.ok()) return inputs.status();
    AttentionTensors tensors = inputs->tensors();
    const auto& q = tensors.q.shape;
    tensors.o = BshdView(static_cast<void*>(nullptr), problem.ODType(), device.device, q[0], q[1],
                         problem.hq, problem.dv);
    tensors.lse = LseView(nullptr, device.device, q[0], q[1], problem.hq);
    absl::StatusOr<Buffer> o = Buffer::Allocate(device.device, Bytes(tensors.o));
    if (!o.ok()) return o.status();
    absl::StatusOr<Buffer> lse = Buffer::Allocate(device.device, with_lse ? Bytes(tensors.lse) : 0);
    if (!lse.ok()) return lse.status();
    // Written before they are timed: the first touch of a page is the system's work.
    for (Buffer* buffer : {&*o, &*lse}) {
      if (absl::Status s = buffer->Fill(0); !s.ok()) return s;
    }
    tensors.o.data = o->data();
    if (with_lse) tensors.lse.data = lse->data();
    if (i == 0) {
      const absl::Span<const int32_t> kv_lens = inputs->kv_lens();
      const int64_t kv_bytes =
          KvBytes(problem, tensors.k, kv_lens) + KvBytes(problem, tensors.v, kv_lens);
      rotated.set_bytes_ =
          Bytes(tensors.q) + kv_bytes + Bytes(tensors.o) + (with_lse ? Bytes(tensors.lse) : 0);
      const int64_t set = std::max<int64_t>(rotated.set_bytes_, 1);
      const int64_t allocated = set - kv_bytes + Bytes(tensors.k) + Bytes(tensors.v);
      const int64_t cache =
          device.last_level_cache_bytes > 0 ? device.last_level_cache_bytes : kUnknownCache;
      const int64_t wanted = cache / set + 2;
      // Each set has fences and bookkeeping beside its elements.
      constexpr int64_t kOverhead = 48 * 1024;
      sets = std::clamp<int64_t>(memory_bytes / (allocated + kOverhead), 1,
                                 std::min(wanted, kMostSets));
      rotated.past_cache_ = sets == wanted;
      rotated.compulsory_ = CompulsoryTraffic(problem, with_lse, options.q_lens, options.kv_lens);
      rotated.sets_.reserve(sets);
    }
    options.seed = seed + static_cast<uint64_t>(i) + 1;
    rotated.sets_.push_back({*std::move(inputs), *std::move(o), *std::move(lse), tensors});
  }
  return rotated;
}

const AttentionTensors& RotatedInputs::Next() {
  const AttentionTensors& tensors = sets_[next_].tensors;
  next_ = (next_ + 1) % sets_.size();
  return tensors;
}

}  // namespace attnlab::bench
