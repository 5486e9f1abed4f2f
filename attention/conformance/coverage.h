// What the conformance suite covers: for each kernel and compute capability, on how many problems
// with a feature (a mask, a range of head dims, …) each check runs. No GPU is needed, because
// kernels say what they support from a description of one.
#ifndef ATTENTION_CONFORMANCE_COVERAGE_H_
#define ATTENTION_CONFORMANCE_COVERAGE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "attention/conformance/problems.h"
#include "attention/core/device.h"
#include "attention/core/kernel.h"

namespace attnlab::conformance {

// "mask=causal", "lens=packed", "d, dv to 128" and so on.
std::set<std::string> FeaturesOf(const Case& c);

// A kernel on a GPU of some capability, or on the CPU.
struct Column {
  const Kernel* kernel = nullptr;
  DeviceInfo device;
  std::string name;  // "fa2 9.0"
};

// The columns of all kernels: a CUDA kernel on each of 7.5, 8.0 and 9.0 that it runs on.
std::vector<Column> Columns(const std::vector<const Kernel*>& kernels);

// [feature][check]: the number of the cases that have the feature, that the check runs on, and that
// the kernel supports.
using Counts = std::map<std::string, std::map<std::string, int>>;
Counts Count(const Column& column, std::vector<Case> cases);

// [config]: the number of problems on which config_overrides runs this example configuration.
std::map<std::string, int> CountConfigs(const Column& column, const std::vector<Case>& cases);

// docs/coverage.md: tables of the suite and of the reduced suite.
std::string CoverageTables(const std::vector<const Kernel*>& kernels);

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_COVERAGE_H_
