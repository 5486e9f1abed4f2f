#include "attention/multi_gpu/executor.h"

#include <chrono>
#include <utility>
#include <vector>

#include "attention/cuda/memory.h"
#include "attention/multi_gpu/gpu_executor.h"
#include "attention/multi_gpu/part.h"

namespace attnlab::multi_gpu {
namespace {

class CpuExecutor : public Executor {
 public:
  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    absl::StatusOr<Buffer> buffer = Buffer::Allocate(Device::Cpu(), bytes);
    if (!buffer.ok()) return buffer.status();
    memory_.push_back(*std::move(buffer));
    return memory_.back().data();
  }
  absl::Status Copy(const ConstTensorView& from, const TensorView& to) override {
    CopyElements(from, to);
    return absl::OkStatus();
  }
  absl::Status Reset(int64_t b, int64_t rows, int64_t heads, int64_t dv) override {
    return merged_.Reset(b, rows, heads, dv);
  }
  absl::Status Add(const ConstTensorView& o, const ConstTensorView& lse,
                   int64_t first_row) override {
    merged_.Add(o, lse, first_row);
    return absl::OkStatus();
  }
  absl::Status Store(const TensorView& o, const TensorView& lse) override {
    merged_.Store(o, lse);
    return absl::OkStatus();
  }
  absl::StatusOr<void*> Record() override { return nullptr; }
  absl::Status NoteTime() override {
    times_.push_back(Clock::now());
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<double>> Times() override {
    std::vector<double> seconds;
    for (const Clock::time_point& time : times_) {
      seconds.push_back(std::chrono::duration<double>(time - times_[0]).count());
    }
    return seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<Buffer> memory_;
  Merged merged_;
  std::vector<Clock::time_point> times_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> MakeExecutor(Device device, void* stream) {
  if (device.kind == DeviceKind::kCuda) return MakeGpuExecutor(device.ordinal, stream);
  return std::make_unique<CpuExecutor>();
}

}  // namespace attnlab::multi_gpu
