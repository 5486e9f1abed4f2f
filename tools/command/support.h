// What a kernel supports, found by asking it: Supports() over a table of probes. So that lists
// show what is true, for kernels that nobody has thought of yet.
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
  std::vector<int64_t> head_dims;     // d = dv, of 1..512
};

// Each entry is there when some problem with it is supported; not every combination need be.
Support Probe(const Kernel& kernel, const DeviceInfo& device);

// "1-512", "8-512 step 8", "64, 128".
std::string Ranges(const std::vector<int64_t>& sorted);

// A GPU of that compute capability as the CUDA programming guide describes it, for probing where
// there is none.
DeviceInfo TypicalGpu(int compute_capability);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_SUPPORT_H_
