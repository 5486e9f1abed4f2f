#include "profiling/timeline.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/cuda/call.h"
#include "cuda_runtime_api.h"
#include "profiling/cupti.h"
#include "profiling/kernel_name.h"

namespace attnlab::profiling {
namespace {

using cuda_backend::ScopedDevice;
using cuda_backend::ToStatus;

constexpr size_t kBufferBytes = 1 << 20;
constexpr size_t kBufferAlignment = 8;

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMCPY2};

// Records from CUPTI. A global, because CUPTI calls back from its own thread without a user
// pointer.
struct Records {
  std::mutex mutex;
  const Cupti* cupti = nullptr;
  bool wanted = false;
  std::vector<std::pair<uint64_t, Activity>> activities;  // with start times, nanoseconds
};

Records& TheRecords() {
  static auto* const kRecords = new Records();
  return *kRecords;
}

void CUPTIAPI GiveBuffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // no limit but the buffer's size
}

template <typename Record>
std::pair<uint64_t, Activity> Timed(const Record& record, Activity::Kind kind, std::string name) {
  return {record.start,
          {kind, std::move(name), 0, 1e-9 * static_cast<double>(record.end - record.start),
           record.deviceId, record.streamId}};
}

void CUPTIAPI TakeBuffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Records& records = TheRecords();
  {
    const std::lock_guard<std::mutex> lock(records.mutex);
    CUpti_Activity* activity = nullptr;
    while (records.wanted &&
           records.cupti->cuptiActivityGetNextRecord(buffer, valid, &activity) == CUPTI_SUCCESS) {
      // Later versions of these records only append fields.
      if (activity->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel9*>(activity);
        records.activities.push_back(
            Timed(kernel, Activity::Kind::kKernel, Demangled(kernel.name)));
      } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        records.activities.push_back(
            Timed(*reinterpret_cast<const CUpti_ActivityMemset4*>(activity), Activity::Kind::kFill,
                  "memset"));
      } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        records.activities.push_back(
            Timed(*reinterpret_cast<const CUpti_ActivityMemcpy5*>(activity), Activity::Kind::kCopy,
                  "memcpy"));
      } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMCPY2) {
        const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(activity);
        auto timed =
            Timed(copy, Activity::Kind::kCopy, absl::StrCat("memcpy from GPU ", copy.srcDeviceId));
        timed.second.gpu = copy.dstDeviceId;
        records.activities.push_back(std::move(timed));
      }
    }
  }
  std::free(buffer);
}

// Records are kept from Begin() until the destructor.
class Recorder {
 public:
  explicit Recorder(const Cupti* cupti) : cupti_(cupti) {}
  ~Recorder() {
    for (int i = 0; i < enabled_; ++i) cupti_->cuptiActivityDisable(kKinds[i]);
    cupti_->cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    Records& records = TheRecords();
    const std::lock_guard<std::mutex> lock(records.mutex);
    records.wanted = false;
    records.activities.clear();
  }

  absl::Status Begin() {
    {
      Records& records = TheRecords();
      const std::lock_guard<std::mutex> lock(records.mutex);
      records.cupti = cupti_;
      records.activities.clear();
      records.wanted = true;
    }
    absl::Status s = cupti_->Check(cupti_->cuptiActivityRegisterCallbacks(GiveBuffer, TakeBuffer),
                                   "cuptiActivityRegisterCallbacks");
    for (const CUpti_ActivityKind kind : kKinds) {
      if (!s.ok()) return s;
      s = cupti_->Check(cupti_->cuptiActivityEnable(kind), "cuptiActivityEnable");
      enabled_ += s.ok();
    }
    return s;
  }

  absl::StatusOr<std::vector<std::pair<uint64_t, Activity>>> Take() {
    absl::Status s = cupti_->Check(cupti_->cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED),
                                   "cuptiActivityFlushAll");
    if (!s.ok()) return s;
    size_t dropped = 0;
    s = cupti_->Check(cupti_->cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped),
                      "cuptiActivityGetNumDroppedRecords");
    if (!s.ok()) return s;
    if (dropped > 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("CUPTI dropped ", dropped, " activity records"));
    }
    Records& records = TheRecords();
    const std::lock_guard<std::mutex> lock(records.mutex);
    for (const auto& [began, activity] : records.activities) {
      if (began == CUPTI_TIMESTAMP_UNKNOWN || !(activity.seconds >= 0) || activity.seconds > 1e5) {
        return absl::InternalError(
            absl::StrCat("CUPTI does not know when ", activity.name, " ran"));
      }
    }
    return std::exchange(records.activities, {});
  }

 private:
  const Cupti* cupti_;
  int enabled_ = 0;
};

absl::Status Synchronize(absl::Span<const int> ordinals, absl::string_view what) {
  absl::Status s;
  for (const int ordinal : ordinals) {
    const ScopedDevice current(ordinal);
    s.Update(current.status());
    s.Update(ToStatus(cudaDeviceSynchronize(), what));
  }
  return s;
}

absl::StatusOr<std::vector<std::pair<uint64_t, Activity>>> Record(
    absl::Span<const int> ordinals, absl::FunctionRef<absl::Status()> call) {
  const absl::StatusOr<const Cupti*> cupti = LoadCupti();
  if (!cupti.ok()) return cupti.status();
  absl::Status s = Synchronize(ordinals, "before the call");
  if (!s.ok()) return s;
  Recorder recorder(*cupti);
  if (s = recorder.Begin(); !s.ok()) return s;
  const absl::Status called = call();
  s = Synchronize(ordinals, "the call");
  if (!called.ok()) return called;
  if (!s.ok()) return s;
  return recorder.Take();
}

struct OwnStream {
  cudaStream_t stream = nullptr;
  ~OwnStream() {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
};

}  // namespace

double SpanOf(const std::vector<Activity>& timeline) {
  double end = 0;
  for (const Activity& a : timeline) end = std::max(end, a.begin + a.seconds);
  return end;
}

absl::StatusOr<std::vector<Activity>> TimelineFrom(std::vector<std::pair<uint64_t, Activity>> began,
                                                   size_t before) {
  if (began.size() < before) return absl::InternalError("CUPTI has lost activity records");
  std::stable_sort(began.begin(), began.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Activity> timeline;
  for (size_t i = before; i < began.size(); ++i) {
    timeline.push_back(std::move(began[i].second));
    timeline.back().begin = 1e-9 * static_cast<double>(began[i].first - began[before].first);
  }
  return timeline;
}

absl::StatusOr<std::vector<Activity>> TimelineOf(
    int ordinal, absl::FunctionRef<absl::Status(void* stream)> enqueue, size_t before) {
  const ScopedDevice current(ordinal);
  if (!current.status().ok()) return current.status();
  OwnStream own;
  absl::Status s = ToStatus(cudaStreamCreateWithFlags(&own.stream, cudaStreamNonBlocking),
                            "cudaStreamCreateWithFlags");
  if (!s.ok()) return s;
  auto recorded = Record({ordinal}, [&] { return enqueue(own.stream); });
  if (!recorded.ok()) return recorded.status();
  return TimelineFrom(*std::move(recorded), before);
}

absl::StatusOr<std::vector<Activity>> TimelineOfGpus(absl::Span<const int> ordinals,
                                                     absl::FunctionRef<absl::Status()> call) {
  auto recorded = Record(ordinals, call);
  if (!recorded.ok()) return recorded.status();
  return TimelineFrom(*std::move(recorded), 0);
}

}  // namespace attnlab::profiling
