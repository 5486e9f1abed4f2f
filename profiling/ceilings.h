// What a GPU can do at most, measured on it, because clocks are not what a data sheet says: the
// lines of a roofline.
#ifndef PROFILING_CEILINGS_H_
#define PROFILING_CEILINGS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/dtype.h"

namespace attnlab::profiling {

struct Ceilings {
  // Bytes a second of HBM, or whatever memory the GPU has: a kernel that reads, one that writes,
  // and a copy, whose bytes count twice.
  double hbm_read = 0, hbm_write = 0, hbm_copy = 0;
  // FLOP/s of cuBLAS's product of two matrices of 8192 x 8192 random numbers, summed in fp32; 0
  // where the GPU has no such tensor cores (bf16 and TF32 from 8.0 on, fp8 from 8.9 on).
  double bf16 = 0, fp16 = 0, tf32 = 0, fp8 = 0;
  // FLOP/s of fp32 multiply-adds on CUDA cores.
  double fp32 = 0;

  // The fastest of the three.
  double Hbm() const;

  // FLOP/s that kernels of the dtype are held to: tensor cores of 16 or 8 bits. fp32 is multiplied
  // by CUDA cores, or, where `as_tf32`, by tensor cores.
  double Flops(DType dtype, bool as_tf32 = false) const;
};

// Medians of some 20 runs each, in about a second. ResourceExhausted without 1.2 GiB of memory;
// Unavailable without a GPU.
absl::StatusOr<Ceilings> MeasureCeilings(int ordinal);

}  // namespace attnlab::profiling

#endif  // PROFILING_CEILINGS_H_
