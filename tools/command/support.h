// What a kernel supports: the answers of Supports() to a table of problems. So lists are right for
// kernels of other repositories, too.
#ifndef TOOLS_COMMAND_SUPPORT_H_
#define TOOLS_COMMAND_SUPPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "attention/core/device.h"
#include "attention/core/kernel.h"

namespace attnlab::command {

struct Support {
  std::vector<std::string> dtypes;    // "fp32", …
  std::vector<std::string> masks;     // "none", "causal", "window"
  std::vector<std::string> lengths;   // "fixed", "packed", "padded"
  std::vector<std::string> features;  // "gqa", "decode", "softcap", "dv!=d", "paged", …
  std::vector<int64_t> head_dims;     // d = dv in 1..512
};

// An entry means that the kernel supports some problem with it, not every combination.
Support Probe(const Kernel& kernel, const DeviceInfo& device);

// "1-512", "8-512 step 8", "64, 128".
std::string Ranges(const std::vector<int64_t>& sorted);

// A GPU of that compute capability, by the CUDA programming guide: for probing without a GPU.
DeviceInfo TypicalGpu(int compute_capability);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_SUPPORT_H_
