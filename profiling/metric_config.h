// Metrics that are collected together: what the GPU is to be told, how often a kernel has to run
// for it, and their values from what it counted.
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
  // Of a chip that CUPTI knows, and metrics that it has, at least one.
  static absl::StatusOr<std::unique_ptr<MetricConfig>> Create(const Cupti* cupti,
                                                              const std::string& chip,
                                                              std::vector<std::string> metrics);
  ~MetricConfig();
  MetricConfig(const MetricConfig&) = delete;
  MetricConfig& operator=(const MetricConfig&) = delete;

  const std::vector<std::string>& metrics() const { return metrics_; }
  int64_t passes() const { return passes_; }

  // As CUPTI wants them: names, and the image of the configuration.
  absl::Span<const char* const> names() const { return names_; }
  absl::Span<const uint8_t> image() const { return image_; }

  // In the order of metrics(), of a range in what was counted.
  absl::StatusOr<std::vector<double>> Evaluate(absl::Span<const uint8_t> counted,
                                               size_t range) const;

 private:
  MetricConfig(const Cupti* cupti, std::vector<std::string> metrics);
  absl::Status Initialize(const std::string& chip);

  const Cupti* cupti_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  std::vector<std::string> metrics_;
  std::vector<const char*> names_;  // into metrics_
  std::vector<uint8_t> image_;
  int64_t passes_ = 0;
};

}  // namespace attnlab::profiling

#endif  // PROFILING_METRIC_CONFIG_H_
