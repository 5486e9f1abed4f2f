#include "attention/conformance/intermediates.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/cuda/backend.h"
#include "attention/oracle/bare_memory.h"
#include "attention/oracle/buffers.h"
#include "attention/oracle/reference.h"
#include "attention/oracle/trial.h"

namespace attnlab::conformance {
namespace {

using oracle::Row;

// The most multiply-adds that the check itself does.
constexpr double kMostWork = 2e8;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A row of S and P in double precision.
struct ExactRow {
  std::vector<double> scores, probabilities;
  std::vector<double> bounds;  // of the scores
  double largest = 0;          // |score| before softcap
};

ExactRow Compute(const AttentionProblem& p, const AttentionTensors& t, const Row& row) {
  const Sequence s = SequenceOf(p, t, row.sequence);
  const KvRange seen = VisibleKv(p.mask, row.row, s.q_len, s.kv_len);
  ExactRow exact;
  exact.scores.assign(p.skv, -kInfinity);
  exact.probabilities.assign(p.skv, 0);
  exact.bounds.assign(p.skv, 0);
  const double e32 = Epsilon(DType::kFloat32), scale = p.Scale(), cap = p.softcap;
  const int64_t q = t.q.Offset(s.q_batch, s.q_begin + row.row, row.head, 0);
  double max = -kInfinity;
  for (int64_t j = seen.begin; j < seen.end; ++j) {
    const int64_t k = t.k.Offset(s.kv_batch, s.kv_begin + j, row.head / p.GroupSize(), 0);
    double sum = 0, size = 0;
    for (int64_t i = 0; i < p.d; ++i) {
      const double term = static_cast<double>(LoadElement(t.q.data, p.dtype, q + i)) *
                          LoadElement(t.k.data, p.dtype, k + i);
      sum += term;
      size += std::abs(term);
    }
    const double score = scale * sum;
    exact.largest = std::max(exact.largest, std::abs(score));
    exact.scores[j] = cap == 0 ? score : cap * std::tanh(score / cap);
    exact.bounds[j] = e32 * ((8 + static_cast<double>(p.d) / 4) * scale * size +
                             4 * (cap == 0 ? std::abs(score) : cap));
    max = std::max(max, exact.scores[j]);
  }
  double sum = 0;
  for (int64_t j = seen.begin; j < seen.end; ++j) {
    exact.probabilities[j] = std::exp(exact.scores[j] - max);
    sum += exact.probabilities[j];
  }
  for (int64_t j = seen.begin; j < seen.end; ++j) exact.probabilities[j] /= sum;
  return exact;
}

// The spacing of fp16's denormals; for other dtypes, fp32's smallest normal number.
double Spacing(DType dtype) { return dtype == DType::kFloat16 ? 0x1p-24 : 0x1p-126; }

std::string RowFault(const AttentionProblem& p, const ExactRow& exact, const float* scores,
                     const float* probabilities) {
  if (p.skv == 0) return "";
  const double e32 = Epsilon(DType::kFloat32);
  const double s_bound = *std::max_element(exact.bounds.begin(), exact.bounds.end());
  const double relative = 2 * s_bound + e32 * (8 + 4 * exact.largest) + Epsilon(p.dtype) / 2;
  for (int64_t j = 0; j < p.skv; ++j) {
    const double s = exact.scores[j], w = exact.probabilities[j];
    // If both are -infinity (hidden), their difference is NaN, so they are compared first.
    const bool s_right = scores[j] == s || std::abs(scores[j] - s) <= exact.bounds[j];
    if (!s_right) {
      return absl::StrCat("scores: ", scores[j], ", must be ", s, " +- ", exact.bounds[j],
                          ", at key ", j);
    }
    const double w_bound = w == 0 ? 0 : relative * w + Spacing(p.dtype);
    if (!(std::abs(probabilities[j] - w) <= w_bound)) {
      return absl::StrCat("probabilities: ", probabilities[j], ", must be ", w, " +- ", w_bound,
                          ", at key ", j);
    }
  }
  return "";
}

// Memory for S or P, [batch, rows, hq, skv].
struct Destination {
  oracle::FencedBuffer buffer;
  TensorView view;
};

absl::StatusOr<Destination> MakeDestination(const AttentionProblem& p, const AttentionTensors& t) {
  const int64_t batch = t.q.shape[0], rows = t.q.shape[1];
  absl::StatusOr<oracle::FencedBuffer> buffer =
      oracle::FencedBuffer::Make(t.q.device, batch * rows * p.hq * p.skv * 4);
  if (!buffer.ok()) return buffer.status();
  if (absl::Status s = buffer->Poison(); !s.ok()) return s;
  Destination place{*std::move(buffer), {}};
  place.view = BshdView(place.buffer.data(), DType::kFloat32, t.q.device, batch, rows, p.hq, p.skv);
  return place;
}

// Copies S or P to the host, without the fences.
absl::StatusOr<std::vector<float>> Fetch(Destination& place) {
  absl::StatusOr<std::vector<uint16_t>> words = place.buffer.ToHost();
  if (!words.ok()) return words.status();
  std::vector<float> floats(place.view.NumElements());
  if (floats.empty()) return floats;  // memcpy takes no null, not even for no bytes
  std::memcpy(floats.data(), words->data() + (oracle::BareMemory() ? 0 : oracle::kFence / 2),
              floats.size() * 4);
  return floats;
}

// The index of the first float that is not poison in rows that no sequence uses; -1: none.
int64_t WrittenOutside(const std::vector<float>& floats, std::vector<bool> used, int64_t columns) {
  uint32_t poison = oracle::kPoison;
  poison |= poison << 16;
  for (size_t row = 0; row < used.size(); ++row) {
    if (used[row]) continue;
    for (int64_t j = 0; j < columns; ++j) {
      uint32_t bits = 0;
      const size_t at = row * columns + j;
      std::memcpy(&bits, &floats[at], 4);
      if (bits != poison) return static_cast<int64_t>(at);
    }
  }
  return -1;
}

}  // namespace

absl::Status GivesItsScores(const Subject& subject, const Case& c) {
  const AttentionProblem& p = c.problem;
  const double work = static_cast<double>(p.b * p.hq) * static_cast<double>(p.sq) *
                      static_cast<double>(p.skv) * static_cast<double>(p.d);
  // If there is more work than that, only every `step`th row is checked.
  const auto step = static_cast<size_t>(1 + work / kMostWork);
  absl::StatusOr<Plan> plan = PlanFor(subject, p);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<oracle::Trial> trial = oracle::Trial::Make(*plan, c.inputs, c.with_lse);
  if (!trial.ok()) return NotDeclined(trial.status());
  absl::StatusOr<oracle::Trial::Run> plain = trial->RunOnce();
  if (!plain.ok()) return NotDeclined(plain.status());

  const AttentionTensors& t = trial->inputs().host_tensors();
  absl::StatusOr<Destination> scores = MakeDestination(p, trial->inputs().tensors());
  if (!scores.ok()) return NotDeclined(scores.status());
  absl::StatusOr<Destination> probabilities = MakeDestination(p, trial->inputs().tensors());
  if (!probabilities.ok()) return NotDeclined(probabilities.status());
  absl::Status s = trial->Prepare();
  if (s.ok()) s = trial->Start(nullptr, {scores->view, probabilities->view});
  if (s.ok() && plan->device.device.kind == DeviceKind::kCuda) {
    s = cuda_backend::Synchronize(plan->device.device.ordinal);
  }
  if (!s.ok()) return NotDeclined(s);
  absl::StatusOr<oracle::Trial::Run> run = trial->Finish();
  if (!run.ok()) return NotDeclined(run.status());
  if (!run->faults.empty()) return absl::InternalError(run->faults);

  const std::vector<Row> rows = oracle::AllRows(p, t);
  if (std::string d = oracle::BitDifference(p, t, plain->outputs, run->outputs, rows); !d.empty()) {
    return absl::InternalError(absl::StrCat("with and without scores: ", d));
  }
  absl::StatusOr<std::vector<float>> s_floats = Fetch(*scores), p_floats = Fetch(*probabilities);
  if (!s_floats.ok()) return NotDeclined(s_floats.status());
  if (!p_floats.ok()) return NotDeclined(p_floats.status());
  std::vector<bool> used(t.q.shape[0] * t.q.shape[1] * p.hq);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const Sequence sequence = SequenceOf(p, t, row.sequence);
    const int64_t index =
        (sequence.q_batch * t.q.shape[1] + sequence.q_begin + row.row) * p.hq + row.head;
    used[index] = true;
    if (i % step != 0) continue;
    const std::string fault = RowFault(p, Compute(p, t, row), s_floats->data() + index * p.skv,
                                       p_floats->data() + index * p.skv);
    if (fault.empty()) continue;
    return absl::InternalError(
        absl::StrCat(fault, " of sequence ", row.sequence, ", head ", row.head, ", row ", row.row));
  }
  const std::pair<absl::string_view, std::pair<Destination*, std::vector<float>*>> kDestinations[] =
      {{"scores", {&*scores, &*s_floats}}, {"probabilities", {&*probabilities, &*p_floats}}};
  for (const auto& [name, place] : kDestinations) {
    if (const int64_t at = WrittenOutside(*place.second, used, p.skv); at >= 0) {
      return absl::InternalError(
          absl::StrCat(name, ": writes element ", at, ", of a row that no sequence uses"));
    }
    absl::StatusOr<std::string> fault = place.first->buffer.FenceFault(std::string(name));
    if (!fault.ok()) return NotDeclined(fault.status());
    if (!fault->empty()) return absl::InternalError(*fault);
  }
  return absl::OkStatus();
}

}  // namespace attnlab::conformance
