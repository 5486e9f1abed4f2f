// What the conformance suite covers: for each kernel and compute capability, on how many problems
// with a feature (a mask, a range of head dims, …) each check runs. No GPU is needed: kernels say
// what they support from a description of one.
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

// "mask=causal", "lens=packed", "d to 128" and so on.
std::set<std::string> FeaturesOf(const Case& c);

// A kernel on a GPU of a capability, or on the CPU.
struct Column {
  const Kernel* kernel = nullptr;
  DeviceInfo device;
  std::string name;  // "fa2 9.0"
};

// Of all kernels, on 7.5, 8.0 and 9.0 as far as they run there.
std::vector<Column> Columns(const std::vector<const Kernel*>& kernels);

// [feature][check]: problems of a suite that have the feature, that the check runs on, and that the
// kernel supports.
using Counts = std::map<std::string, std::map<std::string, int>>;
Counts Count(const Column& column, const std::vector<Case>& cases);

// [config]: problems that config_overrides runs a configuration on, of the kernel's examples.
std::map<std::string, int> CountConfigs(const Column& column, const std::vector<Case>& cases);

// docs/coverage.md: tables of the suite and of the reduced one.
std::string CoverageTables(const std::vector<const Kernel*>& kernels);

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_COVERAGE_H_
