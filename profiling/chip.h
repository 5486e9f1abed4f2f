// The metrics that a kind of GPU has, by the name of its chip ("GH100" is that of an H100 and an
// H200): what they are called, and how many passes over a kernel it takes to collect some of them.
// Needs CUPTI, but no GPU and no driver.
//
//   absl::StatusOr<Chip> chip = Chip::Open("GH100");
//   if (chip->Has("dram__bytes_read.sum")) …
//   absl::StatusOr<int64_t> passes = chip->Passes({"dram__bytes_read.sum", "lts__t_bytes.sum"});
//
// A metric is a base name, "dram__bytes_read", with what is made of the units that counted it:
// ".sum", ".avg", ".max", ".sum.per_second", ".avg.pct_of_peak_sustained_elapsed" and so on.
//
// Not for several threads at a time.
#ifndef PROFILING_CHIP_H_
#define PROFILING_CHIP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "profiling/cupti.h"

namespace attnlab::profiling {

class Chip {
 public:
  // Those that this CUPTI knows. Errors are LoadCupti()'s.
  static absl::StatusOr<std::vector<std::string>> Names();

  // NotFound, with the names that there are, for another name; LoadCupti()'s errors.
  static absl::StatusOr<Chip> Open(const std::string& name);

  Chip(Chip&& other) noexcept;
  Chip& operator=(Chip&& other) = delete;
  ~Chip();

  const std::string& name() const { return name_; }

  // A metric, whole: "dram__bytes_read" alone is none.
  bool Has(const std::string& metric) const;

  // OK, or NotFound that says what there is in its place.
  absl::Status Check(const std::string& metric) const;

  // In a sentence, of a base name or a metric. NotFound where the chip has none of that name.
  absl::StatusOr<std::string> Description(const std::string& metric) const;

  // All base names, sorted; and the metrics that there are of one.
  absl::StatusOr<std::vector<std::string>> BaseNames() const;
  absl::StatusOr<std::vector<std::string>> MetricsOf(const std::string& base_name) const;

  // How often a kernel has to run for all of them; 0 for none. NotFound for a metric that the chip
  // does not have.
  absl::StatusOr<int64_t> Passes(const std::vector<std::string>& metrics) const;

 private:
  Chip(const Cupti* cupti, std::string name, CUpti_Profiler_Host_Object* host)
      : cupti_(cupti), name_(std::move(name)), host_(host) {}

  absl::Status NoSuchMetric(const std::string& metric) const;

  const Cupti* cupti_;
  std::string name_;
  CUpti_Profiler_Host_Object* host_;
};

}  // namespace attnlab::profiling

#endif  // PROFILING_CHIP_H_
