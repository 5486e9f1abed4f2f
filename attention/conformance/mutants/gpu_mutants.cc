#include "attention/conformance/mutants/gpu_mutants.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/call.h"
#include "cuda_runtime_api.h"

namespace attnlab::conformance {
namespace {

constexpr int64_t kMostRows = 1024;

// The mistakes; CopyKernel::Run() makes them.
enum class Bug {
  kNone,
  kWaitsForStream,
  kWaitsForDevice,
  kDefaultStream,      // works on the legacy default stream
  kOwnStream,          // works on its own stream, which nothing orders
  kAllocates,          // cudaMalloc() of scratch during a call
  kAllocatesFromPool,  // cudaMallocAsync(), which a graph may contain
  kHostMemory,         // copies from host memory that later changes
};

using cuda_backend::ToStatus;

class CopyKernel : public Kernel {
 public:
  CopyKernel(std::string name, Bug bug) : bug_(bug) {
    traits_.name = std::move(name);
    traits_.summary = "for tests of the conformance suite";
    traits_.device = DeviceKind::kCuda;
    traits_.compute_capabilities = {75};
  }
  ~CopyKernel() override {
    if (own_stream_ != nullptr) cudaStreamDestroy(own_stream_);
  }

  const KernelTraits& traits() const override { return traits_; }

  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(const AttentionProblem& p,
                                                          const DeviceInfo&,
                                                          const LaunchConfig&) const override {
    if (p.d != p.dv) return absl::UnimplementedError("dv: is not d");
    if (p.lens != Lengths::kFixed) return absl::UnimplementedError("lens: is not fixed");
    if (p.sq > kMostRows) return absl::UnimplementedError("sq: is too large");
    return PreparedAs(
        /*workspace_bytes=*/0,
        [this, p](const AttentionTensors& t, const Launch& launch) { return Run(p, t, launch); });
  }

 private:
  absl::Status Run(const AttentionProblem& p, const AttentionTensors& t,
                   const Launch& launch) const {
    auto stream = static_cast<cudaStream_t>(launch.stream);
    if (bug_ == Bug::kDefaultStream) stream = nullptr;
    if (bug_ == Bug::kOwnStream) {
      if (own_stream_ == nullptr) {
        cudaStreamCreateWithFlags(&own_stream_, cudaStreamNonBlocking);
      }
      stream = own_stream_;
    }
    void* scratch = nullptr;
    cudaError_t error = cudaSuccess;
    if (bug_ == Bug::kAllocates) error = cudaMalloc(&scratch, 1 << 20);
    if (bug_ == Bug::kAllocatesFromPool) error = cudaMallocAsync(&scratch, 1 << 20, stream);
    if (error != cudaSuccess) return ToStatus(error, "scratch");

    absl::Status s = Copy(p, t, stream);

    if (s.ok() && bug_ == Bug::kWaitsForStream) {
      s = ToStatus(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }
    if (s.ok() && bug_ == Bug::kWaitsForDevice) {
      s = ToStatus(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    if (bug_ == Bug::kAllocates) cudaFree(scratch);
    if (bug_ == Bug::kAllocatesFromPool) cudaFreeAsync(scratch, stream);
    return s;
  }

  // O = Q, LSE = a number.
  absl::Status Copy(const AttentionProblem& p, const AttentionTensors& t,
                    cudaStream_t stream) const {
    if (p.sq == 0) return absl::OkStatus();
    const auto at = [](const auto& view, int64_t b, int64_t h) {
      return static_cast<decltype(view.data)>(
          const_cast<char*>(static_cast<const char*>(view.data)) +
          view.Offset(b, 0, h, 0) * SizeOf(view.dtype));
    };
    const auto pitch = [](const auto& view) {
      return static_cast<size_t>(view.strides[1] * SizeOf(view.dtype));
    };
    const size_t row = static_cast<size_t>(p.d * SizeOf(p.dtype));
    // Never reallocated: a graph keeps its address.
    if (later_.empty()) later_.resize(kMostRows);
    std::fill(later_.begin(), later_.end(), 1.0f);
    for (int64_t b = 0; b < p.b; ++b) {
      for (int64_t h = 0; h < p.hq; ++h) {
        absl::Status s =
            ToStatus(cudaMemcpy2DAsync(at(t.o, b, h), pitch(t.o), at(t.q, b, h), pitch(t.q), row,
                                       static_cast<size_t>(p.sq), cudaMemcpyDeviceToDevice, stream),
                     "copying Q");
        if (!s.ok()) return s;
        if (t.lse.data == nullptr) continue;
        if (bug_ == Bug::kHostMemory) {
          s = ToStatus(cudaMemcpy2DAsync(at(t.lse, b, h), pitch(t.lse), later_.data(), 4, 4,
                                         static_cast<size_t>(p.sq), cudaMemcpyHostToDevice, stream),
                       "copying LSE");
        } else {
          s = ToStatus(cudaMemset2DAsync(at(t.lse, b, h), pitch(t.lse), 0x3F, 4,
                                         static_cast<size_t>(p.sq), stream),
                       "setting LSE");
        }
        if (!s.ok()) return s;
      }
    }
    std::fill(later_.begin(), later_.end(), 2.0f);
    return absl::OkStatus();
  }

  KernelTraits traits_;
  Bug bug_;
  mutable cudaStream_t own_stream_ = nullptr;
  mutable std::vector<float> later_;
};

}  // namespace

std::unique_ptr<const Kernel> SoundGpuKernel() {
  return std::make_unique<CopyKernel>("sound_on_gpu", Bug::kNone);
}

std::vector<GpuMutant> GpuMutants() {
  const std::string kCapture = "can_be_captured", kAllocates = "allocates_nothing",
                    kStream = "runs_on_the_callers_stream";
  struct Row {
    const char* name;
    Bug bug;
    std::vector<std::string> checks;
    const char* message;
  };
  const Row kMutants[] = {
      {"waits_for_stream",
       Bug::kWaitsForStream,
       {kStream, kCapture},
       "Forward() waits for earlier work of its stream"},
      {"waits_for_device",
       Bug::kWaitsForDevice,
       {kStream, kCapture},
       "Forward() waits for earlier work of its stream"},
      {"default_stream",
       Bug::kDefaultStream,
       {kStream, kCapture},
       "writes to o before earlier work of its stream is done"},
      {"own_stream",
       Bug::kOwnStream,
       {kStream, kCapture},
       "writes to o before earlier work of its stream is done"},
      {"allocates", Bug::kAllocates, {kAllocates, kCapture}, "cannot be captured in a CUDA graph"},
      {"allocates_from_pool",
       Bug::kAllocatesFromPool,
       {kAllocates},
       "bytes from the device's memory pool"},
      {"host_memory", Bug::kHostMemory, {kCapture}, "a graph of Forward(), replayed: lse: bits"},
  };
  std::vector<GpuMutant> mutants;
  for (const Row& m : kMutants) {
    mutants.push_back({m.name, std::make_unique<CopyKernel>(m.name, m.bug), m.checks, m.message});
  }
  return mutants;
}

}  // namespace attnlab::conformance
