#include "profiling/matrix_rate.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/cuda/call.h"
#include "cublasLt.h"
#include "cuda_runtime_api.h"
#include "profiling/random_numbers.h"
#include "profiling/timed_launches.h"

namespace attnlab::profiling {
namespace {

using cuda_backend::ToStatus;

constexpr int64_t kSize = 8192;
constexpr int kRepetitions = 20;
constexpr int kTrials = 3;               // per algorithm
constexpr int kAlgorithms = 4;           // to try
constexpr size_t kWorkspace = 32 << 20;  // what cuBLAS uses on Hopper

struct Types {
  cudaDataType_t input, output;
  cublasComputeType_t compute;
  NumberType numbers;
  int64_t input_bytes, output_bytes;
};

Types TypesOf(MatrixType type) {
  switch (type) {
    case MatrixType::kBFloat16:
      return {CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, NumberType::kBFloat16, 2, 2};
    case MatrixType::kHalf:
      return {CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, NumberType::kHalf, 2, 2};
    case MatrixType::kFp8:
      return {CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F, NumberType::kFp8E4M3, 1, 2};
    case MatrixType::kTf32:
      break;
  }
  return {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, NumberType::kFloat, 4, 4};
}

absl::Status LtStatus(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message = absl::StrCat(call, ": ", cublasLtGetStatusString(status));
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH
             ? absl::UnimplementedError(message)
             : absl::InternalError(message);
}

// Owning handles of cuBLAS.
template <typename Handle, cublasStatus_t (*Destroy)(Handle)>
struct Destroyer {
  void operator()(std::remove_pointer_t<Handle>* handle) const { Destroy(handle); }
};
template <typename Handle, cublasStatus_t (*Destroy)(Handle)>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<Handle, Destroy>>;

struct CudaFree {
  void operator()(void* data) const { cudaFree(data); }
};
using DeviceMemory = std::unique_ptr<void, CudaFree>;

absl::Status Allocate(int64_t bytes, DeviceMemory* memory) {
  void* data = nullptr;
  const absl::Status s =
      ToStatus(cudaMalloc(&data, static_cast<size_t>(bytes)), "matrices of the ceilings");
  memory->reset(data);
  return s;
}

// C = Aᵀ B, the only form that fp8 supports.
class Product {
 public:
  absl::Status Initialize(const Types& types) {
    cublasLtHandle_t handle = nullptr;
    absl::Status s = LtStatus(cublasLtCreate(&handle), "cublasLtCreate");
    if (!s.ok()) return s;
    handle_.reset(handle);
    cublasLtMatmulDesc_t operation = nullptr;
    s = LtStatus(cublasLtMatmulDescCreate(&operation, types.compute, CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    if (!s.ok()) return s;
    operation_.reset(operation);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    s = LtStatus(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                                sizeof(transposed)),
                 "cublasLtMatmulDescSetAttribute");
    if (s.ok()) s = MakeLayout(types.input, &in_);
    if (s.ok()) s = MakeLayout(types.output, &out_);
    const int64_t elements = kSize * kSize;
    if (s.ok()) s = Allocate(elements * types.input_bytes, &a_);
    if (s.ok()) s = Allocate(elements * types.input_bytes, &b_);
    if (s.ok()) s = Allocate(elements * types.output_bytes, &c_);
    if (s.ok()) s = Allocate(kWorkspace, &workspace_);
    if (s.ok()) s = ToStatus(FillRandom(a_.get(), elements, types.numbers, 1, nullptr), "numbers");
    if (s.ok()) s = ToStatus(FillRandom(b_.get(), elements, types.numbers, 2, nullptr), "numbers");
    return s;
  }

  absl::StatusOr<std::vector<cublasLtMatmulAlgo_t>> Algorithms() {
    cublasLtMatmulPreference_t preference = nullptr;
    absl::Status s = LtStatus(cublasLtMatmulPreferenceCreate(&preference), "cublasLt");
    if (!s.ok()) return s;
    const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> owner(preference);
    s = LtStatus(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspace, sizeof(kWorkspace)),
        "cublasLtMatmulPreferenceSetAttribute");
    if (!s.ok()) return s;
    cublasLtMatmulHeuristicResult_t results[kAlgorithms];
    int found = 0;
    s = LtStatus(cublasLtMatmulAlgoGetHeuristic(handle_.get(), operation_.get(), in_.get(),
                                                in_.get(), out_.get(), out_.get(), preference,
                                                kAlgorithms, results, &found),
                 "cublasLtMatmulAlgoGetHeuristic");
    if (!s.ok()) return s;
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < found; ++i) {
      if (results[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(results[i].algo);
    }
    return algorithms;
  }

  absl::Status Run(const cublasLtMatmulAlgo_t& algorithm) {
    const float one = 1, zero = 0;
    return LtStatus(cublasLtMatmul(handle_.get(), operation_.get(), &one, a_.get(), in_.get(),
                                   b_.get(), in_.get(), &zero, c_.get(), out_.get(), c_.get(),
                                   out_.get(), &algorithm, workspace_.get(), kWorkspace, nullptr),
                    "cublasLtMatmul");
  }

 private:
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  static absl::Status MakeLayout(cudaDataType_t type, Layout* layout) {
    cublasLtMatrixLayout_t made = nullptr;
    const absl::Status s = LtStatus(cublasLtMatrixLayoutCreate(&made, type, kSize, kSize, kSize),
                                    "cublasLtMatrixLayoutCreate");
    layout->reset(made);
    return s;
  }

  Owned<cublasLtHandle_t, cublasLtDestroy> handle_;
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation_;
  Layout in_, out_;
  DeviceMemory a_, b_, c_, workspace_;
};

}  // namespace

absl::StatusOr<double> MeasureMatrixRate(MatrixType type) {
  Product product;
  if (absl::Status s = product.Initialize(TypesOf(type)); !s.ok()) return s;
  const absl::StatusOr<std::vector<cublasLtMatmulAlgo_t>> algorithms = product.Algorithms();
  if (!algorithms.ok()) return algorithms.status();
  if (algorithms->empty()) return absl::UnimplementedError("cuBLAS proposes no algorithm");
  const cublasLtMatmulAlgo_t* fastest = nullptr;
  double least = 0;
  for (const cublasLtMatmulAlgo_t& algorithm : *algorithms) {
    const absl::StatusOr<double> seconds =
        MedianSeconds(kTrials, [&] { return product.Run(algorithm); });
    if (absl::IsUnimplemented(seconds.status())) continue;  // proposed, but cannot run
    if (!seconds.ok()) return seconds.status();
    if (fastest == nullptr || *seconds < least) {
      fastest = &algorithm;
      least = *seconds;
    }
  }
  if (fastest == nullptr) return absl::UnimplementedError("cuBLAS has no algorithm that runs");
  const absl::StatusOr<double> seconds =
      MedianSeconds(kRepetitions, [&] { return product.Run(*fastest); });
  if (!seconds.ok()) return seconds.status();
  return 2.0 * kSize * kSize * kSize / *seconds;
}

}  // namespace attnlab::profiling
