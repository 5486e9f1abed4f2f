// Quantities: what is counted of a kernel, independent of the GPU's names for it. Each has a name,
// a unit and a meaning, and belongs to a set that is collected together.
//
//   absl::StatusOr<Chip> chip = Chip::Open("GH100");
//   absl::StatusOr<std::vector<Counted>> counted = Resolve(*chip, "traffic");
//   // (*counted)[0]: hbm_bytes_read, as the sum of {"dram__bytes_read.sum"}
//
// Metric names change from chip to chip. A quantity lists the known spellings, and the first one
// that a chip has is used. A chip that has none does not count the quantity (there are no TMA bytes
// before Hopper).
#ifndef PROFILING_QUANTITIES_H_
#define PROFILING_QUANTITIES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "profiling/chip.h"

namespace attnlab::profiling {

struct Quantity {
  absl::string_view name;     // "hbm_bytes_read"
  absl::string_view unit;     // "B", "s", "FLOP", "%", "cycles" or "" for a plain number
  absl::string_view meaning;  // a phrase
  absl::string_view set;      // its set, besides "all"
  double scale = 1;           // factor from the metric's unit to this unit
};

// All quantities, set by set.
absl::Span<const Quantity> Quantities();

// "traffic", "l2", "compute", "stalls" and "all".
absl::Span<const absl::string_view> Sets();

// What is counted on a chip: a quantity, or a metric by its own name.
struct Counted {
  std::string name, unit;
  std::vector<std::string> metrics;  // their sum is the value
  double scale = 1;                  // factor from their unit
};

// The quantities of the set that the chip counts ("": none), then the metrics. NotFound for an
// unknown set, with the known ones, and for a metric that the chip does not have, with similar
// names. If a quantity was given as a metric, the message names its set. The passes of one entry
// alone are chip.Passes(counted.metrics).
absl::StatusOr<std::vector<Counted>> Resolve(const Chip& chip, absl::string_view set,
                                             const std::vector<std::string>& metrics = {});

// The metrics of all entries, without duplicates.
std::vector<std::string> MetricsOf(absl::Span<const Counted> counted);

}  // namespace attnlab::profiling

#endif  // PROFILING_QUANTITIES_H_
