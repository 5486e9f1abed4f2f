#include "profiling/ceilings_json.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attnlab::profiling {
namespace {

using Json = nlohmann::ordered_json;

struct Field {
  const char* name;
  double Ceilings::*value;
  bool optional = false;  // not every GPU has it
};

constexpr Field kFields[] = {
    {"hbm_read_bytes_per_second", &Ceilings::hbm_read},
    {"hbm_write_bytes_per_second", &Ceilings::hbm_write},
    {"hbm_copy_bytes_per_second", &Ceilings::hbm_copy},
    {"bf16_flops_per_second", &Ceilings::bf16, true},
    {"fp16_flops_per_second", &Ceilings::fp16, true},
    {"tf32_flops_per_second", &Ceilings::tf32, true},
    {"fp8_flops_per_second", &Ceilings::fp8, true},
    {"fp32_flops_per_second", &Ceilings::fp32},
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
    if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>())) {
      return absl::InvalidArgumentError(absl::StrCat(field.name, ": is no number above 0"));
    }
    ceilings.*field.value = value.get<double>();
  }
  return ceilings;
}

}  // namespace attnlab::profiling
