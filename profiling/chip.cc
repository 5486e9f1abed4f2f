#include "profiling/chip.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "profiling/cupti.h"
#include "profiling/metric_config.h"
#include "tools/lib/similar_names.h"

namespace attnlab::profiling {
namespace {

// Number of similar names that an error suggests.
constexpr size_t kMostOffered = 3;

// Maps "x.max.per_second" to "x.avg.per_second": all roll-ups take the same passes.
std::string Representative(absl::string_view base, absl::string_view metric) {
  for (const absl::string_view rollup : {".max", ".min", ".sum"}) {
    absl::string_view rest = metric.substr(base.size());
    if (absl::ConsumePrefix(&rest, rollup) && (rest.empty() || rest[0] == '.')) {
      return absl::StrCat(base, ".avg", rest);
    }
  }
  return std::string(metric);
}

int DenominatorOf(absl::string_view metric) {
  return absl::StrContains(metric, "active") ? 2 : absl::StrContains(metric, "elapsed") ? 1 : 0;
}

}  // namespace

struct Chip::Host {
  const Cupti* cupti = nullptr;
  CUpti_Profiler_Host_Object* object = nullptr;
  std::vector<std::string> base_names;  // sorted

  ~Host() {
    if (object == nullptr) return;
    auto params = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params);
    params.pHostObject = object;
    cupti->cuptiProfilerHostDeinitialize(&params);
  }

  // Properties of a base name or a metric: the type, and with it a description. NotFound, with no
  // message, if there is none of that name.
  absl::StatusOr<CUpti_Profiler_Host_GetMetricProperties_Params> Properties(
      const std::string& metric) const {
    auto params = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_GetMetricProperties_Params);
    params.pHostObject = object;
    params.pMetricName = metric.c_str();
    const CUptiResult result = cupti->cuptiProfilerHostGetMetricProperties(&params);
    if (result == CUPTI_ERROR_INVALID_METRIC_NAME) return absl::NotFoundError("");
    if (absl::Status s = cupti->Check(result, "cuptiProfilerHostGetMetricProperties"); !s.ok()) {
      return s;
    }
    return params;
  }

  absl::Status FindBaseNames() {
    for (const CUpti_MetricType type :
         {CUPTI_METRIC_TYPE_COUNTER, CUPTI_METRIC_TYPE_RATIO, CUPTI_METRIC_TYPE_THROUGHPUT}) {
      auto params = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_GetBaseMetrics_Params);
      params.pHostObject = object;
      params.metricType = type;
      if (absl::Status s = cupti->Check(cupti->cuptiProfilerHostGetBaseMetrics(&params),
                                        "cuptiProfilerHostGetBaseMetrics");
          !s.ok()) {
        return s;
      }
      base_names.insert(base_names.end(), params.ppMetricNames,
                        params.ppMetricNames + params.numMetrics);
    }
    std::sort(base_names.begin(), base_names.end());
    return absl::OkStatus();
  }

  // Base names have properties as metrics do, and may contain a dot, so only the list tells.
  bool IsBase(const std::string& name) const {
    return std::binary_search(base_names.begin(), base_names.end(), name);
  }
};

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

absl::StatusOr<Chip> Chip::Open(absl::string_view name) {
  const absl::StatusOr<std::vector<std::string>> names = Names();
  if (!names.ok()) return names.status();
  const auto found = std::find_if(names->begin(), names->end(), [&](const std::string& known) {
    return absl::EqualsIgnoreCase(known, name);
  });
  if (found == names->end()) {
    return absl::NotFoundError(absl::StrCat("chip: ", name, " is not one of ",
                                            absl::StrJoin(*names, ", "),
                                            DidYouMean(SimilarNames(name, *names, 1))));
  }
  auto host = std::make_unique<Host>();
  host->cupti = *LoadCupti();
  auto params = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params);
  params.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  params.pChipName = found->c_str();
  if (absl::Status s = host->cupti->Check(host->cupti->cuptiProfilerHostInitialize(&params),
                                          "cuptiProfilerHostInitialize");
      !s.ok()) {
    if (!absl::IsUnimplemented(s)) return s;
    return absl::UnimplementedError(
        absl::StrCat("chip: ", *found, " has no counters that this CUPTI reads"));
  }
  host->object = params.pHostObject;
  if (absl::Status s = host->FindBaseNames(); !s.ok()) return s;
  return Chip(*found, std::move(host));
}

Chip::Chip(std::string name, std::unique_ptr<Host> host)
    : name_(std::move(name)), host_(std::move(host)) {}
Chip::Chip(Chip&& other) noexcept = default;
Chip::~Chip() = default;

bool Chip::Has(const std::string& metric) const {
  return host_->Properties(metric).ok() && !host_->IsBase(metric);
}

absl::Status Chip::Check(const std::string& metric) const {
  const absl::StatusOr<std::string> description = Description(metric);
  if (!description.ok()) return description.status();
  if (Has(metric)) return absl::OkStatus();
  const absl::StatusOr<std::vector<std::string>> metrics = MetricsOf(metric);
  if (!metrics.ok()) return metrics.status();
  return absl::NotFoundError(absl::StrCat("metric: ", metric, " is a base name; its metrics are ",
                                          absl::StrJoin(*metrics, ", ")));
}

absl::StatusOr<std::string> Chip::Description(const std::string& metric) const {
  const auto properties = host_->Properties(metric);
  if (properties.ok()) {
    return properties->pDescription == nullptr ? "" : std::string(properties->pDescription);
  }
  if (!absl::IsNotFound(properties.status())) return properties.status();
  return absl::NotFoundError(
      absl::StrCat("metric: ", name_, " has no ", metric, NamesLike(metric)));
}

// "; did you mean a, b or c?", or "".
std::string Chip::NamesLike(const std::string& metric) const {
  // "TPC.TriageCompute.tpc__warps_active" is a base name.
  const size_t unit = metric.find("__");
  const size_t dot = metric.find('.', unit == std::string::npos ? 0 : unit);
  const std::string base = metric.substr(0, dot);
  const std::string rest = dot == std::string::npos ? ".sum" : metric.substr(dot);
  if (host_->IsBase(base)) {
    const auto metrics = MetricsOf(base);
    if (!metrics.ok()) return "";
    const std::vector<std::string> near = SimilarNames(metric, *metrics, kMostOffered);
    if (!near.empty()) return DidYouMean(near);
    std::vector<absl::string_view> rests;
    for (const std::string& m : *metrics) rests.push_back(absl::string_view(m).substr(base.size()));
    return absl::StrCat("; ", base, " has ", absl::StrJoin(rests, ", "));
  }
  std::vector<std::string> near;
  for (const std::string& like : SimilarNames(base, host_->base_names, kMostOffered)) {
    const auto metrics = MetricsOf(like);
    if (!metrics.ok() || metrics->empty()) continue;
    // The metric with the same ending, else the most similar one, else the first.
    const std::vector<std::string> of_like = SimilarNames(like + rest, *metrics, 1);
    near.push_back(of_like.empty() ? metrics->front() : of_like.front());
  }
  return DidYouMean(near);
}

absl::StatusOr<std::vector<std::string>> Chip::BaseNames() const { return host_->base_names; }

absl::StatusOr<std::vector<std::string>> Chip::MetricsOf(const std::string& base_name,
                                                         absl::string_view text) const {
  const auto properties = host_->Properties(base_name);
  // Description() returns the same error with a message.
  if (!properties.ok()) return Description(base_name).status();
  auto params = ATTNLAB_CUPTI_PARAMS(CUpti_Profiler_Host_GetSubMetrics_Params);
  params.pHostObject = host_->object;
  params.metricType = properties->metricType;
  params.pMetricName = base_name.c_str();
  if (absl::Status s = host_->cupti->Check(host_->cupti->cuptiProfilerHostGetSubMetrics(&params),
                                           "cuptiProfilerHostGetSubMetrics");
      !s.ok()) {
    return s;
  }
  const std::string wanted = absl::AsciiStrToLower(text);
  std::vector<std::string> metrics;
  for (size_t i = 0; i < params.numOfSubmetrics; ++i) {
    std::string metric = absl::StrCat(base_name, params.ppSubMetrics[i]);
    if (absl::StrContains(absl::AsciiStrToLower(metric), wanted)) {
      metrics.push_back(std::move(metric));
    }
  }
  std::sort(metrics.begin(), metrics.end());
  return metrics;
}

absl::StatusOr<int64_t> Chip::Passes(const std::vector<std::string>& metrics) const {
  if (metrics.empty()) return 0;
  for (const std::string& metric : metrics) {
    if (absl::Status s = Check(metric); !s.ok()) return s;
  }
  const auto config = MetricConfig::Create(host_->cupti, name_, metrics);
  if (!config.ok()) return config.status();
  return (*config)->passes();
}

// A base name has tens of metrics, and most of them need the same few counters. Asking for each
// metric separately would take ten times as long.
std::vector<Chip::Metric> Chip::WithPasses(const std::string& base,
                                           const std::vector<std::string>& metrics) const {
  // The sum, average, minimum and maximum over units use the same counters, so one query is enough.
  const auto asked = [&](const std::string& metric) {
    const std::string representative = Representative(base, metric);
    return Has(representative) ? representative : metric;
  };
  std::map<std::string, std::optional<int64_t>> passes;
  for (const std::string& metric : metrics) passes[asked(metric)];
  std::vector<std::string> names;
  for (const auto& [name, unknown] : passes) names.push_back(name);
  // Sort metrics of one denominator next to each other: active cycles and elapsed cycles of a unit
  // are separate counters, which often do not fit in one pass.
  std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return DenominatorOf(a) < DenominatorOf(b);
  });
  FindPasses(names, &passes);
  std::vector<Metric> with_passes;
  for (const std::string& metric : metrics) {
    with_passes.push_back({metric, passes[asked(metric)]});
  }
  return with_passes;
}

// A metric alone never needs more passes than all together: if all fit in one pass, so does each.
void Chip::FindPasses(absl::Span<const std::string> metrics,
                      std::map<std::string, std::optional<int64_t>>* passes) const {
  const std::optional<int64_t> together = PassesOf({metrics.begin(), metrics.end()});
  if (metrics.size() == 1 || together == 1) {
    for (const std::string& metric : metrics) (*passes)[metric] = together;
    return;
  }
  FindPasses(metrics.first(metrics.size() / 2), passes);
  FindPasses(metrics.subspan(metrics.size() / 2), passes);
}

// nullopt if they cannot be collected.
std::optional<int64_t> Chip::PassesOf(std::vector<std::string> metrics) const {
  const auto config = MetricConfig::Create(host_->cupti, name_, std::move(metrics));
  return config.ok() ? std::optional<int64_t>((*config)->passes()) : std::nullopt;
}

absl::Status Chip::ForEachFamily(absl::string_view text,
                                 absl::FunctionRef<bool(const Family&)> take) const {
  for (const std::string& base : host_->base_names) {
    const absl::StatusOr<std::vector<std::string>> metrics = MetricsOf(base, text);
    if (!metrics.ok()) return metrics.status();
    if (metrics->empty()) continue;
    if (!take({base, Description(base).value_or(""), WithPasses(base, *metrics)})) break;
  }
  return absl::OkStatus();
}

}  // namespace attnlab::profiling
