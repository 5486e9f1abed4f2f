#include "attention/testing/special_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/cuda_backend.h"
#include "attention/dtype.h"
#include "attention/machine.h"
#include "attention/memory.h"
#include "attention/problem.h"
#include "attention/reference/reference.h"
#include "attention/tensor.h"
#include "attention/tensors.h"
#include "attention/testing/buffers.h"
#include "attention/testing/inputs.h"
#include "attention/testing/verify.h"

namespace attnlab::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr struct {
  int64_t key, dim;
  float value;
} kSpecials[] = {{3, 0, kInf},  {5, 1, -kInf}, {6, 2, kNan}, {4, 4, kInf},
                 {7, 4, -kInf}, {2, 5, kInf},  {9, 5, kInf}, {1, 6, -kInf}};
constexpr int64_t kSpecialKeys = 10, kSpecialDims = 7;

// In the host's copy.
void Set(const ConstTensorView& host, const std::array<int64_t, 4>& at, float value) {
  char* const data = static_cast<char*>(const_cast<void*>(host.data));
  StoreElement(data, host.dtype, host.Offset(at[0], at[1], at[2], at[3]), value);
}

// The host's copy to the device's: the memory from the first element to behind the last.
absl::Status Upload(const Plan& plan, const ConstTensorView& host, const ConstTensorView& there) {
  const Device device = plan.device.device;
  if (device.kind != DeviceKind::kCuda || host.NumElements() == 0) return absl::OkStatus();
  const std::array<int64_t, 4>& shape = host.shape;
  const int64_t last = host.Offset(shape[0] - 1, shape[1] - 1, shape[2] - 1, shape[3] - 1);
  return cuda_backend::CopyToDevice(device.ordinal, const_cast<void*>(there.data), host.data,
                                    (last + 1) * SizeOf(host.dtype));
}

absl::Status PlantInV(const Plan& plan, Inputs& inputs) {
  const AttentionProblem& p = plan.problem;
  const ConstTensorView& v = inputs.host_tensors().v;
  const bool everywhere = p.skv >= 3 * kSpecialKeys && p.dv >= 30;
  for (int64_t b = 0; b < p.b; ++b) {
    for (int place = 0; place < (everywhere ? 3 : 1); ++place) {
      const int64_t key = (p.skv - kSpecialKeys) * place / 2;
      const int64_t dim = (p.dv - kSpecialDims) * place / 2;
      for (const auto& s : kSpecials) Set(v, {b, key + s.key, 0, dim + s.dim}, s.value);
    }
  }
  return Upload(plan, v, inputs.tensors().v);
}

absl::Status PlantInK(const Plan& plan, Inputs& inputs, int64_t keys) {
  const AttentionProblem& p = plan.problem;
  const AttentionTensors& host = inputs.host_tensors();
  for (int64_t b = 0; b < p.b; ++b) {
    for (int64_t row = 0; row < p.sq; ++row) {
      for (int64_t head = 0; head < p.hq; ++head) Set(host.q, {b, row, head, 0}, -1);
    }
    for (int64_t head = 0; head < p.hkv; ++head) {
      for (int64_t key = 0; key < keys; ++key) Set(host.k, {b, key, head, 0}, kInf);
      // Near their end, which windows that reach other keys, too, still have.
      Set(host.v, {b, std::max<int64_t>(0, keys - 5), head, p.dv / 2}, kNan);
    }
  }
  if (absl::Status s = Upload(plan, host.q, inputs.tensors().q); !s.ok()) return s;
  if (absl::Status s = Upload(plan, host.k, inputs.tensors().k); !s.ok()) return s;
  return Upload(plan, host.v, inputs.tensors().v);
}

// Of elements of the oracle.
struct Counts {
  int nans = 0, infinities = 0, finite = 0;
};

// Numbers may have what the conformance suite's bounds give them, and more.
bool IsRight(double is, double want) {
  if (std::isnan(want)) return std::isnan(is);
  if (std::isinf(want)) return is == want;
  return std::abs(is - want) <= 0.05;
}

absl::StatusOr<Counts> Compare(const Plan& plan, const reference::Result& exact,
                               const reference::Result& got,
                               const std::vector<reference::Row>& rows) {
  Counts counts;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto wrong = [&](const std::string& what, double is, double want) {
      return absl::InternalError(absl::StrCat(plan.problem.ToString(), " ", plan.config.ToString(),
                                              ": sequence ", rows[i].sequence, ", head ",
                                              rows[i].head, ", row ", rows[i].row, ", ", what, ": ",
                                              is, " where the oracle has ", want));
    };
    for (int64_t j = 0; j < plan.problem.dv; ++j) {
      const double want = exact.O(i, j), is = got.O(i, j);
      ++(std::isnan(want) ? counts.nans : std::isinf(want) ? counts.infinities : counts.finite);
      if (!IsRight(is, want)) return wrong(absl::StrCat("dim ", j), is, want);
    }
    if (!IsRight(got.lse[i], exact.lse[i])) return wrong("LSE", got.lse[i], exact.lse[i]);
  }
  return counts;
}

InputOptions OptionsOf(Layout layout) {
  InputOptions options;
  options.layout = layout;
  return options;
}

// Runs the plan on the inputs as they are now.
absl::StatusOr<Counts> RunAndCompare(const Plan& plan, Layout layout, const Inputs& inputs) {
  const Device device = plan.device.device;
  const AttentionTensors& host = inputs.host_tensors();
  absl::StatusOr<Outputs> outputs =
      Outputs::Make(plan.problem, inputs.tensors(), layout, /*with_lse=*/true);
  if (!outputs.ok()) return outputs.status();
  if (absl::Status s = outputs->Prepare(plan.problem, host); !s.ok()) return s;
  absl::StatusOr<Buffer> workspace = Buffer::Allocate(device, plan.workspace_bytes);
  if (!workspace.ok()) return workspace.status();
  absl::Status s =
      Forward(plan, outputs->Attach(inputs.tensors()), {workspace->data(), workspace->bytes()});
  if (s.ok() && device.kind == DeviceKind::kCuda) s = cuda_backend::Synchronize(device.ordinal);
  if (!s.ok()) return s;
  const absl::StatusOr<HostOutputs> got = outputs->ToHost();
  if (!got.ok()) return got.status();

  const std::vector<reference::Row> rows = reference::AllRows(plan.problem, host);
  const absl::StatusOr<reference::Result> exact = reference::Exact(plan.problem, host, rows);
  if (!exact.ok()) return exact.status();
  return Compare(plan, *exact, ValuesOf(plan.problem, host, *got, rows), rows);
}

}  // namespace

absl::Status SpecialValuesOfV(const Plan& plan, Layout layout) {
  absl::StatusOr<Inputs> inputs = Inputs::Make(plan.problem, plan.device.device, OptionsOf(layout));
  if (!inputs.ok()) return inputs.status();
  if (absl::Status s = PlantInV(plan, *inputs); !s.ok()) return s;
  const absl::StatusOr<Counts> counts = RunAndCompare(plan, layout, *inputs);
  if (!counts.ok()) return counts.status();
  if (counts->nans > 0 && counts->infinities > 0 && counts->finite > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(plan.problem.ToString(), ": nothing to see: ", counts->nans, " NaN, ",
                   counts->infinities, " infinities, ", counts->finite, " numbers"));
}

absl::Status SpecialValuesOfK(const Plan& plan, Layout layout, int64_t keys) {
  absl::StatusOr<Inputs> inputs = Inputs::Make(plan.problem, plan.device.device, OptionsOf(layout));
  if (!inputs.ok()) return inputs.status();
  if (absl::Status s = PlantInK(plan, *inputs, keys); !s.ok()) return s;
  return RunAndCompare(plan, layout, *inputs).status();
}

}  // namespace attnlab::testing
