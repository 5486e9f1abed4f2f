#include "attention/oracle/reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/core/parallel.h"
#include "attention/core/stop.h"
#include "attention/cuda/machine.h"
#include "attention/oracle/row.h"

namespace attnlab::oracle {
namespace {

// Below this many multiply-adds, waking threads costs more than it saves.
constexpr double kSerialWork = 2e5;

int Threads(int threads, double work) {
  if (work < kSerialWork) return 1;
  return threads > 0 ? threads : CpuInfo().threads;
}

// Resizes a vector. Too large a size gives an error, not an exception.
template <typename T>
absl::Status Resize(absl::string_view what, int64_t size, std::vector<T>* vector) {
  try {
    vector->resize(size);
    return absl::OkStatus();
  } catch (const std::exception&) {  // bad_alloc, or length_error above a vector's maximum size
    return absl::ResourceExhaustedError(
        absl::StrCat("oracle: no memory for ", size, " numbers of ", what));
  }
}

// Rows that share a KV head, and the range of keys that they see.
struct Group {
  int64_t first, last;  // indices into the order of rows
  int64_t index;        // of the sequence
  Sequence sequence;
  int64_t head;  // of K and V
  KvRange seen;
};

// Indices of the rows, ordered by sequence and KV head.
absl::StatusOr<std::vector<int64_t>> OrderOf(const AttentionProblem& p,
                                             absl::Span<const Row> rows) {
  std::vector<int64_t> order;
  if (absl::Status s = Resize("row order", rows.size(), &order); !s.ok()) return s;
  for (size_t i = 0; i < rows.size(); ++i) order[i] = static_cast<int64_t>(i);
  const auto key = [&](int64_t i) {
    return std::make_tuple(rows[i].sequence, rows[i].head / p.GroupSize(), i);
  };
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key(a) < key(b); });
  return order;
}

// The rows from order[first] on that share a KV head.
Group GroupAt(const AttentionProblem& p, const AttentionTensors& t, absl::Span<const Row> rows,
              const std::vector<int64_t>& order, int64_t first) {
  const Row& row = rows[order[first]];
  Group group;
  group.first = group.last = first;
  group.index = row.sequence;
  group.sequence = SequenceOf(p, t, row.sequence);
  group.head = row.head / p.GroupSize();
  group.seen = {p.skv, 0};
  for (; group.last < static_cast<int64_t>(order.size()); ++group.last) {
    const Row& other = rows[order[group.last]];
    if (other.sequence != row.sequence || other.head / p.GroupSize() != group.head) break;
    const KvRange range = VisibleKv(p.mask, other.row, group.sequence.q_len, group.sequence.kv_len);
    group.seen = {std::min(group.seen.begin, range.begin), std::max(group.seen.end, range.end)};
  }
  return group;
}

// Calls compute(index, input, scratch) for every row, with K and V of one KV head at a time
// converted to Real. `scratch` has room for as many numbers as there are keys and dims of V.
// Everything is allocated before threads start: an exception in a thread could not be caught.
template <typename Real, typename Compute>
absl::Status ForEachRow(const AttentionProblem& p, const AttentionTensors& t,
                        absl::Span<const Row> rows, int threads, const Compute& compute) {
  const absl::StatusOr<std::vector<int64_t>> order = OrderOf(p, rows);
  if (!order.ok()) return order.status();
  const int64_t padded = Padded(p.d);
  std::vector<Real> k, v, scratch;
  Group g;
  for (int64_t first = 0; first < static_cast<int64_t>(order->size()); first = g.last) {
    if (Stopping()) return absl::CancelledError("oracle: stopped");
    g = GroupAt(p, t, rows, *order, first);
    const int64_t count = g.last - g.first, keys = g.seen.end - g.seen.begin;
    const int workers = static_cast<int>(
        std::min<int64_t>(Threads(threads, 1.0 * count * keys * (padded + p.dv)), count));
    const int64_t per_worker = padded + keys + p.dv;
    absl::Status s = Resize("K", keys * padded, &k);
    if (s.ok()) s = Resize("V", keys * p.dv, &v);
    if (s.ok()) s = Resize("scratch", workers * per_worker, &scratch);
    if (!s.ok()) return s;

    constexpr int64_t kBlock = 256;
    const Sequence& q = g.sequence;
    ParallelFor((keys + kBlock - 1) / kBlock, Threads(threads, 1.0 * keys * (padded + p.dv)),
                [&](int64_t block, int) {
                  const int64_t from = block * kBlock, to = std::min(keys, from + kBlock);
                  const int64_t at = g.seen.begin;
                  LoadKeys(p, t, q, g.index, t.k, t.k_scale, g.head, at + from, at + to, padded,
                           &k[from * padded]);
                  LoadKeys(p, t, q, g.index, t.v, t.v_scale, g.head, at + from, at + to, p.dv,
                           &v[from * p.dv]);
                });
    ParallelFor(count, workers, [&](int64_t i, int worker) {
      const int64_t index = (*order)[g.first + i];
      const Row& row = rows[index];
      const KvRange range = VisibleKv(p.mask, row.row, q.q_len, q.kv_len);
      Real* const query = scratch.data() + worker * per_worker;
      LoadQuery(p, t, q, g.index, row.head, row.row, query);
      RowInput<Real> in;
      in.q = query;
      in.k = k.data() + (range.begin - g.seen.begin) * padded;
      in.v = v.data() + (range.begin - g.seen.begin) * p.dv;
      in.keys = range.end - range.begin;
      in.d = p.d;
      in.dv = p.dv;
      in.scale = p.Scale();
      in.softcap = p.softcap;
      compute(index, in, query + padded);
    });
  }
  if (Stopping()) return absl::CancelledError("oracle: stopped");
  return absl::OkStatus();
}

// Checks the rows and makes a result with room for their O and LSE.
absl::StatusOr<Result> Begin(const AttentionProblem& p, const AttentionTensors& t,
                             absl::Span<const Row> rows) {
  if (absl::Status s = Check(p, t, rows); !s.ok()) return s;
  Result result;
  result.dv = p.dv;
  absl::Status s = Resize("O", static_cast<int64_t>(rows.size()) * p.dv, &result.o);
  if (s.ok()) s = Resize("LSE", rows.size(), &result.lse);
  if (!s.ok()) return s;
  return result;
}

}  // namespace

absl::Status Check(const AttentionProblem& p, const AttentionTensors& t,
                   absl::Span<const Row> rows) {
  if (absl::Status s = p.Validate(); !s.ok()) return s;
  if (t.q.device.kind != DeviceKind::kCpu) {
    return absl::InvalidArgumentError(absl::StrCat("q: on ", ToString(t.q.device), ", not on cpu"));
  }
  if (absl::Status s = ValidateInputs(p, t); !s.ok()) return s;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    if (r.sequence < 0 || r.sequence >= p.b || r.head < 0 || r.head >= p.hq || r.row < 0 ||
        r.row >= SequenceOf(p, t, r.sequence).q_len) {
      return absl::InvalidArgumentError(absl::StrCat("rows: entry ", i, " (sequence ", r.sequence,
                                                     ", head ", r.head, ", row ", r.row,
                                                     ") does not exist"));
    }
  }
  return absl::OkStatus();
}

std::vector<Row> AllRows(const AttentionProblem& p, const AttentionTensors& t) {
  std::vector<Row> rows;
  for (int64_t i = 0; i < p.b; ++i) {
    const int64_t q_len = SequenceOf(p, t, i).q_len;
    for (int64_t head = 0; head < p.hq; ++head) {
      for (int64_t row = 0; row < q_len; ++row) rows.push_back({i, head, row});
    }
  }
  return rows;
}

absl::StatusOr<Result> Exact(const AttentionProblem& p, const AttentionTensors& t,
                             absl::Span<const Row> rows, int threads) {
  absl::StatusOr<Result> result = Begin(p, t, rows);
  if (!result.ok()) return result;
  absl::Status s = Resize("spread", rows.size(), &result->spread);
  if (s.ok()) s = Resize("score", rows.size(), &result->score);
  if (!s.ok()) return s;
  s = ForEachRow<double>(p, t, rows, threads,
                         [&](int64_t i, const RowInput<double>& in, double* scratch) {
                           double* const spread = scratch + in.keys;
                           RowSizes sizes;
                           sizes.spread = spread;
                           sizes.all_keys = p.dtype == DType::kFloat8E4M3;
                           ExactRow(in, scratch, &result->o[i * in.dv], &result->lse[i], &sizes);
                           result->spread[i] = std::sqrt(*std::max_element(spread, spread + in.dv));
                           result->score[i] = sizes.score;
                         });
  if (!s.ok()) return s;
  return result;
}

absl::StatusOr<Result> Straightforward(const AttentionProblem& p, const AttentionTensors& t,
                                       absl::Span<const Row> rows, Factors factors, int threads) {
  absl::StatusOr<Result> result = Begin(p, t, rows);
  if (!result.ok()) return result;
  const absl::Status s = ForEachRow<float>(
      p, t, rows, threads, [&](int64_t i, const RowInput<float>& in, float* scratch) {
        float* const o = scratch + in.keys;
        float lse = 0;
        StraightforwardRow(in, p.dtype, p.ODType(), factors == Factors::kTf32, scratch, o, &lse);
        std::copy(o, o + in.dv, &result->o[i * in.dv]);
        result->lse[i] = lse;
      });
  if (!s.ok()) return s;
  return result;
}

}  // namespace attnlab::oracle
