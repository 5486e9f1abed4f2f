#include "attention/conformance/mutants/mutants.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "attention/core/dtype.h"
#include "attention/core/mask.h"
#include "attention/core/tensors.h"

namespace attnlab::conformance {
namespace {

constexpr int64_t kTile = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The mistakes; TiledKernel below makes them.
enum class Bug {
  kNone,
  kNoMaskOnLastTile,     // computes a partly masked tile as if it were not masked
  kReadsPastKvLen,       // treats the last tile as a whole one
  kLeavesLastRow,        // does not write the last row of each sequence
  kLeavesEmptyRows,      // does not write rows that see no key
  kWritesPastRow,        // one element beyond dv
  kWritesUnusedRows,     // zeros in the rows beyond q_len
  kWritesPastWorkspace,  // one float beyond the workspace that it asked for
  kTrustsWorkspace,      // expects the sum to start at zero
  kWindowOffByOne,       // one key too few on the left
  kTopLeftCausal,        // aligns to the first query instead of the last
  kSeesFutureKey,        // causal, except for one key
  kLosesNan,
  kChangesBits,   // adds in a different order in every other call
  kLseBase2,      // log2 instead of the natural logarithm
  kLseMissesMax,  // log of the sum without the maximum
  kNoSoftcap,
  kScaleAfterSoftcap,
  kInterleavedGroups,  // query head h uses KV head h mod hkv
  kNoRescale,          // keeps the old accumulator when the maximum grows
  kNoMax,              // exponentials of raw scores, without subtracting the maximum
  kIgnoresStrides,     // assumes that heads of Q are adjacent
  kBatchMaximum,       // leaks from the first sequence into the others
  kHalfAccumulator,    // sums in the dtype
  kIgnoresScales,      // takes fp8 as it is
  kFirstScales,        // takes the scales of each head's first block for all rows
  kPagesInOrder,       // takes the pages as they lie, without the page table
  kOtherPageTable,     // takes the pages of the sequence before
  kDropsOddLse,        // does not write LSE of odd rows
  kNeedsLse,           // a different O without LSE
  kDeclinesAfterAll,   // Supports() returns OK, Run() returns Unimplemented
  kTakesAnyConfig,     // accepts unknown keys
  kNoTraffic,          // a model without FLOPs
};

float Load(const ConstTensorView& t, int64_t b, int64_t s, int64_t h, int64_t i) {
  return LoadElement(t.data, t.dtype, t.Offset(b, s, h, i));
}

class TiledKernel : public Kernel {
 public:
  TiledKernel(std::string name, Bug bug) : bug_(bug) {
    traits_.name = std::move(name);
    traits_.summary = "for tests of the conformance suite";
  }

  const KernelTraits& traits() const override { return traits_; }

  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& p, const DeviceInfo&, const LaunchConfig& config) const override {
    if (bug_ != Bug::kTakesAnyConfig) {
      if (absl::Status s = config.CheckKeys({}); !s.ok()) return s;
    }
    return PreparedAs(
        int64_t{4 * AttentionProblem::kMaxHeadDim},
        [this, p](const AttentionTensors& t, const Launch& launch) { return Run(p, t, launch); });
  }

  absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& p, const DeviceInfo&,
                                          const LaunchConfig&) const override {
    Traffic traffic = CompulsoryTraffic(p);
    if (bug_ == Bug::kNoTraffic) traffic.flops = 0;
    return traffic;
  }

 private:
  absl::Status Run(const AttentionProblem& p, const AttentionTensors& t,
                   const Launch& launch) const {
    if (bug_ == Bug::kDeclinesAfterAll && p.d % 2 == 1) return absl::UnimplementedError("d: odd");
    const int call = calls_++;
    for (int64_t i = 0; i < p.b; ++i) {
      const Sequence s = SequenceOf(p, t, i);
      const int64_t rows = bug_ == Bug::kLeavesLastRow ? s.q_len - 1 : s.q_len;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t head = 0; head < p.hq; ++head) Row(p, t, i, s, row, head, launch, call);
      }
      if (bug_ != Bug::kWritesUnusedRows || p.lens != Lengths::kPadded) continue;
      for (int64_t row = s.q_len; row < p.sq; ++row) Store(t.o, s.q_batch, row, 0, 0, 0);
    }
    return absl::OkStatus();
  }

  static void Store(const TensorView& t, int64_t b, int64_t s, int64_t h, int64_t i, float value) {
    StoreElement(t.data, t.dtype, t.Offset(b, s, h, i), value);
  }

  KvRange Visible(const AttentionProblem& p, const Sequence& s, int64_t row) const {
    Mask mask = p.mask;
    if (bug_ == Bug::kWindowOffByOne && mask.left > 0) --mask.left;
    if (bug_ == Bug::kTopLeftCausal && mask.kind == Mask::Kind::kCausal) {
      return {0, std::min(row + 1, s.kv_len)};
    }
    KvRange range = VisibleKv(mask, row, s.q_len, s.kv_len);
    if (bug_ == Bug::kSeesFutureKey && mask.kind == Mask::Kind::kCausal && range.end > 0) {
      range.end = std::min(range.end + 1, s.kv_len);
    }
    if (bug_ == Bug::kNoMaskOnLastTile && range.begin < range.end) {
      range.end = std::min((range.end + kTile - 1) / kTile * kTile, s.kv_len);
    }
    if (bug_ == Bug::kReadsPastKvLen && range.end == s.kv_len && s.kv_len % kTile == kTile - 1) {
      ++range.end;
    }
    return range;
  }

  // Where key `key` lies.
  KeyPlace Place(const AttentionProblem& p, const AttentionTensors& t, Sequence s,
                 int64_t key) const {
    if (p.page == 0) return PlaceOf(p, t, s, key);
    const int64_t first_page = s.kv_batch * p.Pages(p.skv);
    if (bug_ == Bug::kPagesInOrder) {
      return {std::min(first_page + key / p.page, t.k.shape[0] - 1), key % p.page};
    }
    if (bug_ == Bug::kOtherPageTable && s.kv_batch > 0 &&
        key < SequenceOf(p, t, s.kv_batch - 1).kv_len) {
      --s.kv_batch;
    }
    return PlaceOf(p, t, s, key);
  }

  float Score(const AttentionProblem& p, const AttentionTensors& t, const Sequence& s, int64_t row,
              int64_t head, int64_t kv_head, int64_t key, float scale, bool backwards) const {
    float dot = 0;
    const KeyPlace place = Place(p, t, s, key);
    for (int64_t n = 0; n < p.d; ++n) {
      const int64_t i = backwards ? p.d - 1 - n : n;
      float q = Load(t.q, s.q_batch, s.q_begin + row, head, i);
      if (bug_ == Bug::kIgnoresStrides) {
        q = LoadElement(t.q.data, p.dtype,
                        t.q.Offset(s.q_batch, s.q_begin + row, 0, 0) + head * p.d + i);
      }
      dot += q * Load(t.k, place.batch, place.row, kv_head, i);
    }
    dot *= scale;
    if (p.softcap == 0 || bug_ == Bug::kNoSoftcap) return dot * p.Scale();
    if (bug_ == Bug::kScaleAfterSoftcap) {
      return p.Scale() * p.softcap * std::tanh(dot / p.softcap);
    }
    return p.softcap * std::tanh(dot * p.Scale() / p.softcap);
  }

  void Row(const AttentionProblem& p, const AttentionTensors& t, int64_t sequence,
           const Sequence& s, int64_t row, int64_t head, const Launch& launch, int call) const {
    const KvRange range = Visible(p, s, row);
    if (bug_ == Bug::kLeavesEmptyRows && range.begin >= range.end) return;
    const int64_t kv_head = bug_ == Bug::kInterleavedGroups ? head % p.hkv : head / p.GroupSize();
    const auto scale_of = [&](const ConstTensorView& scales, int64_t h, int64_t r) {
      if (bug_ == Bug::kIgnoresScales) return 1.0f;
      return ScaleOf(p, scales, sequence, h, bug_ == Bug::kFirstScales ? 0 : r);
    };
    const float q_scale = scale_of(t.q_scale, head, row);
    float* const o = static_cast<float*>(launch.workspace.data);
    if (bug_ != Bug::kTrustsWorkspace || row > 0) std::fill(o, o + p.dv, 0.0f);
    if (bug_ == Bug::kWritesPastWorkspace) o[AttentionProblem::kMaxHeadDim] = 0;
    const bool backwards = bug_ == Bug::kChangesBits && call % 2 == 1;

    float max = bug_ == Bug::kNoMax ? 0 : -kInfinity, sum = 0;
    for (int64_t begin = range.begin; begin < range.end; begin += kTile) {
      const int64_t end = std::min(begin + kTile, range.end);
      std::array<float, kTile> scores;
      float new_max = max;
      for (int64_t j = begin; j < end; ++j) {
        const float scale = q_scale * scale_of(t.k_scale, kv_head, j);
        scores[j - begin] = Score(p, t, s, row, head, kv_head, j, scale, backwards);
        if (bug_ != Bug::kNoMax) new_max = std::max(new_max, scores[j - begin]);
      }
      if (new_max > max && bug_ != Bug::kNoRescale) {
        const float factor = std::exp(max - new_max);
        sum *= factor;
        for (int64_t c = 0; c < p.dv; ++c) o[c] *= factor;
      }
      max = new_max;
      for (int64_t j = begin; j < end; ++j) {
        float weight = std::exp(scores[j - begin] - max);
        if (bug_ == Bug::kLosesNan && std::isnan(weight)) weight = 0;
        sum += weight;
        const KeyPlace place = Place(p, t, s, j);
        const float v_scale = scale_of(t.v_scale, kv_head, j);
        for (int64_t c = 0; c < p.dv; ++c) {
          const float v = v_scale * Load(t.v, place.batch, place.row, kv_head, c);
          if (bug_ != Bug::kLosesNan || !std::isnan(v)) o[c] += weight * v;
          if (bug_ == Bug::kHalfAccumulator) StoreElement(o, DType::kFloat32, c, RoundTo(p, o[c]));
        }
      }
    }
    Finish(p, t, s, row, head, o, sum, max);
  }

  static float RoundTo(const AttentionProblem& p, float value) {
    float stored = 0;
    StoreElement(&stored, p.dtype, 0, value);
    return LoadElement(&stored, p.dtype, 0);
  }

  void Finish(const AttentionProblem& p, const AttentionTensors& t, const Sequence& s, int64_t row,
              int64_t head, const float* o, float sum, float max) const {
    const int64_t at = s.q_begin + row;
    for (int64_t c = 0; c < p.dv; ++c) {
      float value = sum > 0 ? o[c] / sum : sum == 0 ? 0 : sum;
      if (bug_ == Bug::kNeedsLse && t.lse.data == nullptr) value *= 1 + 0x1p-7f;
      if (bug_ == Bug::kBatchMaximum && s.q_batch > 0 && t.k.NumElements() > 0) {
        // As if a scale were computed over the whole batch.
        value += 0 * Load(t.k, 0, 0, 0, 0);
      }
      Store(t.o, s.q_batch, at, head, c, value);
    }
    if (bug_ == Bug::kWritesPastRow) Store(t.o, s.q_batch, at, head, p.dv, 0);
    if (t.lse.data == nullptr || (bug_ == Bug::kDropsOddLse && row % 2 == 1)) return;
    float lse = std::log(sum);
    if (bug_ == Bug::kLseBase2) lse /= std::log(2.0f);
    if (bug_ != Bug::kLseMissesMax && sum != 0) lse += max;
    Store(t.lse, s.q_batch, at, head, 0, lse);
  }

  KernelTraits traits_;
  Bug bug_;
  mutable std::atomic<int> calls_{0};
};

}  // namespace

std::unique_ptr<const Kernel> SoundKernel() {
  return std::make_unique<TiledKernel>("sound", Bug::kNone);
}

std::vector<Mutant> Mutants() {
  const struct {
    const char* name;
    Bug bug;
    const char *check, *message;
  } kMutants[] = {
      {"no_mask_on_last_tile", Bug::kNoMaskOnLastTile, "hidden_keys_have_no_influence",
       "in the future of these rows: o: bits differ"},
      {"reads_past_kv_len", Bug::kReadsPastKvLen, "matches_oracle", "error inf"},
      {"leaves_last_row", Bug::kLeavesLastRow, "matches_oracle", "elements are not written"},
      {"leaves_empty_rows", Bug::kLeavesEmptyRows, "matches_oracle", "elements are not written"},
      {"writes_past_row", Bug::kWritesPastRow, "matches_oracle", "o: writes where it must not"},
      {"writes_unused_rows", Bug::kWritesUnusedRows, "matches_oracle",
       "o: writes where it must not"},
      {"writes_past_workspace", Bug::kWritesPastWorkspace, "matches_oracle",
       "workspace: writes 0 bytes beyond its end of 2048"},
      {"trusts_workspace", Bug::kTrustsWorkspace, "matches_oracle", "o: error inf"},
      {"window_off_by_one", Bug::kWindowOffByOne, "matches_oracle", "o: error"},
      {"top_left_causal", Bug::kTopLeftCausal, "matches_oracle", "o: error"},
      {"sees_future_key", Bug::kSeesFutureKey, "hidden_keys_have_no_influence",
       "in the future of these rows: o: bits differ"},
      {"loses_nan", Bug::kLosesNan, "nan_reaches_rows_that_see_it", "is lost in head"},
      {"changes_bits", Bug::kChangesBits, "matches_oracle", "a second run"},
      {"lse_base_2", Bug::kLseBase2, "zero_q_gives_mean_of_v", "lse: error"},
      {"lse_misses_max", Bug::kLseMissesMax, "matches_oracle", "lse: error"},
      {"no_softcap", Bug::kNoSoftcap, "matches_oracle", "error "},
      {"scale_after_softcap", Bug::kScaleAfterSoftcap, "matches_oracle", "error "},
      {"interleaved_groups", Bug::kInterleavedGroups, "matches_oracle", "o: error"},
      {"no_rescale", Bug::kNoRescale, "matches_oracle", "error "},
      {"no_max", Bug::kNoMax, "matches_oracle", "error inf"},
      {"ignores_strides", Bug::kIgnoresStrides, "matches_oracle", "error inf"},
      {"batch_maximum", Bug::kBatchMaximum, "sequences_are_independent", "NaN in sequence"},
      {"half_accumulator", Bug::kHalfAccumulator, "matches_oracle", "o: error"},
      {"ignores_scales", Bug::kIgnoresScales, "matches_oracle", "o: error"},
      {"first_scales", Bug::kFirstScales, "matches_oracle", "o: error"},
      {"pages_in_order", Bug::kPagesInOrder, "matches_oracle", "o: error"},
      {"other_page_table", Bug::kOtherPageTable, "matches_oracle", "o: error"},
      {"drops_odd_lse", Bug::kDropsOddLse, "matches_oracle", "lse: "},
      {"needs_lse", Bug::kNeedsLse, "lse_is_optional", "with and without LSE: o: bits differ"},
      {"declines_after_all", Bug::kDeclinesAfterAll, "matches_oracle", "Supports() says yes, but"},
      {"takes_any_config", Bug::kTakesAnyConfig, "config_overrides", "is not InvalidArgument"},
      {"no_traffic", Bug::kNoTraffic, "traffic_model", "FLOPs are less than"},
  };
  std::vector<Mutant> mutants;
  for (const auto& m : kMutants) {
    mutants.push_back({m.name, std::make_unique<TiledKernel>(m.name, m.bug), m.check, m.message});
  }
  return mutants;
}

}  // namespace attnlab::conformance
