#include "attention/multi_gpu/gpu_executor.h"

#include <utility>
#include <vector>

#include "attention/core/dtype.h"
#include "attention/cuda/call.h"
#include "attention/cuda/stream_buffer.h"
#include "attention/device/element_of.h"
#include "attention/multi_gpu/merge.h"

namespace attnlab::multi_gpu {
namespace {

using cuda_backend::StreamBuffer;
using cuda_backend::ToStatus;
using device::ElementOf;

DeviceRows RowsOf(const ConstTensorView& t) {
  return {const_cast<void*>(t.data), t.strides[0], t.strides[1], t.strides[2]};
}

// Whether all elements are neighbours.
bool IsDense(const ConstTensorView& t) {
  return t.strides[2] == t.shape[3] && t.strides[1] == t.shape[2] * t.strides[2] &&
         (t.shape[0] == 1 || t.strides[0] == t.shape[1] * t.strides[1]);
}

class GpuExecutor : public Executor {
 public:
  GpuExecutor(int ordinal, void* stream)
      : device_(ordinal), ordinal_(ordinal), stream_(static_cast<cudaStream_t>(stream)) {}
  ~GpuExecutor() override {
    if (event_ != nullptr) cudaEventDestroy(event_);
    for (const cudaEvent_t time : times_) cudaEventDestroy(time);
  }

  absl::Status Begin() {
    if (!device_.status().ok()) return device_.status();
    return ToStatus(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  }

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
                      "copy of K and V");
    }
    return ToStatus(StartCopy(from.shape[0], from.shape[1], from.shape[2], from.shape[3],
                              ElementOf(from.dtype), RowsOf(from), RowsOf(to), stream_),
                    "copy of K and V");
  }

  absl::Status Reset(int64_t b, int64_t rows, int64_t heads, int64_t dv) override {
    const int64_t count = b * rows * heads;
    sum_.b = b, sum_.rows = rows, sum_.heads = heads, sum_.dv = dv;
    const absl::StatusOr<void*> states =
        Allocate(count * static_cast<int64_t>(sizeof(*sum_.states)));
    const absl::StatusOr<void*> o = Allocate(count * dv * static_cast<int64_t>(sizeof(*sum_.o)));
    if (!states.ok() || !o.ok()) return states.ok() ? o.status() : states.status();
    sum_.states = static_cast<device::OnlineSoftmax*>(*states);
    sum_.o = static_cast<float*>(*o);
    return ToStatus(StartReset(sum_, stream_), "sum of parts");
  }

  absl::Status Add(const ConstTensorView& o, const ConstTensorView& lse,
                   int64_t first_row) override {
    return ToStatus(
        StartAdd(sum_, first_row, o.shape[1], ElementOf(o.dtype), RowsOf(o), RowsOf(lse), stream_),
        "merge of a part");
  }

  absl::Status Store(const TensorView& o, const TensorView& lse) override {
    return ToStatus(StartStore(sum_, ElementOf(o.dtype), RowsOf(o), RowsOf(lse), stream_),
                    "store of O");
  }

  absl::StatusOr<void*> Record() override {
    absl::Status s = ToStatus(cudaEventRecord(event_, stream_), "cudaEventRecord");
    if (!s.ok()) return s;
    return event_;
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
  cudaEvent_t event_ = nullptr;
  std::vector<cudaEvent_t> times_;
  std::vector<StreamBuffer> memory_;
  DeviceSum sum_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> MakeGpuExecutor(int ordinal, void* stream) {
  auto executor = std::make_unique<GpuExecutor>(ordinal, stream);
  if (absl::Status s = executor->Begin(); !s.ok()) return s;
  return executor;
}

}  // namespace attnlab::multi_gpu
