#include "attention/testing/special_values.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/cuda_backend.h"
#include "attention/memory.h"
#include "attention/reference/reference.h"
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

// In the host's copy of V, and in the device's.
absl::Status Plant(const Plan& plan, Inputs& inputs) {
  const ConstTensorView &host = inputs.host_tensors().v, &there = inputs.tensors().v;
  const int64_t size = SizeOf(plan.problem.dtype);
  for (int64_t b = 0; b < plan.problem.b; ++b) {
    for (const auto& s : kSpecials) {
      const int64_t at = host.Offset(b, s.key, 0, s.dim);
      char* const data = static_cast<char*>(const_cast<void*>(host.data));
      StoreElement(data, plan.problem.dtype, at, s.value);
      if (plan.device.device.kind != DeviceKind::kCuda) continue;
      absl::Status copied = cuda_backend::CopyToDevice(
          plan.device.device.ordinal, static_cast<char*>(const_cast<void*>(there.data)) + at * size,
          data + at * size, size);
      if (!copied.ok()) return copied;
    }
  }
  return absl::OkStatus();
}

absl::Status Check(const Plan& plan, const reference::Result& exact, const reference::Result& got,
                   const std::vector<reference::Row>& rows) {
  int nans = 0, infinities = 0, finite = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int64_t j = 0; j < plan.problem.dv; ++j) {
      const double want = exact.O(i, j), is = got.O(i, j);
      ++(std::isnan(want) ? nans : std::isinf(want) ? infinities : finite);
      // Other elements may have what the conformance suite's bounds give them, and more.
      const bool right = std::isnan(want)   ? std::isnan(is)
                         : std::isinf(want) ? is == want
                                            : std::abs(is - want) <= 0.05;
      if (right) continue;
      return absl::InternalError(absl::StrCat(
          plan.problem.ToString(), ": sequence ", rows[i].sequence, ", head ", rows[i].head,
          ", row ", rows[i].row, ", dim ", j, ": ", is, " where the oracle has ", want));
    }
  }
  if (nans > 0 && infinities > 0 && finite > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(plan.problem.ToString(),
                                                 ": nothing to see: ", nans, " NaN, ", infinities,
                                                 " infinities, ", finite, " numbers"));
}

}  // namespace

absl::Status SpecialValuesOfV(const Plan& plan, Layout layout) {
  const Device device = plan.device.device;
  InputOptions options;
  options.layout = layout;
  absl::StatusOr<Inputs> inputs = Inputs::Make(plan.problem, device, options);
  if (!inputs.ok()) return inputs.status();
  if (absl::Status s = Plant(plan, *inputs); !s.ok()) return s;
  const AttentionTensors& host = inputs->host_tensors();
  absl::StatusOr<Outputs> outputs =
      Outputs::Make(plan.problem, inputs->tensors(), layout, /*with_lse=*/true);
  if (!outputs.ok()) return outputs.status();
  if (absl::Status s = outputs->Prepare(plan.problem, host); !s.ok()) return s;
  absl::StatusOr<Buffer> workspace = Buffer::Allocate(device, plan.workspace_bytes);
  if (!workspace.ok()) return workspace.status();
  absl::Status s =
      Forward(plan, outputs->Attach(inputs->tensors()), {workspace->data(), workspace->bytes()});
  if (s.ok() && device.kind == DeviceKind::kCuda) s = cuda_backend::Synchronize(device.ordinal);
  if (!s.ok()) return s;
  const absl::StatusOr<HostOutputs> got = outputs->ToHost();
  if (!got.ok()) return got.status();

  const std::vector<reference::Row> rows = reference::AllRows(plan.problem, host);
  const absl::StatusOr<reference::Result> exact = reference::Exact(plan.problem, host, rows);
  if (!exact.ok()) return exact.status();
  return Check(plan, *exact, ValuesOf(plan.problem, host, *got, rows), rows);
}

}  // namespace attnlab::testing
