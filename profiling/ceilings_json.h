// Ceilings as JSON, for result files and for the cache.
#ifndef PROFILING_CEILINGS_JSON_H_
#define PROFILING_CEILINGS_JSON_H_

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "profiling/ceilings.h"

namespace attnlab::profiling {

// {"hbm_read_bytes_per_second": …, …, "bf16_flops_per_second": …, …}; null for what the GPU lacks.
nlohmann::ordered_json JsonOf(const Ceilings& ceilings);

// The inverse. InvalidArgument, naming the field, if one is missing, is no number, or is
// implausible: outside 1 GB/s to 100 TB/s for bytes, or 1 GFLOP/s to 100 PFLOP/s for FLOPs. null is
// allowed only for what some GPUs do not have.
absl::StatusOr<Ceilings> CeilingsOfJson(const nlohmann::ordered_json& json);

}  // namespace attnlab::profiling

#endif  // PROFILING_CEILINGS_JSON_H_
