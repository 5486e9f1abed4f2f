#include "profiling/ceilings.h"

#include <algorithm>
#include <vector>

#include "attention/bench/fp32_peak.h"
#include "attention/core/statistics.h"
#include "attention/cuda/call.h"
#include "attention/cuda/memory.h"
#include "profiling/known_traffic.h"
#include "profiling/matrix_rate.h"
#include "profiling/timed_launches.h"

namespace attnlab::profiling {
namespace {

using cuda_backend::ToStatus;

constexpr int64_t kBytes = int64_t{1} << 29;  // far larger than any L2
constexpr int kRepetitions = 20;

absl::Status MeasureMemory(int ordinal, Ceilings* ceilings) {
  absl::StatusOr<Buffer> from = Buffer::Allocate(Device::Cuda(ordinal), kBytes);
  if (!from.ok()) return from.status();
  absl::StatusOr<Buffer> to = Buffer::Allocate(Device::Cuda(ordinal), kBytes);
  if (!to.ok()) return to.status();
  const auto rate = [&](double bytes, const auto& launch, double* result) {
    const absl::StatusOr<double> seconds =
        MedianSeconds(kRepetitions, [&] { return ToStatus(launch(), "memory"); });
    if (seconds.ok()) *result = bytes / *seconds;
    return seconds.status();
  };
  absl::Status s = rate(
      kBytes, [&] { return FillBytes(from->data(), kBytes, 0x3f12cd45, nullptr); },
      &ceilings->hbm_write);
  if (!s.ok()) return s;
  s = rate(
      kBytes, [&] { return ReadBytes(from->data(), kBytes, nullptr); }, &ceilings->hbm_read);
  if (!s.ok()) return s;
  return rate(
      2 * kBytes, [&] { return CopyBytes(from->data(), to->data(), kBytes, nullptr); },
      &ceilings->hbm_copy);
}

absl::Status MeasureMatrices(Ceilings* ceilings) {
  const std::pair<MatrixType, double*> rates[] = {{MatrixType::kBFloat16, &ceilings->bf16},
                                                  {MatrixType::kHalf, &ceilings->fp16},
                                                  {MatrixType::kTf32, &ceilings->tf32},
                                                  {MatrixType::kFp8, &ceilings->fp8}};
  for (const auto& [type, rate] : rates) {
    const absl::StatusOr<double> measured = MeasureMatrixRate(type);
    if (measured.ok()) {
      *rate = *measured;
    } else if (!absl::IsUnimplemented(measured.status())) {
      return measured.status();
    }
  }
  return absl::OkStatus();
}

}  // namespace

double Ceilings::Hbm() const { return std::max({hbm_read, hbm_write, hbm_copy}); }

double Ceilings::Flops(DType dtype, bool as_tf32) const {
  switch (dtype) {
    case DType::kFloat32:
      return as_tf32 ? tf32 : fp32;
    case DType::kFloat16:
      return fp16;
    case DType::kBFloat16:
      return bf16;
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return fp8;
  }
  return 0;
}

absl::StatusOr<Ceilings> MeasureCeilings(int ordinal) {
  const cuda_backend::ScopedDevice current(ordinal);
  if (!current.status().ok()) return current.status();
  Ceilings ceilings;
  // First, because it warms the GPU up.
  std::vector<double> tflops;
  absl::Status s = ToStatus(bench::MeasureFp32Peak(kRepetitions, &tflops), "MeasureFp32Peak");
  if (!s.ok()) return s;
  ceilings.fp32 = 1e12 * Quantile(tflops, 0.5);
  if (s = MeasureMemory(ordinal, &ceilings); !s.ok()) return s;
  if (s = MeasureMatrices(&ceilings); !s.ok()) return s;
  return ceilings;
}

}  // namespace attnlab::profiling
