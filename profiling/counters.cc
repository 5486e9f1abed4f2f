#include "profiling/counters.h"

#include <cuda.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/call.h"
#include "attention/cuda/driver_function.h"
#include "cuda_runtime_api.h"
#include "profiling/chip.h"
#include "profiling/cupti.h"
#include "profiling/metric_config.h"
#include "profiling/quantities.h"

namespace attnlab::profiling {
namespace {

using cuda_backend::ScopedDevice;

constexpr char kRange[] = "attnlab";

absl::StatusOr<CUcontext> CurrentContext() {
  const auto get =
      cuda_backend::DriverFunction<decltype(&cuCtxGetCurrent)>("cuCtxGetCurrent", 4000);
  if (!get.ok()) return get.status();
  CUcontext context = nullptr;
  const absl::Status s = cuda_backend::DriverStatus((*get)(&context), "cuCtxGetCurrent");
  if (!s.ok()) return s;
  if (context == nullptr) return absl::InternalError("cuCtxGetCurrent: no context");
  return context;
}

// OK if the GPU can be profiled, otherwise the reason.
absl::Status CheckSupported(const Cupti& cupti, int ordinal) {
  auto params = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_DeviceSupported_Params);
  params.cuDevice = ordinal;
  params.api = CUPTI_PROFILER_RANGE_PROFILING;
  absl::Status s =
      cupti.Check(cupti.cuptiProfilerDeviceSupported(&params), "cuptiProfilerDeviceSupported");
  if (!s.ok() || params.isSupported == CUPTI_PROFILER_CONFIGURATION_SUPPORTED) return s;
  const std::pair<CUpti_Profiler_Support_Level, const char*> reasons[] = {
      {params.architecture, "its architecture"},
      {params.sli, "SLI"},
      {params.vGpu, "its host, which forbids it on a virtual GPU"},
      {params.confidentialCompute, "confidential computing"},
      {params.cmp, "its kind, a mining GPU"},
      {params.wsl, "WSL"},
  };
  for (const auto& [level, reason] : reasons) {
    if (level == CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED ||
        level == CUPTI_PROFILER_CONFIGURATION_DISABLED) {
      return absl::UnimplementedError(
          absl::StrCat("device: cuda:", ordinal, " cannot be profiled because of ", reason));
    }
  }
  return absl::UnimplementedError(absl::StrCat("device: cuda:", ordinal, " cannot be profiled"));
}

struct OpenedGpu {
  const Cupti* cupti;
  std::string chip;
};

absl::StatusOr<OpenedGpu> OpenGpu(int ordinal) {
  const absl::StatusOr<const Cupti*> cupti = LoadCupti();
  if (!cupti.ok()) return cupti.status();
  const auto gpus = cuda_backend::Devices();
  if (!gpus.ok()) return gpus.status();
  if (ordinal < 0 || ordinal >= static_cast<int64_t>(gpus->size())) {
    return absl::UnavailableError(
        absl::StrCat("device: there is no cuda:", ordinal, ", but ", gpus->size(), " GPUs"));
  }
  const ScopedDevice current(ordinal);
  if (!current.status().ok()) return current.status();
  absl::Status s = cuda_backend::ToStatus(cudaFree(nullptr), absl::StrCat("cuda:", ordinal));
  if (!s.ok()) return s;

  auto initialize = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Initialize_Params);
  s = (*cupti)->Check((*cupti)->cuptiProfilerInitialize(&initialize), "cuptiProfilerInitialize");
  if (!s.ok()) return s;
  if (s = CheckSupported(**cupti, ordinal); !s.ok()) return s;
  auto chip = ATTNLAB_CUPTI_PARAMS(CUpti_Device_GetChipName_Params);
  chip.deviceIndex = static_cast<size_t>(ordinal);
  s = (*cupti)->Check((*cupti)->cuptiDeviceGetChipName(&chip), "cuptiDeviceGetChipName");
  if (!s.ok()) return s;
  return OpenedGpu{*cupti, chip.pChipName};
}

}  // namespace

absl::StatusOr<std::string> ChipOf(int ordinal) {
  const absl::StatusOr<OpenedGpu> gpu = OpenGpu(ordinal);
  if (!gpu.ok()) return gpu.status();
  return gpu->chip;
}

class Counters::Impl {
 public:
  Impl(const OpenedGpu& gpu, int ordinal, std::vector<Counted> counted)
      : cupti_(gpu.cupti), ordinal_(ordinal), chip_(gpu.chip), counted_(std::move(counted)) {}
  ~Impl();

  const std::string& chip() const { return chip_; }
  int64_t passes() const { return config_->passes(); }
  bool done() const { return done_; }

  absl::Status Start();
  absl::Status BeginPass();
  absl::Status EndPass(bool keep);
  absl::StatusOr<std::vector<Value>> Read();

 private:
  absl::Status ClearImage();
  absl::Status Configure();
  absl::Status BeginAnew();

  const Cupti* cupti_;
  int ordinal_;
  std::string chip_;
  std::vector<Counted> counted_;
  std::unique_ptr<MetricConfig> config_;
  CUpti_RangeProfiler_Object* profiler_ = nullptr;
  std::vector<uint8_t> image_;  // the counter data
  bool in_pass_ = false, done_ = false;
};

absl::Status Counters::Impl::Start() {
  absl::StatusOr<std::unique_ptr<MetricConfig>> config =
      MetricConfig::Create(cupti_, chip_, MetricsOf(counted_));
  if (!config.ok()) return config.status();
  config_ = *std::move(config);

  const ScopedDevice current(ordinal_);
  if (!current.status().ok()) return current.status();
  const absl::StatusOr<CUcontext> context = CurrentContext();
  if (!context.ok()) return context.status();
  auto enable = ATTNLAB_CUPTI_PARAMS(CUpti_RangeProfiler_Enable_Params);
  enable.ctx = *context;
  absl::Status s =
      cupti_->Check(cupti_->cuptiRangeProfilerEnable(&enable), "cuptiRangeProfilerEnable");
  if (!s.ok()) return s;
  profiler_ = enable.pRangeProfilerObject;

  std::vector<const char*> names(config_->names().begin(), config_->names().end());
  auto size = ATTNLAB_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params);
  size.pRangeProfilerObject = profiler_;
  size.pMetricNames = names.data();
  size.numMetrics = names.size();
  size.maxNumOfRanges = 1;
  size.maxNumRangeTreeNodes = 1;
  s = cupti_->Check(cupti_->cuptiRangeProfilerGetCounterDataSize(&size),
                    "cuptiRangeProfilerGetCounterDataSize");
  if (!s.ok()) return s;
  image_.resize(size.counterDataSize);
  if (s = ClearImage(); !s.ok()) return s;
  return Configure();
}

absl::Status Counters::Impl::ClearImage() {
  auto params = ATTNLAB_CUPTI_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params);
  params.pRangeProfilerObject = profiler_;
  params.counterDataSize = image_.size();
  params.pCounterData = image_.data();
  return cupti_->Check(cupti_->cuptiRangeProfilerCounterDataImageInitialize(&params),
                       "cuptiRangeProfilerCounterDataImageInitialize");
}

// The caller defines the range and replays it, because it may contain several kernels.
absl::Status Counters::Impl::Configure() {
  auto params = ATTNLAB_CUPTI_PARAMS(CUpti_RangeProfiler_SetConfig_Params);
  params.pRangeProfilerObject = profiler_;
  params.configSize = config_->image().size();
  params.pConfig = config_->image().data();
  params.counterDataImageSize = image_.size();
  params.pCounterDataImage = image_.data();
  params.range = CUPTI_UserRange;
  params.replayMode = CUPTI_UserReplay;
  params.maxRangesPerPass = 1;
  params.numNestingLevels = 1;
  params.minNestingLevel = 1;
  params.passIndex = 0;
  params.targetNestingLevel = 1;
  return cupti_->Check(cupti_->cuptiRangeProfilerSetConfig(&params), "cuptiRangeProfilerSetConfig");
}

Counters::Impl::~Impl() {
  if (profiler_ == nullptr) return;
  const ScopedDevice current(ordinal_);
  auto params = ATTNLAB_CUPTI_PARAMS(CUpti_RangeProfiler_Disable_Params);
  params.pRangeProfilerObject = profiler_;
  cupti_->cuptiRangeProfilerDisable(&params);
}

absl::Status Counters::Impl::BeginPass() {
  if (in_pass_) return absl::FailedPreconditionError("Begin: a pass has begun already");
  if (done_) return absl::FailedPreconditionError("Begin: all passes are done; Read() comes next");
  const ScopedDevice current(ordinal_);
  if (!current.status().ok()) return current.status();
  // An error from before is not an error of this pass.
  absl::Status s = cuda_backend::ToStatus(cudaPeekAtLastError(), "before a pass");
  if (s.ok()) s = cuda_backend::ToStatus(cudaDeviceSynchronize(), "before a pass");
  if (!s.ok()) return s;
  auto start = ATTNLAB_CUPTI_PARAMS(CUpti_RangeProfiler_Start_Params);
  start.pRangeProfilerObject = profiler_;
  s = cupti_->Check(cupti_->cuptiRangeProfilerStart(&start), "cuptiRangeProfilerStart");
  if (!s.ok()) return s;
  auto push = ATTNLAB_CUPTI_PARAMS(CUpti_RangeProfiler_PushRange_Params);
  push.pRangeProfilerObject = profiler_;
  push.pRangeName = kRange;
  s = cupti_->Check(cupti_->cuptiRangeProfilerPushRange(&push), "cuptiRangeProfilerPushRange");
  if (!s.ok()) {
    auto stop = ATTNLAB_CUPTI_PARAMS(CUpti_RangeProfiler_Stop_Params);
    stop.pRangeProfilerObject = profiler_;
    cupti_->cuptiRangeProfilerStop(&stop);
    return s;
  }
  in_pass_ = true;
  return absl::OkStatus();
}

absl::Status Counters::Impl::EndPass(bool keep) {
  in_pass_ = false;
  // The range ends even if something failed.
  const ScopedDevice current(ordinal_);
  // Launch errors, which synchronising does not return, then errors of the kernels.
  absl::Status ran = cuda_backend::ToStatus(cudaGetLastError(), "a launch of the pass");
  const absl::Status waited = cuda_backend::ToStatus(cudaDeviceSynchronize(), "the pass");
  if (ran.ok()) ran = waited;
  auto pop = ATTNLAB_CUPTI_PARAMS(CUpti_RangeProfiler_PopRange_Params);
  pop.pRangeProfilerObject = profiler_;
  const absl::Status popped =
      cupti_->Check(cupti_->cuptiRangeProfilerPopRange(&pop), "cuptiRangeProfilerPopRange");
  auto stop = ATTNLAB_CUPTI_PARAMS(CUpti_RangeProfiler_Stop_Params);
  stop.pRangeProfilerObject = profiler_;
  const absl::Status stopped =
      cupti_->Check(cupti_->cuptiRangeProfilerStop(&stop), "cuptiRangeProfilerStop");
  for (const absl::Status& s : {current.status(), ran, popped, stopped}) {
    if (s.ok() && keep) continue;
    // Drop this pass and all before it.
    const absl::Status anew = BeginAnew();
    return s.ok() ? anew : s;
  }
  done_ = stop.isAllPassSubmitted != 0;
  return absl::OkStatus();
}

absl::Status Counters::Impl::BeginAnew() {
  done_ = false;
  const absl::Status s = ClearImage();
  return s.ok() ? Configure() : s;
}

absl::StatusOr<std::vector<Value>> Counters::Impl::Read() {
  if (!done_) return absl::FailedPreconditionError("Read: not all passes are done");
  const ScopedDevice current(ordinal_);
  if (!current.status().ok()) return current.status();
  auto decode = ATTNLAB_CUPTI_PARAMS(CUpti_RangeProfiler_DecodeData_Params);
  decode.pRangeProfilerObject = profiler_;
  absl::Status s =
      cupti_->Check(cupti_->cuptiRangeProfilerDecodeData(&decode), "cuptiRangeProfilerDecodeData");
  if (!s.ok()) return s;
  if (decode.numOfRangeDropped != 0) {
    return absl::InternalError("cuptiRangeProfilerDecodeData: the range was dropped");
  }
  const absl::StatusOr<std::vector<double>> counted = config_->Evaluate(image_, 0);
  if (!counted.ok()) return counted.status();

  std::vector<Value> values;
  const std::vector<std::string>& metrics = config_->metrics();
  for (const Counted& c : counted_) {
    Value value = {c.name, c.unit, 0};
    for (const std::string& metric : c.metrics) {
      const auto at = std::find(metrics.begin(), metrics.end(), metric) - metrics.begin();
      value.value += (*counted)[static_cast<size_t>(at)] * c.scale;
    }
    values.push_back(std::move(value));
  }
  if (s = BeginAnew(); !s.ok()) return s;
  return values;
}

absl::StatusOr<std::unique_ptr<Counters>> Counters::Open(int ordinal, absl::string_view set,
                                                         const std::vector<std::string>& metrics) {
  if (set.empty() && metrics.empty()) {
    return absl::InvalidArgumentError("set, metrics: both are empty");
  }
  const absl::StatusOr<OpenedGpu> gpu = OpenGpu(ordinal);
  if (!gpu.ok()) return gpu.status();
  const absl::StatusOr<Chip> chip = Chip::Open(gpu->chip);
  if (!chip.ok()) return chip.status();
  absl::StatusOr<std::vector<Counted>> counted = Resolve(*chip, set, metrics);
  if (!counted.ok()) return counted.status();
  auto impl = std::make_unique<Impl>(*gpu, ordinal, *std::move(counted));
  if (absl::Status s = impl->Start(); !s.ok()) return s;
  return absl::WrapUnique(new Counters(std::move(impl)));
}

Counters::Counters(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Counters::~Counters() = default;

const std::string& Counters::chip() const { return impl_->chip(); }
int64_t Counters::Passes() const { return impl_->passes(); }
bool Counters::Done() const { return impl_->done(); }

absl::StatusOr<Counters::Pass> Counters::Begin() {
  if (absl::Status s = impl_->BeginPass(); !s.ok()) return s;
  return Pass(this);
}

absl::StatusOr<std::vector<Value>> Counters::Read() { return impl_->Read(); }

Counters::Pass::~Pass() {
  if (counters_ != nullptr) counters_->impl_->EndPass(/*keep=*/false).IgnoreError();
}

absl::Status Counters::Pass::End() {
  if (counters_ == nullptr) return absl::FailedPreconditionError("End: the pass has ended already");
  return std::exchange(counters_, nullptr)->impl_->EndPass(/*keep=*/true);
}

}  // namespace attnlab::profiling
