// Steps 2 and 5: batched matrix products by cuBLAS.
#ifndef ATTENTION_BASELINE_GEMM_H_
#define ATTENTION_BASELINE_GEMM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/baseline/matrices.h"
#include "attention/device/element.h"
#include "cuda_runtime_api.h"

struct cublasContext;

namespace attnlab::baseline {

// C = A B or C = A Bᵀ for `count` triples of row-major matrices, with fp32 sums.
struct Product {
  int64_t count = 0;
  int64_t m = 0, n = 0, k = 0;  // C is m × n, and the sum is over k; none is 0
  device::Element input = device::Element::kFloat32;   // of A and B
  device::Element output = device::Element::kFloat32;  // of C: the same as the input, or fp32
  Matrices a, b, c;
  bool transpose_b = false;  // B is n × k
  bool tf32 = false;         // fp32 inputs rounded to TF32, on tensor cores
};

// cuBLAS on one device and stream, with the caller's scratch memory. cuBLAS handles are kept and
// used again. The first handle on a device allocates memory of its own.
class Gemm {
 public:
  // The device must be current.
  static absl::StatusOr<Gemm> Make(int ordinal, cudaStream_t stream, void* workspace,
                                   int64_t workspace_bytes);
  Gemm(Gemm&& other) noexcept;
  Gemm& operator=(Gemm&&) = delete;
  ~Gemm();

  absl::Status Run(const Product& product);

 private:
  Gemm(int ordinal, cublasContext* handle) : ordinal_(ordinal), handle_(handle) {}

  int ordinal_;
  cublasContext* handle_;
  bool failed_ = false;
};

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_GEMM_H_
