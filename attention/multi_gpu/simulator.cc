#include "attention/multi_gpu/simulator.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/mask.h"
#include "attention/multi_gpu/pieces.h"

namespace attnlab::multi_gpu {
namespace {

absl::Status Check(const AttentionProblem& p, int ranks, const Machine& m) {
  if (absl::Status s = p.Validate(); !s.ok()) return s;
  if (p.lens != Lengths::kFixed) {
    return absl::InvalidArgumentError(
        absl::StrCat("lens: is not fixed, as the simulator wants, in ", p.ToString()));
  }
  if (p.page != 0) {
    return absl::InvalidArgumentError(absl::StrCat("page: is ", p.page, ", must be 0"));
  }
  if (p.b * VisiblePairs(p.mask, p.sq, p.skv) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("problem: no query sees a key in ", p.ToString()));
  }
  if (ranks < 1 || ranks > kMostRanks) {
    return absl::InvalidArgumentError(absl::StrCat("ranks: ", ranks, " is not in 1..", kMostRanks));
  }
  if (m.ranks_per_node < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranks_per_node: ", m.ranks_per_node, " is below 1"));
  }
  const struct {
    const char* name;
    double value;
    bool is_rate;
  } numbers[] = {{"flops_per_second", m.flops_per_second, true},
                 {"memory_per_second", m.memory_per_second, true},
                 {"within.bytes_per_second", m.within.bytes_per_second, true},
                 {"between.bytes_per_second", m.between.bytes_per_second, true},
                 {"launch", m.launch, false},
                 {"host", m.host, false},
                 {"l2_bytes", m.l2_bytes, false},
                 {"within.latency", m.within.latency, false},
                 {"within.both_ways", m.within.both_ways, true},
                 {"between.latency", m.between.latency, false},
                 {"between.both_ways", m.between.both_ways, true}};
  for (const auto& n : numbers) {
    if (n.is_rate ? n.value > 0 : n.value >= 0) continue;  // not NaN
    return absl::InvalidArgumentError(
        absl::StrCat(n.name, ": ", n.value, " is not ", n.is_rate ? "positive" : "0 or more"));
  }
  return absl::OkStatus();
}

class Simulation {
 public:
  Simulation(const AttentionProblem& p, int ranks, const Machine& m) : p_(p), n_(ranks), m_(m) {}

  double Kernel(int64_t pairs, int64_t heads) const {
    const double flops = 2.0 * p_.b * heads * pairs * (p_.d + p_.dv);
    return flops > 0 ? m_.launch + flops / m_.flops_per_second : 0;
  }

  Prediction Ring(Order order) const {
    std::vector<std::vector<Chunk>> q, kv;
    for (int rank = 0; rank < n_; ++rank) {
      q.push_back(ChunksOf(p_.sq, n_, rank, order));
      kv.push_back(ChunksOf(p_.skv, n_, rank, order));
    }
    const bool q_travels = QTravels(p_);
    std::vector<std::vector<float>> travelling;
    if (!q_travels) travelling = Travelling(q, kv);
    // Whose K and V, or Q, a rank has in a step.
    const auto owner = [&](int rank, int step) { return (rank + n_ - step) % n_; };
    const auto compute = [&](int rank, int step) {
      const int other = owner(rank, step);
      return q_travels ? Step(q[other], kv[rank]) : Step(q[rank], kv[other]);
    };
    // What leaves a rank in a step for the next one.
    const auto moves = [&](int rank, int step) -> double {
      if (step + 1 >= n_) return 0;
      const int other = owner(rank, step);
      if (q_travels) return 1.0 * p_.b * RowsOf(q[other]) * p_.hq * p_.d * SizeOf(p_.dtype);
      return 1.0 * p_.b * travelling[other][step] * p_.hkv * (p_.d + p_.dv) * SizeOf(p_.KvDType());
    };
    // And for whom it computed the step before: O and LSE, if Q travels.
    const auto returns = [&](int rank, int step) -> double {
      if (!q_travels || step < 2) return 0;
      return 1.0 * p_.b * RowsOf(q[owner(rank, step - 1)]) * p_.hq *
             (p_.dv * SizeOf(p_.ODType()) + 4);
    };
    // A step begins when what it needs is there and what leaves has left: there are two places.
    const int steps = q_travels && n_ > 1 ? n_ + 1 : n_;
    std::vector<double> begin(n_), end(n_), next(n_), waiting(n_);
    int64_t kernels = 0;
    for (int step = 0; step < steps; ++step) {
      for (int rank = 0; rank < n_; ++rank) {
        // Parts that others have computed are merged in the step in which they come.
        const int merged = q_travels ? step - 1 : step;
        end[rank] = begin[rank] + Merge(RowsOf(q[rank]), merged);
        if (step == n_) continue;
        // What comes and leaves passes through L2 and memory, and the kernel has less of both. Twice the bytes is what
        // fits measurements.
        const int previous = (rank + n_ - 1) % n_;
        const double bytes = moves(rank, step) + moves(previous, step) + 2 * returns(rank, step);
        const double kernel = compute(rank, step);
        kernels += kernel > 0;
        end[rank] += kernel + 2 * bytes / m_.memory_per_second;
      }
      next = end;
      const auto send = [&](int from, int to, int tensors, double bytes, bool both_ways) {
        if (bytes == 0) return;
        const Link& link = LinkBetween(from, to);
        const double there = std::max(begin[from], begin[to]) + tensors * link.latency +
                             bytes * (both_ways ? link.both_ways : 1) / link.bytes_per_second;
        next[from] = std::max(next[from], there), next[to] = std::max(next[to], there);
      };
      for (int rank = 0; rank < n_; ++rank) {
        send(rank, (rank + 1) % n_, /*tensors=*/q_travels ? 1 : 2, moves(rank, step),
             /*both_ways=*/!q_travels && moves((rank + n_ - 1) % n_, step) > 0);
        send(rank, owner(rank, step - 1), /*tensors=*/2, returns(rank, step), /*both_ways=*/false);
      }
      for (int rank = 0; rank < n_; ++rank) waiting[rank] += next[rank] - end[rank];
      begin = next;
    }
    const auto last = std::max_element(begin.begin(), begin.end());
    const double copies = kRingCopies * steps + kKernelCopies * kernels / n_;
    const double seconds = Slower(n_ > 1 ? copies * m_.host : 0, *last);
    return {seconds, waiting[last - begin.begin()] + seconds - *last};
  }

  // The rank with the most heads gets, and sends, the most.
  Prediction AllToAll() const {
    const double share = 1.0 * MostHeads() / p_.hkv, rows = p_.b * p_.sq * share,
                 keys = p_.b * p_.skv * share;
    const double inputs = rows * p_.hq * p_.d * SizeOf(p_.dtype) +
                          keys * p_.hkv * (p_.d + p_.dv) * SizeOf(p_.KvDType()),
                 outputs = rows * p_.hq * (p_.dv * SizeOf(p_.ODType()) + 4);
    const Prediction heads = Heads();
    const double travels = Exchange(inputs, 3) + Exchange(outputs, 2);
    const double seconds = Slower(kAllToAllCopies * n_ * m_.host, heads.seconds + travels);
    return {seconds, seconds - heads.seconds + heads.waiting};
  }

  // The rank with the most heads ends last.
  Prediction Heads() const {
    return {Kernel(VisiblePairs(p_.mask, p_.sq, p_.skv), MostHeads() * (p_.hq / p_.hkv)), 0};
  }

 private:
  // Host and GPU work side by side, and short problems wait for the host. Both vary from call to call, so if they are
  // about as slow, a call takes longer than either.
  static double Slower(double host, double gpu) {
    if (host == 0) return gpu;
    const double most = std::max(host, gpu);
    return most * std::pow(1 + std::pow(std::min(host, gpu) / most, 16), 1.0 / 16);
  }

  int64_t MostHeads() const { return ChunksOf(p_.hkv, n_, 0, Order::kInOrder)[0].size(); }

  const Link& LinkBetween(int a, int b) const {
    return a / m_.ranks_per_node == b / m_.ranks_per_node ? m_.within : m_.between;
  }

  // How many keys of each rank move on in each step: those that later ranks see (RingProblem::KeysNeeded()).
  std::vector<std::vector<float>> Travelling(const std::vector<std::vector<Chunk>>& q,
                                             const std::vector<std::vector<Chunk>>& kv) const {
    std::vector<std::vector<float>> keys(n_, std::vector<float>(n_));
    for (int owner = 0; owner < n_; ++owner) {
      Chunk needed = {INT64_MAX, 0};
      for (int step = n_ - 2; step >= 0; --step) {
        const Chunk seen = Seen(q[(owner + step + 1) % n_], kv[owner]);
        needed = {std::min(needed.begin, seen.begin), std::max(needed.end, seen.end)};
        if (needed.begin >= needed.end) continue;
        keys[owner][step] = static_cast<float>(p_.b > 1 ? RowsOf(kv[owner]) : needed.size());
      }
    }
    return keys;
  }

  // Which keys of a rank, as it has them, some queries see.
  Chunk Seen(const std::vector<Chunk>& q, const std::vector<Chunk>& kv) const {
    Chunk seen = {INT64_MAX, 0};
    int64_t before = 0;
    for (const Chunk& keys : kv) {
      for (const Chunk& rows : q) {
        const Piece piece = PieceOf(p_.mask, p_.sq, p_.skv, rows, keys);
        if (piece.rows == 0 || piece.keys == 0) continue;
        seen.begin = std::min(seen.begin, before + piece.first_key);
        seen.end = std::max(seen.end, before + piece.first_key + piece.keys);
      }
      before += keys.size();
    }
    return seen;
  }

  // One kernel in most cases: neighbouring pieces are joined.
  double Step(const std::vector<Chunk>& q, const std::vector<Chunk>& kv) const {
    int64_t pairs = 0;
    for (const Chunk& rows : q) {
      for (const Chunk& keys : kv) {
        const Piece piece = PieceOf(p_.mask, p_.sq, p_.skv, rows, keys);
        if (piece.rows == 0 || piece.keys == 0) continue;
        pairs += VisiblePairs(piece.mask, piece.rows, piece.keys);
      }
    }
    return Kernel(pairs, p_.hq);
  }

  // O of two steps is merged in one pass, with the sum of those before, in fp32. The last pass writes O. The second of
  // two parts of 16 bits is added by the kernel, which only reads O (ForwardAdding()).
  double Merge(int64_t rows, int step) const {
    const bool is_last = step + 1 == n_;
    if (n_ == 2 && !QTravels(p_) && SizeOf(p_.dtype) == 2) {
      return step == 1 ? 2.0 * p_.b * rows * p_.hq * p_.dv / m_.memory_per_second : 0;
    }
    if (step < 0 || (!is_last && step % 2 == 0)) return 0;
    const int size = SizeOf(p_.ODType()), parts = step % 2 + 1;
    const int bytes = parts * size + (step > 1 ? 4 : 0) + (is_last ? size : 4);
    return m_.launch / 2 + 1.0 * bytes * p_.b * rows * p_.hq * p_.dv / m_.memory_per_second;
  }

  // A rank has so many bytes in some tensors, an equal part from or for each; those of its own node and of others go
  // at once. Each part is copied from a tensor before, and to one afterwards. What is in L2 then costs half.
  double Exchange(double bytes, int tensors) const {
    const int here = std::min(n_, m_.ranks_per_node);
    const double within = here > 1 ? tensors * m_.within.latency +
                                         bytes / n_ * (here - 1) / m_.within.bytes_per_second
                                   : 0,
                 between = n_ > here ? tensors * m_.between.latency +
                                           bytes / n_ * (n_ - here) / m_.between.bytes_per_second
                                     : 0;
    const double copied = 4 * bytes - 2 * std::min(bytes, m_.l2_bytes);
    return std::max(within, between) + copied / m_.memory_per_second + n_ * tensors * m_.launch;
  }

  const AttentionProblem& p_;
  const int n_;
  const Machine& m_;
};

}  // namespace

absl::string_view Name(Way way) {
  switch (way) {
    case Way::kRing:
      return "ring";
    case Way::kZigzagRing:
      return "zigzag ring";
    case Way::kAllToAll:
      return "all-to-all";
    case Way::kHeads:
      return "heads";
  }
  return "?";
}

absl::StatusOr<Prediction> Predict(Way way, const AttentionProblem& p, int ranks,
                                   const Machine& machine) {
  if (absl::Status s = Check(p, ranks, machine); !s.ok()) return s;
  const Simulation simulation(p, ranks, machine);
  switch (way) {
    case Way::kRing:
      return simulation.Ring(Order::kInOrder);
    case Way::kZigzagRing:
      return simulation.Ring(Order::kZigzag);
    case Way::kAllToAll:
      return simulation.AllToAll();
    case Way::kHeads:
      return simulation.Heads();
  }
  return absl::InvalidArgumentError("way: not one of those in simulator.h");
}

Machine WithRateOf(const AttentionProblem& p, double seconds, Machine m) {
  // A kernel may be shorter than the launch of others.
  m.launch = std::min(m.launch, seconds / 2);
  m.flops_per_second =
      2.0 * p.b * p.hq * VisiblePairs(p.mask, p.sq, p.skv) * (p.d + p.dv) / (seconds - m.launch);
  return m;
}

absl::StatusOr<double> PredictOne(const AttentionProblem& p, const Machine& machine) {
  const absl::StatusOr<Prediction> one = Predict(Way::kHeads, p, 1, machine);
  if (!one.ok()) return one.status();
  return one->seconds;
}

absl::StatusOr<Choice> Choose(const AttentionProblem& p, int ranks, const Machine& machine) {
  const absl::StatusOr<double> one = PredictOne(p, machine);
  if (!one.ok()) return one.status();
  Choice best = {Way::kZigzagRing, 1, *one};
  for (const Way way : {Way::kZigzagRing, Way::kRing, Way::kAllToAll}) {
    const absl::StatusOr<Prediction> with = Predict(way, p, ranks, machine);
    if (!with.ok()) return with.status();
    if (with->seconds < best.seconds) best = {way, ranks, with->seconds};
  }
  return best;
}

}  // namespace attnlab::multi_gpu
