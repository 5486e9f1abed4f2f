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
  // Those that this CUPTI knows. Unavailable where there is no CUPTI, with where it was looked for.
  static absl::StatusOr<std::vector<std::string>> Names();

  // NotFound, with the names that there are and the nearest, for another name; its case does not
  // matter. Unimplemented where CUPTI has the name and no counters. Errors of Names().
  static absl::StatusOr<Chip> Open(absl::string_view name);

  Chip(Chip&& other) noexcept;
  Chip& operator=(Chip&& other) = delete;
  ~Chip();

  // As Names() has it.
  const std::string& name() const { return name_; }

  // A metric, whole: "dram__bytes_read" alone is none.
  bool Has(const std::string& metric) const;

  // OK, or NotFound that says what there is in its place, or has a name like it.
  absl::Status Check(const std::string& metric) const;

  // In a sentence, of a base name or a metric. NotFound where the chip has none of that name.
  absl::StatusOr<std::string> Description(const std::string& metric) const;

  // All base names, sorted; and the metrics that there are of one, with `text` in their names, in
  // any case.
  absl::StatusOr<std::vector<std::string>> BaseNames() const;
  absl::StatusOr<std::vector<std::string>> MetricsOf(const std::string& base_name,
                                                     absl::string_view text = "") const;

  // How often a kernel has to run for all of them; 0 for none. NotFound for a metric that the chip
  // does not have. Some milliseconds.
  absl::StatusOr<int64_t> Passes(const std::vector<std::string>& metrics) const;

  // Metrics of one base name, sorted, and the passes that each takes when it is asked for alone;
  // nothing for some that CUPTI names, and cannot collect.
  struct Metric {
    std::string name;
    std::optional<int64_t> passes;
  };
  struct Family {
    std::string base_name, description;
    std::vector<Metric> metrics;
  };

  // Of every base name, in their order, its metrics with `text` in their names, until `take`
  // returns false; base names that have none are left out. Some milliseconds each: a chip
  // has thousands of base names, and tens of metrics of one.
  //
  //   chip.ForEachFamily("dram__bytes", [&](const Chip::Family& f) { …; return --rows > 0; });
  absl::Status ForEachFamily(absl::string_view text,
                             absl::FunctionRef<bool(const Family&)> take) const;

 private:
  struct Host;  // CUPTI's object
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
