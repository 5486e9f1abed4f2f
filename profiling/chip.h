// The metrics of a kind of GPU, by the name of its chip ("GH100" is the chip of an H100 and an
// H200): their names, and how many passes over a kernel collecting them takes. Needs CUPTI, but no
// GPU and no driver.
//
//   absl::StatusOr<Chip> chip = Chip::Open("GH100");
//   if (chip->Has("dram__bytes_read.sum")) …
//   absl::StatusOr<int64_t> passes = chip->Passes({"dram__bytes_read.sum", "lts__t_bytes.sum"});
//
// A metric is a base name, such as "dram__bytes_read", and a roll-up over the units that count it:
// ".sum", ".avg", ".max", ".sum.per_second", ".avg.pct_of_peak_sustained_elapsed" and so on.
//
// Not thread-safe.
#ifndef PROFILING_CHIP_H_
#define PROFILING_CHIP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace attnlab::profiling {

class Chip {
 public:
  // The chips that this CUPTI knows. Unavailable without CUPTI; the message says where it was
  // looked for.
  static absl::StatusOr<std::vector<std::string>> Names();

  // Ignores case. NotFound, with the known and the nearest names, for an unknown name.
  // Unimplemented if CUPTI knows the name but has no counters for it. Also the errors of Names().
  static absl::StatusOr<Chip> Open(absl::string_view name);

  Chip(Chip&& other) noexcept;
  Chip& operator=(Chip&& other) = delete;
  ~Chip();

  // Spelled as in Names().
  const std::string& name() const { return name_; }

  // `metric` is a full metric name: "dram__bytes_read" alone is not one.
  bool Has(const std::string& metric) const;

  // OK, or NotFound with the metrics of that base name, or with similar names.
  absl::Status Check(const std::string& metric) const;

  // One sentence on a base name or a metric. NotFound if the chip has none of that name.
  absl::StatusOr<std::string> Description(const std::string& metric) const;

  // BaseNames() is sorted. MetricsOf() returns the metrics of one base name whose names contain
  // `text`, ignoring case.
  absl::StatusOr<std::vector<std::string>> BaseNames() const;
  absl::StatusOr<std::vector<std::string>> MetricsOf(const std::string& base_name,
                                                     absl::string_view text = "") const;

  // How often a kernel has to run to collect all of them; 0 for none. NotFound for a metric that
  // the chip does not have. Takes some milliseconds.
  absl::StatusOr<int64_t> Passes(const std::vector<std::string>& metrics) const;

  // The metrics of one base name, sorted, with the passes that each takes alone. `passes` is
  // nullopt for metrics that CUPTI names but cannot collect.
  struct Metric {
    std::string name;
    std::optional<int64_t> passes;
  };
  struct Family {
    std::string base_name, description;
    std::vector<Metric> metrics;
  };

  // Calls `take` for every base name, in order, with its metrics whose names contain `text`, until
  // `take` returns false. Base names without such metrics are skipped. Takes some milliseconds per
  // base name: a chip has thousands of base names, and tens of metrics for each.
  //
  //   chip.ForEachFamily("dram__bytes", [&](const Chip::Family& f) { …; return --rows > 0; });
  absl::Status ForEachFamily(absl::string_view text,
                             absl::FunctionRef<bool(const Family&)> take) const;

 private:
  struct Host;  // the CUPTI object
  Chip(std::string name, std::unique_ptr<Host> host);

  std::vector<Metric> WithPasses(const std::string& base,
                                 const std::vector<std::string>& metrics) const;
  void FindPasses(absl::Span<const std::string> metrics,
                  std::map<std::string, std::optional<int64_t>>* passes) const;
  std::optional<int64_t> PassesOf(std::vector<std::string> metrics) const;
  std::string NamesLike(const std::string& metric) const;

  std::string name_;
  std::unique_ptr<Host> host_;
};

}  // namespace attnlab::profiling

#endif  // PROFILING_CHIP_H_
