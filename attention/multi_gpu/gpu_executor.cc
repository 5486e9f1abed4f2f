#include "attention/multi_gpu/gpu_executor.h"

#include <utility>
#include <vector>

#include "attention/core/dtype.h"
#include "attention/cuda/call.h"
#include "attention/cuda/stream_buffer.h"
#include "attention/device/element_of.h"
#include "attention/multi_gpu/merge.h"
#include "attention/multi_gpu/part.h"

namespace attnlab::multi_gpu {
namespace {

using cuda_backend::StreamBuffer;
using cuda_backend::ToStatus;
using device::ElementOf;

DeviceRows RowsOf(const ConstTensorView& t) {
  return {const_cast<void*>(t.data), t.strides[0], t.strides[1], t.strides[2]};
}

class GpuExecutor : public Executor {
 public:
  GpuExecutor(int ordinal, void* stream)
      : device_(ordinal), ordinal_(ordinal), stream_(static_cast<cudaStream_t>(stream)) {}
  ~GpuExecutor() override {
    for (const cudaEvent_t time : times_) cudaEventDestroy(time);
  }

  absl::Status Begin() const { return device_.status(); }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    absl::StatusOr<StreamBuffer> buffer = StreamBuffer::Allocate(ordinal_, stream_, bytes);
    if (!buffer.ok()) return buffer.status();
    memory_.push_back(*std::move(buffer));
    return memory_.back().data();
  }

  absl::Status Copy(const ConstTensorView& from, const TensorView& to) override {
    if (IsDense(from) && IsDense(to) && (from.shape[0] == 1 || from.shape[1] == to.shape[1])) {
      return ToStatus(cudaMemcpyAsync(to.data, from.data, from.NumElements() * SizeOf(from.dtype),
                                      cudaMemcpyDeviceToDevice, stream_),
                      "copy of rows");
    }
    return ToStatus(StartCopy(from.shape[0], from.shape[1], from.shape[2], from.shape[3],
                              ElementOf(from.dtype), RowsOf(from), RowsOf(to), stream_),
                    "copy of rows");
  }

  absl::Status Reset(int64_t b, int64_t rows, int64_t heads, int64_t dv, int64_t parts) override {
    merging_.b = b, merging_.rows = rows, merging_.heads = heads, merging_.dv = dv;
    parts_ = parts;
    if (parts <= Merging::kMost) return absl::OkStatus();
    const int64_t count = b * rows * heads;
    const absl::StatusOr<void*> states =
        Allocate(count * static_cast<int64_t>(sizeof(*merging_.states)));
    const absl::StatusOr<void*> sum =
        Allocate(count * dv * static_cast<int64_t>(sizeof(*merging_.sum)));
    if (!states.ok() || !sum.ok()) return states.ok() ? sum.status() : states.status();
    merging_.states = static_cast<device::OnlineSoftmax*>(*states);
    merging_.sum = static_cast<float*>(*sum);
    return absl::OkStatus();
  }

  absl::Status Add(const ConstTensorView& o, const ConstTensorView& lse,
                   int64_t first_row) override {
    if (parts_ <= 0) return absl::InternalError("more parts than were announced");
    merging_.parts[merging_.count++] = {RowsOf(o), RowsOf(lse), first_row, o.shape[1]};
    // The last ones are merged into O at once.
    if (--parts_ == 0 || merging_.count < Merging::kMost) return absl::OkStatus();
    const cudaError_t error = StartMerge(merging_, ElementOf(o.dtype), stream_);
    merging_.has_sum = true, merging_.count = 0;
    return ToStatus(error, "merge of parts");
  }

  absl::Status Store(const TensorView& o, const TensorView& lse) override {
    return ToStatus(StartStore(merging_, ElementOf(o.dtype), RowsOf(o), RowsOf(lse), stream_),
                    "store of O");
  }

  absl::Status NoteTime() override {
    cudaEvent_t time = nullptr;
    absl::Status s = ToStatus(cudaEventCreate(&time), "cudaEventCreate");
    if (!s.ok()) return s;
    times_.push_back(time);
    return ToStatus(cudaEventRecord(time, stream_), "cudaEventRecord");
  }
  absl::StatusOr<std::vector<double>> Times() override {
    std::vector<double> seconds;
    for (const cudaEvent_t time : times_) {
      float milliseconds = 0;
      absl::Status s = ToStatus(cudaEventSynchronize(time), "cudaEventSynchronize");
      if (s.ok()) {
        s = ToStatus(cudaEventElapsedTime(&milliseconds, times_[0], time), "cudaEventElapsedTime");
      }
      if (!s.ok()) return s;
      seconds.push_back(1e-3 * milliseconds);
    }
    return seconds;
  }

 private:
  const cuda_backend::ScopedDevice device_;
  const int ordinal_;
  const cudaStream_t stream_;
  std::vector<cudaEvent_t> times_;
  std::vector<StreamBuffer> memory_;
  Merging merging_;
  int64_t parts_ = 0;  // that are still to come
};

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> MakeGpuExecutor(int ordinal, void* stream) {
  auto executor = std::make_unique<GpuExecutor>(ordinal, stream);
  if (absl::Status s = executor->Begin(); !s.ok()) return s;
  return executor;
}

}  // namespace attnlab::multi_gpu
