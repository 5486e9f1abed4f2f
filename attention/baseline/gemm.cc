#include "attention/baseline/gemm.h"

#include <cublas_v2.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "attention/cuda/call.h"

namespace attnlab::baseline {
namespace {

absl::Status ToStatus(cublasStatus_t status, absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message = absl::StrCat(what, ": ", cublasGetStatusString(status));
  return status == CUBLAS_STATUS_ALLOC_FAILED ? absl::ResourceExhaustedError(message)
                                              : absl::InternalError(message);
}

cudaDataType_t DataType(device::Element element) {
  switch (element) {
    case device::Element::kFloat16:
      return CUDA_R_16F;
    case device::Element::kBFloat16:
      return CUDA_R_16BF;
    case device::Element::kFloat32:
      break;
  }
  return CUDA_R_32F;
}

// Idle handles, by device. Creating one allocates and takes milliseconds. Using one from two
// threads at once is not safe.
class Handles {
 public:
  static Handles& Global() {
    static Handles* const kHandles = new Handles;
    return *kHandles;
  }

  absl::StatusOr<cublasHandle_t> Take(int ordinal) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::vector<cublasHandle_t>& free = free_[ordinal];
      if (!free.empty()) {
        const cublasHandle_t handle = free.back();
        free.pop_back();
        return handle;
      }
    }
    // cuBLAS's allocations must not become part of a graph that this thread may be capturing.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    absl::Status s = cuda_backend::ToStatus(cudaThreadExchangeStreamCaptureMode(&mode),
                                            "cudaThreadExchangeStreamCaptureMode");
    if (!s.ok()) return s;
    cublasHandle_t handle = nullptr;
    s = ToStatus(cublasCreate(&handle), "cublasCreate");
    // Partial sums of fp16 products stay fp32, because 16 bits would overflow.
    if (s.ok()) {
      s = ToStatus(cublasSetMathMode(handle, static_cast<cublasMath_t>(
                                                 CUBLAS_DEFAULT_MATH |
                                                 CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
                   "cublasSetMathMode");
    }
    cudaThreadExchangeStreamCaptureMode(&mode);
    if (!s.ok()) return s;
    return handle;
  }

  void Return(int ordinal, cublasHandle_t handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_[ordinal].push_back(handle);
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<cublasHandle_t>> free_;
};

}  // namespace

absl::StatusOr<Gemm> Gemm::Make(int ordinal, cudaStream_t stream, void* workspace,
                                int64_t workspace_bytes) {
  absl::StatusOr<cublasHandle_t> handle = Handles::Global().Take(ordinal);
  if (!handle.ok()) return handle.status();
  Gemm gemm(ordinal, *handle);
  absl::Status s = ToStatus(cublasSetStream(*handle, stream), "cublasSetStream");
  // After setting the stream, which resets cuBLAS to a workspace of its own.
  if (s.ok()) {
    s = ToStatus(cublasSetWorkspace(*handle, workspace, static_cast<size_t>(workspace_bytes)),
                 "cublasSetWorkspace");
  }
  gemm.failed_ = !s.ok();
  if (!s.ok()) return s;
  return gemm;
}

Gemm::Gemm(Gemm&& other) noexcept
    : ordinal_(other.ordinal_),
      handle_(std::exchange(other.handle_, nullptr)),
      failed_(other.failed_) {}

Gemm::~Gemm() {
  if (handle_ == nullptr) return;
  // A handle that failed once may fail for ever, for example after cudaDeviceReset().
  if (failed_) {
    cublasDestroy(handle_);
  } else {
    Handles::Global().Return(ordinal_, handle_);
  }
}

absl::Status Gemm::Run(const Product& p) {
  const float one = 1, zero = 0;
  const cudaDataType_t input = DataType(p.input), output = DataType(p.output);
  const cublasComputeType_t compute = p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  // cuBLAS's matrices are column-major. Ours are row-major, so cuBLAS sees their transposes: Cᵀ =
  // Bᵀ Aᵀ.
  const absl::Status status =
      ToStatus(cublasGemmStridedBatchedEx_64(
                   handle_, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, p.n, p.m, p.k,
                   &one, p.b.data, input, p.b.row_stride, p.b.stride, p.a.data, input,
                   p.a.row_stride, p.a.stride, &zero, p.c.data, output, p.c.row_stride, p.c.stride,
                   p.count, compute, CUBLAS_GEMM_DEFAULT),
               absl::StrCat("cublasGemmStridedBatchedEx of ", p.count, " products ", p.m, " x ",
                            p.n, " x ", p.k));
  failed_ = failed_ || !status.ok();
  return status;
}

}  // namespace attnlab::baseline
