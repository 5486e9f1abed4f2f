// Metrics that are collected together: the configuration for the GPU, how often a kernel has to
// run, and the values computed from the counter data.
#ifndef PROFILING_METRIC_CONFIG_H_
#define PROFILING_METRIC_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "profiling/cupti.h"

namespace attnlab::profiling {

class MetricConfig {
 public:
  // For a chip that CUPTI knows, and at least one metric, all of which it has.
  static absl::StatusOr<std::unique_ptr<MetricConfig>> Create(const Cupti* cupti,
                                                              const std::string& chip,
                                                              std::vector<std::string> metrics);
  ~MetricConfig();
  MetricConfig(const MetricConfig&) = delete;
  MetricConfig& operator=(const MetricConfig&) = delete;

  const std::vector<std::string>& metrics() const { return metrics_; }
  int64_t passes() const { return passes_; }

  // In CUPTI's form: names, and the image of the configuration.
  absl::Span<const char* const> names() const { return names_; }
  absl::Span<const uint8_t> image() const { return image_; }

  // The values of one range in the counter data, in the order of metrics().
  absl::StatusOr<std::vector<double>> Evaluate(absl::Span<const uint8_t> counted,
                                               size_t range) const;

 private:
  MetricConfig(const Cupti* cupti, std::vector<std::string> metrics);
  absl::Status Initialize(const std::string& chip);

  const Cupti* cupti_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  std::vector<std::string> metrics_;
  std::vector<const char*> names_;  // pointers into metrics_
  std::vector<uint8_t> image_;
  int64_t passes_ = 0;
};

}  // namespace attnlab::profiling

#endif  // PROFILING_METRIC_CONFIG_H_
