#include "attention/multi_gpu/executor.h"

#include <chrono>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/cuda/memory.h"
#include "attention/device/online_softmax.h"
#include "attention/multi_gpu/gpu_executor.h"

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
    const int64_t size = SizeOf(from.dtype), bytes = from.shape[3] * size;
    for (int64_t b = 0; b < from.shape[0]; ++b) {
      for (int64_t row = 0; row < from.shape[1]; ++row) {
        for (int64_t head = 0; head < from.shape[2]; ++head) {
          std::memcpy(static_cast<char*>(to.data) + to.Offset(b, row, head, 0) * size,
                      static_cast<const char*>(from.data) + from.Offset(b, row, head, 0) * size,
                      bytes);
        }
      }
    }
    return absl::OkStatus();
  }
  absl::Status Reset(int64_t b, int64_t rows, int64_t heads, int64_t dv,
                     int64_t /*parts*/) override {
    rows_ = rows, heads_ = heads, dv_ = dv;
    try {
      states_.assign(b * rows * heads, {});
      sums_.assign(b * rows * heads * dv, 0.0f);
    } catch (const std::exception&) {  // bad_alloc, or length_error
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for ", b * rows * heads * dv, " elements of O in fp32"));
    }
    return absl::OkStatus();
  }
  absl::Status Add(const ConstTensorView& o, const ConstTensorView& lse,
                   int64_t first_row) override {
    for (int64_t b = 0; b < o.shape[0]; ++b) {
      for (int64_t row = 0; row < o.shape[1]; ++row) {
        for (int64_t head = 0; head < heads_; ++head) {
          const int64_t at = IndexOf(b, first_row + row, head), from = o.Offset(b, row, head, 0);
          const float part = LoadElement(lse.data, DType::kFloat32, lse.Offset(b, row, head, 0));
          const auto f = states_[at].Merge(device::OnlineSoftmax::OfLse(part));
          float* const sum = &sums_[at * dv_];
          for (int64_t i = 0; i < dv_; ++i) {
            sum[i] = f.mine * sum[i] + f.parts * LoadElement(o.data, o.dtype, from + i);
          }
        }
      }
    }
    return absl::OkStatus();
  }
  absl::Status Store(const TensorView& o, const TensorView& lse) override {
    for (int64_t b = 0; b < o.shape[0]; ++b) {
      for (int64_t row = 0; row < rows_; ++row) {
        for (int64_t head = 0; head < heads_; ++head) {
          const int64_t at = IndexOf(b, row, head), to = o.Offset(b, row, head, 0);
          const float factor = states_[at].Inverse();
          for (int64_t i = 0; i < dv_; ++i) {
            StoreElement(o.data, o.dtype, to + i, sums_[at * dv_ + i] * factor);
          }
          if (lse.data == nullptr) continue;
          StoreElement(lse.data, DType::kFloat32, lse.Offset(b, row, head, 0), states_[at].Lse());
        }
      }
    }
    return absl::OkStatus();
  }
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

  int64_t IndexOf(int64_t b, int64_t row, int64_t head) const {
    return (b * rows_ + row) * heads_ + head;
  }

  std::vector<Buffer> memory_;
  int64_t rows_ = 0, heads_ = 0, dv_ = 0;
  // Of each query and head: the maximum and the sum, and O before the division.
  std::vector<device::OnlineSoftmax> states_;
  std::vector<float> sums_;
  std::vector<Clock::time_point> times_;
};

}  // namespace

absl::StatusOr<Call> PlanCall(const AttentionProblem& problem, Device device,
                              const std::string& kernel, Executor& executor) {
  absl::StatusOr<Plan> plan = MakePlan(problem, device, kernel);
  if (!plan.ok()) return plan.status();
  const absl::StatusOr<void*> memory = executor.Allocate(plan->workspace_bytes);
  if (!memory.ok()) return memory.status();
  const Workspace workspace = {*memory, plan->workspace_bytes};
  return Call{*std::move(plan), workspace};
}

absl::StatusOr<std::unique_ptr<Executor>> MakeExecutor(Device device, void* stream) {
  if (device.kind == DeviceKind::kCuda) return MakeGpuExecutor(device.ordinal, stream);
  return std::make_unique<CpuExecutor>();
}

}  // namespace attnlab::multi_gpu
