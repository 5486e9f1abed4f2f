// The limits of a GPU: the lines of a roofline. They are measured on the GPU, because its clocks
// differ from those on the data sheet.
#ifndef PROFILING_CEILINGS_H_
#define PROFILING_CEILINGS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/dtype.h"

namespace attnlab::profiling {

struct Ceilings {
  // Bytes per second of HBM, or of whatever memory the GPU has, for a kernel that reads, one that
  // writes, and a copy. A copy counts its bytes twice.
  double hbm_read = 0, hbm_write = 0, hbm_copy = 0;
  // FLOP/s of a cuBLAS product of two 8192 x 8192 matrices of random numbers, summed in fp32. 0
  // where the GPU has no such tensor cores (bf16 and TF32 need 8.0, fp8 needs 8.9).
  double bf16 = 0, fp16 = 0, tf32 = 0, fp8 = 0;
  // FLOP/s of fp32 multiply-adds on CUDA cores.
  double fp32 = 0;

  // The largest of the three.
  double Hbm() const;

  // The FLOP/s ceiling for kernels of this dtype: tensor cores for 16 and 8 bits. For fp32 it is
  // the CUDA cores, or the tensor cores if `as_tf32`.
  double Flops(DType dtype, bool as_tf32 = false) const;
};

// Takes about a second; each figure is the median of about 20 runs. ResourceExhausted if 1.2 GiB of
// memory cannot be allocated; Unavailable without a GPU.
absl::StatusOr<Ceilings> MeasureCeilings(int ordinal);

}  // namespace attnlab::profiling

#endif  // PROFILING_CEILINGS_H_
