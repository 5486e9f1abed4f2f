#include "profiling/metric_config.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"

namespace attnlab::profiling {

MetricConfig::MetricConfig(const Cupti* cupti, std::vector<std::string> metrics)
    : cupti_(cupti), metrics_(std::move(metrics)) {
  for (const std::string& metric : metrics_) names_.push_back(metric.c_str());
}

MetricConfig::~MetricConfig() {
  if (host_ == nullptr) return;
  auto params = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params);
  params.pHostObject = host_;
  cupti_->cuptiProfilerHostDeinitialize(&params);
}

absl::StatusOr<std::unique_ptr<MetricConfig>> MetricConfig::Create(
    const Cupti* cupti, const std::string& chip, std::vector<std::string> metrics) {
  auto config = absl::WrapUnique(new MetricConfig(cupti, std::move(metrics)));
  if (absl::Status s = config->Initialize(chip); !s.ok()) return s;
  return config;
}

absl::Status MetricConfig::Initialize(const std::string& chip) {
  auto init = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params);
  init.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  init.pChipName = chip.c_str();
  absl::Status s =
      cupti_->Check(cupti_->cuptiProfilerHostInitialize(&init), "cuptiProfilerHostInitialize");
  if (!s.ok()) return s;
  host_ = init.pHostObject;

  auto add = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
  add.pHostObject = host_;
  add.ppMetricNames = names_.data();
  add.numMetrics = names_.size();
  s = cupti_->Check(cupti_->cuptiProfilerHostConfigAddMetrics(&add),
                    "cuptiProfilerHostConfigAddMetrics");
  if (!s.ok()) return s;

  auto size = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params);
  size.pHostObject = host_;
  s = cupti_->Check(cupti_->cuptiProfilerHostGetConfigImageSize(&size),
                    "cuptiProfilerHostGetConfigImageSize");
  if (!s.ok()) return s;
  image_.resize(size.configImageSize);

  auto get = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params);
  get.pHostObject = host_;
  get.configImageSize = image_.size();
  get.pConfigImage = image_.data();
  s = cupti_->Check(cupti_->cuptiProfilerHostGetConfigImage(&get),
                    "cuptiProfilerHostGetConfigImage");
  if (!s.ok()) return s;

  auto passes = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params);
  passes.configImageSize = image_.size();
  passes.pConfigImage = image_.data();
  s = cupti_->Check(cupti_->cuptiProfilerHostGetNumOfPasses(&passes),
                    "cuptiProfilerHostGetNumOfPasses");
  passes_ = static_cast<int64_t>(passes.numOfPasses);
  return s;
}

absl::StatusOr<std::vector<double>> MetricConfig::Evaluate(absl::Span<const uint8_t> counted,
                                                           size_t range) const {
  std::vector<double> values(metrics_.size());
  // CUPTI takes the names as char**, but does not write to them.
  std::vector<const char*> names = names_;
  auto params = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params);
  params.pHostObject = host_;
  params.pCounterDataImage = counted.data();
  params.counterDataImageSize = counted.size();
  params.rangeIndex = range;
  params.ppMetricNames = names.data();
  params.numMetrics = names.size();
  params.pMetricValues = values.data();
  const absl::Status s = cupti_->Check(cupti_->cuptiProfilerHostEvaluateToGpuValues(&params),
                                       "cuptiProfilerHostEvaluateToGpuValues");
  if (!s.ok()) return s;
  return values;
}

}  // namespace attnlab::profiling
