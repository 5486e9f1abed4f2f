#include "tools/tensor_files/outputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attnlab {
namespace {

Outputs::Summary Summarize(const void* data, DType dtype, int64_t count) {
  Outputs::Summary summary;
  summary.elements = count;
  int64_t finite = 0;
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double x = LoadElement(data, dtype, i);
    if (std::isnan(x)) {
      ++summary.nan;
    } else if (std::isinf(x)) {
      ++summary.infinite;
    } else {
      summary.min = finite == 0 ? x : std::min(summary.min, x);
      summary.max = finite == 0 ? x : std::max(summary.max, x);
      sum += x;
      ++finite;
    }
  }
  if (finite > 0) summary.mean = sum / static_cast<double>(finite);
  return summary;
}

}  // namespace

absl::StatusOr<Outputs> Outputs::Make(const AttentionProblem& problem,
                                      const AttentionTensors& inputs, FileLayout layout,
                                      bool has_batch_axis) {
  Outputs out;
  out.dtype_ = problem.ODType();
  const Device device = inputs.q.device;
  const int64_t b = inputs.q.shape[0], s = inputs.q.shape[1];
  const int64_t h = problem.hq, dv = problem.dv;
  const int64_t o_bytes = b * s * h * dv * SizeOf(problem.ODType());
  const int64_t lse_bytes = b * s * h * static_cast<int64_t>(sizeof(float));
  const struct {
    Buffer* buffer;
    Device device;
    int64_t bytes;
  } kBuffers[] = {{&out.o_device_, device, o_bytes},
                  {&out.lse_device_, device, lse_bytes},
                  {&out.o_host_, Device::Cpu(), o_bytes},
                  {&out.lse_host_, Device::Cpu(), lse_bytes}};
  for (const auto& b_ : kBuffers) {
    absl::StatusOr<Buffer> buffer = Buffer::Allocate(b_.device, b_.bytes);
    if (!buffer.ok()) return buffer.status();
    *b_.buffer = *std::move(buffer);
  }
  // Kernels do not write rows that no sequence uses.
  std::fill_n(static_cast<float*>(out.lse_host_.data()), b * s * h,
              -std::numeric_limits<float>::infinity());
  absl::Status status = out.o_device_.Fill(0);
  if (status.ok()) status = out.lse_device_.CopyFromHost(out.lse_host_.data(), lse_bytes);
  if (!status.ok()) return status;
  const bool bshd = layout == FileLayout::kBshd;
  out.o_ = bshd ? BshdView(out.o_device_.data(), problem.ODType(), device, b, s, h, dv)
                : BhsdView(out.o_device_.data(), problem.ODType(), device, b, s, h, dv);
  out.lse_ = LseView(static_cast<float*>(out.lse_device_.data()), device, b, s, h);
  out.o_shape_ = bshd ? std::vector<int64_t>{b, s, h, dv} : std::vector<int64_t>{b, h, s, dv};
  out.lse_shape_ = {b, h, s};
  if (!has_batch_axis) {
    out.o_shape_.erase(out.o_shape_.begin());
    out.lse_shape_.erase(out.lse_shape_.begin());
  }
  return out;
}

void Outputs::AddTo(AttentionTensors* tensors) const {
  tensors->o = o_;
  tensors->lse = lse_;
}

absl::Status Outputs::Fetch() {
  absl::Status s = o_device_.CopyToHost(o_host_.data(), o_host_.bytes());
  if (s.ok()) s = lse_device_.CopyToHost(lse_host_.data(), lse_host_.bytes());
  return s;
}

oracle::HostOutputs Outputs::OnHost() {
  oracle::HostOutputs outputs;
  outputs.o = o_;
  outputs.lse = lse_;
  outputs.o.data = o_host_.data();
  outputs.lse.data = lse_host_.data();
  outputs.o.device = outputs.lse.device = Device::Cpu();
  return outputs;
}

absl::Status Outputs::WriteO(const std::string& path, NpyType type) const {
  if (type == NpyTypeOf(dtype_)) return WriteNpy(path, type, o_shape_, o_host_.data());
  const int64_t count = o_.NumElements();
  absl::StatusOr<Buffer> data = Buffer::Allocate(Device::Cpu(), count * SizeOf(type));
  if (!data.ok()) return data.status();
  const DType dtype = type == NpyType::kFloat16    ? DType::kFloat16
                      : type == NpyType::kBFloat16 ? DType::kBFloat16
                                                   : DType::kFloat32;
  for (int64_t i = 0; i < count; ++i) {
    const float x = LoadElement(o_host_.data(), dtype_, i);
    if (type == NpyType::kFloat64) {
      static_cast<double*>(data->data())[i] = x;
      continue;
    }
    StoreElement(data->data(), dtype, i, x);
    if (std::isfinite(x) && std::isinf(LoadElement(data->data(), dtype, i))) {
      return absl::InvalidArgumentError(absl::StrCat("--out_dtype: O has ", x, " at element ", i,
                                                     ", which is too large for ", Name(type)));
    }
  }
  return WriteNpy(path, type, o_shape_, data->data());
}

absl::Status Outputs::WriteLse(const std::string& path) const {
  return WriteNpy(path, NpyType::kFloat32, lse_shape_, lse_host_.data());
}

Outputs::Summary Outputs::SummaryOfO() const {
  return Summarize(o_host_.data(), dtype_, o_.NumElements());
}

Outputs::Summary Outputs::SummaryOfLse() const {
  return Summarize(lse_host_.data(), DType::kFloat32, lse_.NumElements());
}

}  // namespace attnlab
