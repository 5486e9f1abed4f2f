#include "attention/reference/reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/machine.h"
#include "attention/parallel.h"
#include "attention/reference/row.h"

namespace attnlab::reference {
namespace {

// Waking threads costs more than this many multiply-adds.
constexpr double kSerialWork = 2e5;

absl::Status Validate(const AttentionProblem& p, const AttentionTensors& t,
                      absl::Span<const Row> rows) {
  if (absl::Status s = p.Validate(); !s.ok()) return s;
  if (p.dtype == DType::kFloat8E4M3) {
    return absl::UnimplementedError("dtype: fp8_e4m3 is not one of fp32, fp16, bf16");
  }
  if (p.page != 0) return absl::UnimplementedError("page: paged K and V are not supported");
  if (t.q.device.kind != DeviceKind::kCpu) {
    return absl::InvalidArgumentError(absl::StrCat("q: on ", ToString(t.q.device), ", not on cpu"));
  }
  // Outputs are not used, but ValidateTensors wants some: this one is never touched.
  static char unused[8];
  AttentionTensors with_outputs = t;
  with_outputs.o =
      BshdView(unused, p.dtype, Device::Cpu(), t.q.shape[0], t.q.shape[1], t.q.shape[2], p.dv);
  with_outputs.lse = {};
  if (absl::Status s = ValidateTensors(p, with_outputs); !s.ok()) return s;
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

int Threads(int threads, double work) {
  if (work < kSerialWork) return 1;
  return threads > 0 ? threads : CpuInfo().threads;
}

// Calls compute(index, input, worker) for every row, with K and V of one KV head at a time
// converted to Real.
template <typename Real, typename Compute>
void ForEachRow(const AttentionProblem& p, const AttentionTensors& t, absl::Span<const Row> rows,
                int threads, const Compute& compute) {
  const int64_t count = static_cast<int64_t>(rows.size());
  const auto kv_head = [&](int64_t i) { return rows[i].head / p.GroupSize(); };
  std::vector<int64_t> order(count);
  for (int64_t i = 0; i < count; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return rows[a].sequence != rows[b].sequence ? rows[a].sequence < rows[b].sequence
                                                : kv_head(a) < kv_head(b);
  });

  const int64_t padded = Padded(p.d);
  std::vector<Real> k, v;
  for (int64_t first = 0, last; first < count; first = last) {
    const int64_t sequence = rows[order[first]].sequence;
    const int64_t head = kv_head(order[first]);
    const Sequence s = SequenceOf(p, t, sequence);
    const auto visible = [&](int64_t i) {
      return VisibleKv(p.mask, rows[i].row, s.q_len, s.kv_len);
    };

    // The rows that share this head, and the keys that they see.
    KvRange seen = visible(order[first]);
    for (last = first;
         last < count && rows[order[last]].sequence == sequence && kv_head(order[last]) == head;
         ++last) {
      const KvRange range = visible(order[last]);
      seen = {std::min(seen.begin, range.begin), std::max(seen.end, range.end)};
    }
    const int64_t keys = seen.end - seen.begin;
    k.resize(keys * padded);
    v.resize(keys * p.dv);
    constexpr int64_t kBlock = 256;
    ParallelFor((keys + kBlock - 1) / kBlock, Threads(threads, 1.0 * keys * (padded + p.dv)),
                [&](int64_t block, int) {
                  const int64_t from = block * kBlock, to = std::min(keys, from + kBlock);
                  const int64_t at = s.kv_begin + seen.begin;
                  LoadRows(t.k, s.kv_batch, head, at + from, at + to, padded, &k[from * padded]);
                  LoadRows(t.v, s.kv_batch, head, at + from, at + to, p.dv, &v[from * p.dv]);
                });

    ParallelFor(last - first, Threads(threads, 1.0 * (last - first) * keys * (padded + p.dv)),
                [&](int64_t i, int) {
                  const int64_t index = order[first + i];
                  const Row& row = rows[index];
                  const KvRange range = visible(index);
                  std::vector<Real> q(padded);
                  LoadRows(t.q, s.q_batch, row.head, s.q_begin + row.row, s.q_begin + row.row + 1,
                           padded, q.data());
                  RowInput<Real> in;
                  in.q = q.data();
                  in.k = k.data() + (range.begin - seen.begin) * padded;
                  in.v = v.data() + (range.begin - seen.begin) * p.dv;
                  in.keys = range.end - range.begin;
                  in.d = p.d;
                  in.dv = p.dv;
                  in.scale = p.Scale();
                  in.softcap = p.softcap;
                  compute(index, in);
                });
  }
}

}  // namespace

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
  if (absl::Status s = Validate(p, t, rows); !s.ok()) return s;
  Result result;
  result.dv = p.dv;
  result.o.resize(rows.size() * p.dv);
  result.lse.resize(rows.size());
  result.spread.resize(rows.size());
  result.score.resize(rows.size());
  ForEachRow<double>(p, t, rows, threads, [&](int64_t i, const RowInput<double>& in) {
    std::vector<double> scores(in.keys), spread(in.dv);
    RowSizes sizes;
    sizes.spread = spread.data();
    ExactRow(in, scores.data(), &result.o[i * in.dv], &result.lse[i], &sizes);
    result.spread[i] = std::sqrt(*std::max_element(spread.begin(), spread.end()));
    result.score[i] = sizes.score;
  });
  return result;
}

absl::StatusOr<Result> Straightforward(const AttentionProblem& p, const AttentionTensors& t,
                                       absl::Span<const Row> rows, int threads) {
  if (absl::Status s = Validate(p, t, rows); !s.ok()) return s;
  Result result;
  result.dv = p.dv;
  result.o.resize(rows.size() * p.dv);
  result.lse.resize(rows.size());
  ForEachRow<float>(p, t, rows, threads, [&](int64_t i, const RowInput<float>& in) {
    std::vector<float> scores(in.keys), o(in.dv);
    float lse = 0;
    StraightforwardRow(in, p.dtype, scores.data(), o.data(), &lse);
    std::copy(o.begin(), o.end(), &result.o[i * in.dv]);
    result.lse[i] = lse;
  });
  return result;
}

}  // namespace attnlab::reference
