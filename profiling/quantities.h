// What is counted of a kernel, whatever the GPU calls it: quantities with a name, a unit and a
// meaning, in sets that are asked for together.
//
//   absl::StatusOr<Chip> chip = Chip::Open("GH100");
//   absl::StatusOr<std::vector<Counted>> counted = Resolve(*chip, "traffic");
//   // (*counted)[0]: hbm_bytes_read, as the sum of {"dram__bytes_read.sum"}
//
// Names of metrics drift from chip to chip. A quantity has the spellings that are known, the first
// of which that a chip has is the one for it, and a chip that has none does not count it (there are
// no TMA bytes before Hopper).
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
  absl::string_view set;      // the one that it is in, besides "all"
  double scale = 1;           // from the metric's unit to this one's
};

// All of them, set by set.
absl::Span<const Quantity> Quantities();

// "traffic", "l2", "compute", "stalls" and "all".
absl::Span<const absl::string_view> Sets();

// What is counted on a chip: a quantity, or a metric by its own name.
struct Counted {
  std::string name, unit;
  std::vector<std::string> metrics;  // that add up to it
  double scale = 1;                  // from their unit
};

// The quantities of the set that the chip counts ("": none), then the metrics. NotFound for a set
// that there is not, with those that there are, and for a metric that the chip does not have, with
// names like it; or with the set, of a quantity that was taken for a metric. The passes of one
// alone are chip.Passes(counted.metrics).
absl::StatusOr<std::vector<Counted>> Resolve(const Chip& chip, absl::string_view set,
                                             const std::vector<std::string>& metrics = {});

// The metrics of all of them, each once.
std::vector<std::string> MetricsOf(absl::Span<const Counted> counted);

}  // namespace attnlab::profiling

#endif  // PROFILING_QUANTITIES_H_
