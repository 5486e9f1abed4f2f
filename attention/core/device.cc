#include "attention/core/device.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace attnlab {

std::string ToString(const Device& device) {
  return device.kind == DeviceKind::kCpu ? "cpu" : absl::StrCat("cuda:", device.ordinal);
}

absl::StatusOr<Device> ParseDevice(absl::string_view text) {
  if (text == "cpu") return Device::Cpu();
  if (text == "cuda") return Device::Cuda(0);
  absl::string_view number = text;
  int ordinal = 0;
  if (absl::ConsumePrefix(&number, "cuda:") && absl::SimpleAtoi(number, &ordinal) &&
      absl::StrCat(ordinal) == number && ordinal >= 0) {
    return Device::Cuda(ordinal);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("device: \"", text, "\" is not one of cpu, cuda, cuda:N"));
}

}  // namespace attnlab
