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

// Names that are offered in place of one that there is not.
constexpr size_t kMostOffered = 3;

// "x.avg.per_second" for "x.max.per_second": which of the roll-ups does not matter for passes.
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

  // Of a base name or a metric; the type with a description. NotFound, with no message, where there
  // is none of that name.
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

  // A base name has properties as metrics do, and may have a dot, as they do.
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
  return absl::NotFoundError(absl::StrCat(
      "metric: ", metric, " is the base of metrics, not one: ", absl::StrJoin(*metrics, ", ")));
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

// "; did you mean a, b or c?", or nothing.
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
    return absl::StrCat("; of ", base, " there are ", absl::StrJoin(rests, ", "));
  }
  std::vector<std::string> near;
  for (const std::string& like : SimilarNames(base, host_->base_names, kMostOffered)) {
    const auto metrics = MetricsOf(like);
    if (!metrics.ok() || metrics->empty()) continue;
    // With the same ending, or one like it, or the first that there is.
    const std::vector<std::string> of_like = SimilarNames(like + rest, *metrics, 1);
    near.push_back(of_like.empty() ? metrics->front() : of_like.front());
  }
  return DidYouMean(near);
}

absl::StatusOr<std::vector<std::string>> Chip::BaseNames() const { return host_->base_names; }

absl::StatusOr<std::vector<std::string>> Chip::MetricsOf(const std::string& base_name,
                                                         absl::string_view text) const {
  const auto properties = host_->Properties(base_name);
  // With the message of the other.
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

// Of a base name there are tens of metrics, most of which are had from the same few counters: to
// ask for them one by one takes ten times as long as this.
std::vector<Chip::Metric> Chip::WithPasses(const std::string& base,
                                           const std::vector<std::string>& metrics) const {
  // Sums, averages, least and most of units are of the same counters: one is asked for.
  const auto asked = [&](const std::string& metric) {
    const std::string representative = Representative(base, metric);
    return Has(representative) ? representative : metric;
  };
  std::map<std::string, std::optional<int64_t>> passes;
  for (const std::string& metric : metrics) passes[asked(metric)];
  std::vector<std::string> names;
  for (const auto& [name, unknown] : passes) names.push_back(name);
  // Those of one denominator beside each other: cycles of a unit that had work, and all cycles, are
  // counters of their own, which often do not go together.
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

// Each alone needs no more than all together: together in one pass is each in one.
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

// Nothing where they cannot be collected.
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
