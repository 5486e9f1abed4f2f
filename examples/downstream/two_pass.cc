// "two_pass": textbook attention, one query row at a time: first the scores, then the weighted mean
// of V. For fp32 problems of one length.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/core/device.h"
#include "attention/core/dtype.h"
#include "attention/core/kernel.h"
#include "attention/core/launch_config.h"
#include "attention/core/mask.h"
#include "attention/core/problem.h"
#include "attention/core/registry.h"
#include "attention/core/supports.h"
#include "attention/core/tensors.h"

namespace downstream {
namespace {

using attnlab::AttentionProblem;
using attnlab::AttentionTensors;

class TwoPass : public attnlab::Kernel {
 public:
  TwoPass() {
    traits_.name = "two_pass";
    traits_.summary = "scores of a row, then the weighted mean of V; fp32";
  }

  const attnlab::KernelTraits& traits() const override { return traits_; }

  absl::StatusOr<std::unique_ptr<const attnlab::Prepared>> Prepare(
      const AttentionProblem& problem, const attnlab::DeviceInfo&,
      const attnlab::LaunchConfig& config) const override {
    if (absl::Status status = config.CheckKeys({}); !status.ok()) return status;
    if (absl::Status status = attnlab::CheckDtypeAndPage(problem); !status.ok()) {
      return status;
    }
    if (problem.dtype != attnlab::DType::kFloat32) {
      return absl::UnimplementedError(
          absl::StrCat("dtype: ", attnlab::Name(problem.dtype), " is not fp32"));
    }
    if (problem.lens != attnlab::Lengths::kFixed) {
      return absl::UnimplementedError("lens: packed and padded are not fixed");
    }
    if (problem.softcap != 0) {
      return absl::UnimplementedError(
          absl::StrCat("softcap: ", problem.softcap, " is not 0, none"));
    }
    // The workspace holds one row of scores.
    return attnlab::PreparedAs(
        problem.skv * static_cast<int64_t>(sizeof(float)),
        [problem](const AttentionTensors& tensors, const attnlab::Launch& launch) {
          Compute(problem, tensors, static_cast<float*>(launch.workspace.data));
          return absl::OkStatus();
        });
  }

 private:
  static void Compute(const AttentionProblem& problem, const AttentionTensors& tensors,
                      float* scores) {
    for (int64_t b = 0; b < problem.b; ++b) {
      for (int64_t head = 0; head < problem.hq; ++head) {
        for (int64_t row = 0; row < problem.sq; ++row) Row(problem, tensors, b, head, row, scores);
      }
    }
  }

  static void Row(const AttentionProblem& problem, const AttentionTensors& t, int64_t b,
                  int64_t head, int64_t row, float* scores) {
    const int64_t kv_head = head / problem.GroupSize();
    const attnlab::KvRange keys = attnlab::VisibleKv(problem.mask, row, problem.sq, problem.skv);
    const float* q = static_cast<const float*>(t.q.data) + t.q.Offset(b, row, head, 0);
    float* o = static_cast<float*>(t.o.data) + t.o.Offset(b, row, head, 0);

    float max = -std::numeric_limits<float>::infinity();
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const float* k = static_cast<const float*>(t.k.data) + t.k.Offset(b, j, kv_head, 0);
      float dot = 0;
      for (int64_t i = 0; i < problem.d; ++i) dot += q[i] * k[i];
      scores[j] = problem.Scale() * dot;
      max = std::max(max, scores[j]);
    }

    std::fill(o, o + problem.dv, 0.0f);
    float sum = 0;
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const float* v = static_cast<const float*>(t.v.data) + t.v.Offset(b, j, kv_head, 0);
      const float weight = std::exp(scores[j] - max);
      sum += weight;
      for (int64_t i = 0; i < problem.dv; ++i) o[i] += weight * v[i];
    }
    for (int64_t i = 0; i < problem.dv && sum > 0; ++i) o[i] /= sum;
    if (t.lse.data != nullptr) {
      static_cast<float*>(t.lse.data)[t.lse.Offset(b, row, head, 0)] = max + std::log(sum);
    }
  }

  attnlab::KernelTraits traits_;
};

ATTNLAB_REGISTER_KERNEL(TwoPass);

}  // namespace
}  // namespace downstream
