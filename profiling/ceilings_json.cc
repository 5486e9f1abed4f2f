#include "profiling/ceilings_json.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attnlab::profiling {
namespace {

using Json = nlohmann::ordered_json;

struct Field {
  const char* name;
  double Ceilings::*value;
  double most;            // upper limit of plausible values: HBM reaches some TB/s
  bool optional = false;  // some GPUs do not have it
};

// Lower limit of plausible values, in bytes or FLOPs per second.
constexpr double kLeast = 1e9;
constexpr double kMostBytes = 1e14, kMostFlops = 1e17;

constexpr Field kFields[] = {
    {"hbm_read_bytes_per_second", &Ceilings::hbm_read, kMostBytes},
    {"hbm_write_bytes_per_second", &Ceilings::hbm_write, kMostBytes},
    {"hbm_copy_bytes_per_second", &Ceilings::hbm_copy, kMostBytes},
    {"bf16_flops_per_second", &Ceilings::bf16, kMostFlops, true},
    {"fp16_flops_per_second", &Ceilings::fp16, kMostFlops, true},
    {"tf32_flops_per_second", &Ceilings::tf32, kMostFlops, true},
    {"fp8_flops_per_second", &Ceilings::fp8, kMostFlops, true},
    {"fp32_flops_per_second", &Ceilings::fp32, kMostFlops},
};

}  // namespace

Json JsonOf(const Ceilings& ceilings) {
  Json json;
  for (const Field& field : kFields) {
    const double value = ceilings.*field.value;
    json[field.name] = value > 0 ? Json(value) : Json(nullptr);
  }
  return json;
}

absl::StatusOr<Ceilings> CeilingsOfJson(const Json& json) {
  Ceilings ceilings;
  for (const Field& field : kFields) {
    if (!json.is_object() || !json.contains(field.name)) {
      return absl::InvalidArgumentError(absl::StrCat(field.name, ": is missing"));
    }
    const Json& value = json[field.name];
    if (value.is_null() && field.optional) continue;
    if (!value.is_number()) {
      return absl::InvalidArgumentError(absl::StrCat(field.name, ": is not a number"));
    }
    const double number = value.get<double>();
    // Written so that NaN fails, too.
    if (!(number >= kLeast && number <= field.most)) {
      return absl::InvalidArgumentError(absl::StrCat(field.name, ": ", number,
                                                     " is not plausible, must be from ", kLeast,
                                                     " to ", field.most));
    }
    ceilings.*field.value = number;
  }
  return ceilings;
}

}  // namespace attnlab::profiling
