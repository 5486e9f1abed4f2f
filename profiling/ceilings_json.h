// Ceilings as JSON: in results, and in the cache.
#ifndef PROFILING_CEILINGS_JSON_H_
#define PROFILING_CEILINGS_JSON_H_

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "profiling/ceilings.h"

namespace attnlab::profiling {

// {"hbm_read_bytes_per_second": …, …, "bf16_flops_per_second": …, …}; null for what there is not.
nlohmann::ordered_json JsonOf(const Ceilings& ceilings);

// The inverse. InvalidArgument that names a field that is missing, is no number, or is one that no
// GPU has: of bytes not from 1 GB/s to 100 TB/s, of FLOPs not from 1 GFLOP/s to 100 PFLOP/s. null
// is for what not every GPU has.
absl::StatusOr<Ceilings> CeilingsOfJson(const nlohmann::ordered_json& json);

}  // namespace attnlab::profiling

#endif  // PROFILING_CEILINGS_JSON_H_
