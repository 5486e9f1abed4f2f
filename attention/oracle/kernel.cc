// The oracle as a kernel, "reference": O is rounded to the dtype, LSE to fp32. For checking and for
// learning, not for speed.
#include "attention/core/kernel.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/parallel.h"
#include "attention/core/registry.h"
#include "attention/core/stop.h"
#include "attention/oracle/row.h"

namespace attnlab::oracle {
namespace {

// Scratch sizes in doubles: K and V of one head, shared, and what each thread needs for a row.
struct Scratch {
  explicit Scratch(const AttentionProblem& p)
      : k(p.skv * Padded(p.d)), v(p.skv * p.dv), q(Padded(p.d)), scores(p.skv), o(p.dv) {}

  int64_t k, v;          // one each, shared
  int64_t q, scores, o;  // one each per thread

  int64_t PerThread() const { return q + scores + o; }
  int64_t Bytes(int threads) const {
    return static_cast<int64_t>(sizeof(double)) * (k + v + threads * PerThread());
  }
};

class ReferenceKernel : public Kernel {
 public:
  ReferenceKernel() {
    traits_.name = "reference";
    traits_.summary = "the oracle: plain attention in double precision";
  }

  const KernelTraits& traits() const override { return traits_; }

  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& p, const DeviceInfo& device,
      const LaunchConfig& config) const override {
    if (absl::Status s = config.CheckKeys({}); !s.ok()) return s;
    const int threads = std::max(device.threads, 1);
    return PreparedAs(Scratch(p).Bytes(threads),
                      [p, threads](const AttentionTensors& t, const Launch& launch) {
                        return Compute(p, t, threads, launch.workspace.data);
                      });
  }

 private:
  static absl::Status Compute(const AttentionProblem& p, const AttentionTensors& t, int threads,
                              void* workspace) {
    const Scratch scratch(p);
    double* const k = static_cast<double*>(workspace);
    double* const v = k + scratch.k;
    double* const per_thread = v + scratch.v;
    for (int64_t i = 0; i < p.b; ++i) {
      const Sequence s = SequenceOf(p, t, i);
      // Waking threads costs more than doing little work on one.
      const double work = 1.0 * s.q_len * p.GroupSize() * s.kv_len * (p.d + p.dv);
      const int workers = work < 2e5 ? 1 : threads;
      for (int64_t head = 0; head < p.hkv; ++head) {
        if (Stopping()) return absl::OkStatus();  // Forward() makes it Cancelled
        LoadKeys(p, t, s, i, t.k, t.k_scale, head, 0, s.kv_len, Padded(p.d), k);
        LoadKeys(p, t, s, i, t.v, t.v_scale, head, 0, s.kv_len, p.dv, v);
        ParallelFor(s.q_len * p.GroupSize(), workers, [&](int64_t index, int worker) {
          const int64_t row = index / p.GroupSize();
          const int64_t q_head = head * p.GroupSize() + index % p.GroupSize();
          double* const q = per_thread + worker * scratch.PerThread();
          LoadQuery(p, t, s, i, q_head, row, q);
          ComputeRow(p, t, s, row, q_head, k, v, q, q + scratch.q, q + scratch.q + scratch.scores);
        });
      }
    }
    return absl::OkStatus();
  }

  static void ComputeRow(const AttentionProblem& p, const AttentionTensors& t, const Sequence& s,
                         int64_t row, int64_t q_head, const double* k, const double* v,
                         const double* q, double* scores, double* o) {
    const KvRange range = VisibleKv(p.mask, row, s.q_len, s.kv_len);
    RowInput<double> in;
    in.q = q;
    in.k = k + range.begin * Padded(p.d);
    in.v = v + range.begin * p.dv;
    in.keys = range.end - range.begin;
    in.d = p.d;
    in.dv = p.dv;
    in.scale = p.Scale();
    in.softcap = p.softcap;
    double lse = 0;
    ExactRow(in, scores, o, &lse, nullptr);
    const int64_t q_row = s.q_begin + row;
    const int64_t at = t.o.Offset(s.q_batch, q_row, q_head, 0);
    for (int64_t c = 0; c < p.dv; ++c) {
      StoreElement(t.o.data, t.o.dtype, at + c, static_cast<float>(o[c]));
    }
    if (t.lse.data == nullptr) return;
    StoreElement(t.lse.data, DType::kFloat32, t.lse.Offset(s.q_batch, q_row, q_head, 0),
                 static_cast<float>(lse));
  }

  KernelTraits traits_;
};

ATTNLAB_REGISTER_KERNEL(ReferenceKernel);

}  // namespace
}  // namespace attnlab::oracle
