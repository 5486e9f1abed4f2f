#include "profiling/chip.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "profiling/metric_config.h"

namespace attnlab::profiling {

absl::StatusOr<std::vector<std::string>> Chip::Names() {
  const absl::StatusOr<const Cupti*> cupti = LoadCupti();
  if (!cupti.ok()) return cupti.status();
  auto params = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_GetSupportedChips_Params);
  if (absl::Status s = (*cupti)->Check((*cupti)->cuptiProfilerHostGetSupportedChips(&params),
                                       "cuptiProfilerHostGetSupportedChips");
      !s.ok()) {
    return s;
  }
  std::vector<std::string> names(params.ppChipNames, params.ppChipNames + params.numChips);
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<Chip> Chip::Open(const std::string& name) {
  const absl::StatusOr<std::vector<std::string>> names = Names();
  if (!names.ok()) return names.status();
  if (std::find(names->begin(), names->end(), name) == names->end()) {
    return absl::NotFoundError(
        absl::StrCat("chip: ", name, " is not one of ", absl::StrJoin(*names, ", ")));
  }
  const Cupti* cupti = *LoadCupti();
  auto params = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params);
  params.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  params.pChipName = name.c_str();
  if (absl::Status s =
          cupti->Check(cupti->cuptiProfilerHostInitialize(&params), "cuptiProfilerHostInitialize");
      !s.ok()) {
    return s;
  }
  return Chip(cupti, name, params.pHostObject);
}

Chip::Chip(Chip&& other) noexcept
    : cupti_(other.cupti_), name_(std::move(other.name_)), host_(other.host_) {
  other.host_ = nullptr;
}

Chip::~Chip() {
  if (host_ == nullptr) return;
  auto params = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params);
  params.pHostObject = host_;
  cupti_->cuptiProfilerHostDeinitialize(&params);
}

absl::Status Chip::NoSuchMetric(const std::string& metric) const {
  return absl::NotFoundError(absl::StrCat("metric: ", name_, " has no ", metric));
}

bool Chip::Has(const std::string& metric) const { return Check(metric).ok(); }

absl::Status Chip::Check(const std::string& metric) const {
  const absl::StatusOr<std::string> description = Description(metric);
  if (!description.ok()) return description.status();
  if (metric.find('.') != std::string::npos) return absl::OkStatus();
  const absl::StatusOr<std::vector<std::string>> metrics = MetricsOf(metric);
  if (!metrics.ok()) return metrics.status();
  return absl::NotFoundError(absl::StrCat(
      "metric: ", metric, " is the base of metrics, not one: ", absl::StrJoin(*metrics, ", ")));
}

absl::StatusOr<std::string> Chip::Description(const std::string& metric) const {
  auto params = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_GetMetricProperties_Params);
  params.pHostObject = host_;
  params.pMetricName = metric.c_str();
  const CUptiResult result = cupti_->cuptiProfilerHostGetMetricProperties(&params);
  if (result == CUPTI_ERROR_INVALID_METRIC_NAME) return NoSuchMetric(metric);
  if (absl::Status s = cupti_->Check(result, "cuptiProfilerHostGetMetricProperties"); !s.ok()) {
    return s;
  }
  return std::string(params.pDescription == nullptr ? "" : params.pDescription);
}

absl::StatusOr<std::vector<std::string>> Chip::BaseNames() const {
  std::vector<std::string> names;
  for (const CUpti_MetricType type :
       {CUPTI_METRIC_TYPE_COUNTER, CUPTI_METRIC_TYPE_RATIO, CUPTI_METRIC_TYPE_THROUGHPUT}) {
    auto params = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_GetBaseMetrics_Params);
    params.pHostObject = host_;
    params.metricType = type;
    if (absl::Status s = cupti_->Check(cupti_->cuptiProfilerHostGetBaseMetrics(&params),
                                       "cuptiProfilerHostGetBaseMetrics");
        !s.ok()) {
      return s;
    }
    names.insert(names.end(), params.ppMetricNames, params.ppMetricNames + params.numMetrics);
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::vector<std::string>> Chip::MetricsOf(const std::string& base_name) const {
  auto properties = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_GetMetricProperties_Params);
  properties.pHostObject = host_;
  properties.pMetricName = base_name.c_str();
  const CUptiResult result = cupti_->cuptiProfilerHostGetMetricProperties(&properties);
  if (result == CUPTI_ERROR_INVALID_METRIC_NAME) return NoSuchMetric(base_name);
  if (absl::Status s = cupti_->Check(result, "cuptiProfilerHostGetMetricProperties"); !s.ok()) {
    return s;
  }
  auto params = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_GetSubMetrics_Params);
  params.pHostObject = host_;
  params.metricType = properties.metricType;
  params.pMetricName = base_name.c_str();
  if (absl::Status s = cupti_->Check(cupti_->cuptiProfilerHostGetSubMetrics(&params),
                                     "cuptiProfilerHostGetSubMetrics");
      !s.ok()) {
    return s;
  }
  std::vector<std::string> metrics;
  for (size_t i = 0; i < params.numOfSubmetrics; ++i) {
    metrics.push_back(absl::StrCat(base_name, params.ppSubMetrics[i]));
  }
  std::sort(metrics.begin(), metrics.end());
  return metrics;
}

absl::StatusOr<int64_t> Chip::Passes(const std::vector<std::string>& metrics) const {
  if (metrics.empty()) return 0;
  for (const std::string& metric : metrics) {
    if (absl::Status s = Check(metric); !s.ok()) return s;
  }
  const auto config = MetricConfig::Create(cupti_, name_, metrics);
  if (!config.ok()) return config.status();
  return (*config)->passes();
}

}  // namespace attnlab::profiling
