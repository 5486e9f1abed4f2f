// The check of S and P rejects wrong ones, made by a plain CPU kernel with one mistake at a time.
#include "attention/conformance/intermediates.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/conformance/conformance.h"
#include "attention/core/dtype.h"
#include "attention/core/mask.h"
#include "attention/core/supports.h"
#include "attention/core/tensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::conformance {
namespace {

using ::testing::HasSubstr;

enum class Mistake {
  kNone,
  kNoScale,
  kNoSoftcap,
  kShowsHiddenKeys,   // S of hidden keys is a number
  kScoresOfNextHead,  // S of another head
  kNotNormalized,     // P without the division
  kWeighsHiddenKeys,  // P of a hidden key is not 0
  kLeavesAKey,        // does not write P of the last key
  kWritesUnusedRows,  // S of rows beyond q_len
  kWritesPastTheEnd,  // one more P
  kOtherResult,       // a different O if S and P are wanted
};

class PlainKernel : public Kernel {
 public:
  explicit PlainKernel(Mistake mistake) : mistake_(mistake) {
    traits_.name = "plain";
    traits_.gives_intermediates = true;
  }

  const KernelTraits& traits() const override { return traits_; }
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& p, const DeviceInfo&, const LaunchConfig& config) const override {
    if (absl::Status s = config.CheckKeys({}); !s.ok()) return s;
    if (absl::Status s = CheckDtypeAndPage(p); !s.ok()) return s;
    return PreparedAs(
        /*workspace_bytes=*/0,
        [this, p](const AttentionTensors& t, const Launch& launch) { return Run(p, t, launch); });
  }

 private:
  absl::Status Run(const AttentionProblem& p, const AttentionTensors& t,
                   const Launch& launch) const {
    for (int64_t i = 0; i < p.b; ++i) {
      const Sequence s = SequenceOf(p, t, i);
      for (int64_t row = 0; row < s.q_len; ++row) {
        for (int64_t head = 0; head < p.hq; ++head) Row(p, t, s, row, head, launch.intermediates);
      }
      const TensorView& scores = launch.intermediates.scores;
      if (Has(Mistake::kWritesUnusedRows) && p.lens == Lengths::kPadded && scores.data != nullptr &&
          s.q_len < p.sq) {
        StoreElement(scores.data, DType::kFloat32, scores.Offset(i, s.q_len, 0, 0), 0);
      }
    }
    const TensorView& last = launch.intermediates.probabilities;
    if (Has(Mistake::kWritesPastTheEnd) && last.data != nullptr) {
      StoreElement(last.data, DType::kFloat32, last.NumElements(), 0);
    }
    return absl::OkStatus();
  }

  bool Has(Mistake mistake) const { return mistake_ == mistake; }

  void Row(const AttentionProblem& p, const AttentionTensors& t, const Sequence& s, int64_t row,
           int64_t head, const Intermediates& wanted) const {
    const KvRange seen = VisibleKv(p.mask, row, s.q_len, s.kv_len);
    std::vector<float> scores(p.skv), weights(p.skv);
    const int64_t of = Has(Mistake::kScoresOfNextHead) ? (head + 1) % p.hq : head;
    float max = -std::numeric_limits<float>::infinity(), sum = 0;
    for (int64_t j = 0; j < p.skv; ++j) {
      float score = -std::numeric_limits<float>::infinity();
      if (j < s.kv_len && (Has(Mistake::kShowsHiddenKeys) || (j >= seen.begin && j < seen.end))) {
        score = 0;
        for (int64_t c = 0; c < p.d; ++c) {
          score += LoadElement(t.q.data, p.dtype, t.q.Offset(s.q_batch, s.q_begin + row, of, c)) *
                   LoadElement(t.k.data, p.dtype,
                               t.k.Offset(s.kv_batch, s.kv_begin + j, head / p.GroupSize(), c));
        }
        if (!Has(Mistake::kNoScale)) score *= p.Scale();
        if (p.softcap != 0 && !Has(Mistake::kNoSoftcap)) {
          score = p.softcap * std::tanh(score / p.softcap);
        }
      }
      scores[j] = score;
      if (j >= seen.begin && j < seen.end) max = std::max(max, score);
    }
    for (int64_t j = seen.begin; j < seen.end; ++j) sum += weights[j] = std::exp(scores[j] - max);
    for (int64_t j = seen.begin; j < seen.end && !Has(Mistake::kNotNormalized); ++j) {
      weights[j] /= sum;
    }
    if (Has(Mistake::kWeighsHiddenKeys) && seen.end < p.skv) weights[seen.end] = 1e-30f;
    for (int64_t c = 0; c < p.dv; ++c) {
      float o = wanted.wanted() && Has(Mistake::kOtherResult) ? 1 : 0;
      for (int64_t j = seen.begin; j < seen.end; ++j) {
        o += weights[j] *
             LoadElement(t.v.data, p.dtype,
                         t.v.Offset(s.kv_batch, s.kv_begin + j, head / p.GroupSize(), c));
      }
      StoreElement(t.o.data, p.dtype, t.o.Offset(s.q_batch, s.q_begin + row, head, c), o);
    }
    if (t.lse.data != nullptr) {
      StoreElement(t.lse.data, DType::kFloat32, t.lse.Offset(s.q_batch, s.q_begin + row, head, 0),
                   sum == 0 ? -std::numeric_limits<float>::infinity() : max + std::log(sum));
    }
    const auto give = [&](const TensorView& view, const std::vector<float>& values, int64_t count) {
      if (view.data == nullptr) return;
      for (int64_t j = 0; j < count; ++j) {
        StoreElement(view.data, DType::kFloat32, view.Offset(s.q_batch, s.q_begin + row, head, j),
                     values[j]);
      }
    };
    give(wanted.scores, scores, p.skv);
    give(wanted.probabilities, weights, Has(Mistake::kLeavesAKey) ? p.skv - 1 : p.skv);
  }

  const Mistake mistake_;
  KernelTraits traits_;
};

// The check's verdict on the kernel over a few cases: OK, or the first complaint.
absl::Status VerdictOn(Mistake mistake) {
  const PlainKernel kernel(mistake);
  int ran = 0;
  for (const Case& c : ConformanceCases()) {
    const AttentionProblem& p = c.problem;
    const bool small = p.b * p.hq * (p.sq + 1) * (p.skv + 1) * (p.d + p.dv) < 1000000;
    if (!small) continue;
    const absl::Status s = GivesItsScores({&kernel, Device::Cpu()}, c);
    if (absl::IsUnimplemented(s)) continue;
    ++ran;
    if (!s.ok()) return s;
  }
  EXPECT_GT(ran, 20);
  return absl::OkStatus();
}

TEST(IntermediatesTest, RightOnesPass) {
  const absl::Status s = VerdictOn(Mistake::kNone);
  EXPECT_TRUE(s.ok()) << s;
}

TEST(IntermediatesTest, WrongOnesDoNot) {
  const std::vector<std::pair<Mistake, std::string>> kCases = {
      {Mistake::kNoScale, "scores: "},
      {Mistake::kNoSoftcap, "scores: "},
      {Mistake::kShowsHiddenKeys, ", must be -inf"},
      {Mistake::kScoresOfNextHead, "scores: "},
      {Mistake::kNotNormalized, "probabilities: "},
      {Mistake::kWeighsHiddenKeys, "probabilities: 1e-30, must be 0"},
      {Mistake::kLeavesAKey, "probabilities: nan"},
      {Mistake::kWritesUnusedRows, "of a row that no sequence uses"},
      {Mistake::kWritesPastTheEnd, "probabilities: "},
      {Mistake::kOtherResult, "with and without scores: o"},
  };
  for (const auto& [mistake, message] : kCases) {
    const absl::Status s = VerdictOn(mistake);
    EXPECT_EQ(s.code(), absl::StatusCode::kInternal) << message;
    EXPECT_THAT(std::string(s.message()), HasSubstr(message));
  }
}

TEST(IntermediatesTest, IsForKernelsThatGiveThem) {
  const PlainKernel kernel(Mistake::kNone);
  int found = 0;
  for (const Check& check : Checks()) {
    if (check.where != Where::kWithIntermediates) continue;
    EXPECT_TRUE(AppliesTo(check, kernel)) << check.name;
    ++found;
  }
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace attnlab::conformance
