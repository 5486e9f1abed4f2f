#include "attention/conformance/coverage.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/conformance/conformance.h"
#include "attention/core/compute_capability.h"
#include "attention/core/runs_on.h"
#include "attention/cuda/machine.h"

namespace attnlab::conformance {
namespace {

DeviceInfo Describe(int capability) {
  DeviceInfo gpu;
  gpu.device = Device::Cuda(0);
  gpu.compute_capability = capability;
  gpu.shared_memory_per_block =
      LimitsOf(capability).value_or(CapabilityLimits()).shared_memory_per_block;
  gpu.registers_per_multiprocessor = 65536;
  gpu.multiprocessors = 100;
  gpu.memory_bytes = int64_t{16} << 30;
  gpu.last_level_cache_bytes = int64_t{40} << 20;
  return gpu;
}

std::string Cell(int covered, int checks) {
  if (checks == 0) return "-";
  return covered == checks ? absl::StrCat(checks) : absl::StrCat(covered, " of ", checks);
}

// One line per feature, one column per kernel and capability. A cell counts the checks that have a
// problem with the feature in `cases`, out of those that have one in `possible`.
std::string FeatureTable(const std::vector<Column>& columns, const std::vector<Case>& cases,
                         const std::vector<Case>& possible) {
  std::string head = "| |", rule = "|---|";
  std::map<std::string, std::string> lines;
  for (const Column& column : columns) {
    absl::StrAppend(&head, " ", column.name, " |");
    absl::StrAppend(&rule, "---|");
    Counts have = Count(column, cases);
    Counts could = Count(column, possible);
    for (const Case& c : possible) {
      for (const std::string& feature : FeaturesOf(c)) lines.emplace(feature, "");
    }
    for (auto& [feature, line] : lines) {
      int covered = 0;
      for (const auto& [check, count] : could[feature]) covered += have[feature][check] > 0;
      absl::StrAppend(&line, " ", Cell(covered, static_cast<int>(could[feature].size())), " |");
    }
  }
  std::string table = absl::StrCat(head, "\n", rule, "\n");
  for (const auto& [feature, line] : lines)
    absl::StrAppend(&table, "| ", feature, " |", line, "\n");
  return table;
}

std::string ConfigTable(const std::vector<Column>& columns, const std::vector<Case>& cases) {
  std::string table = "| | configuration: problems |\n|---|---|\n";
  for (const Column& column : columns) {
    std::string line;
    for (const auto& [config, count] : CountConfigs(column, cases)) {
      absl::StrAppend(&line, line.empty() ? "" : "; ", config, ": ", count);
    }
    if (!line.empty()) absl::StrAppend(&table, "| ", column.name, " | ", line, " |\n");
  }
  return table;
}

}  // namespace

std::set<std::string> FeaturesOf(const Case& c) {
  const AttentionProblem& p = c.problem;
  constexpr std::array<const char*, 3> kMasks = {"none", "causal", "window"};
  constexpr std::array<const char*, 3> kLens = {"fixed", "packed", "padded"};
  std::set<std::string> features = {
      absl::StrCat("dtype=", Name(p.dtype)),
      absl::StrCat("mask=", kMasks[static_cast<int>(p.mask.kind)]),
      absl::StrCat("lens=", kLens[static_cast<int>(p.lens)]),
      absl::StrCat("layout=", Name(c.inputs.layout)),
      absl::StrCat("values=", Name(c.inputs.values)),
  };
  const int64_t widest = std::max(p.d, p.dv);
  for (int64_t most : {32, 64, 96, 128, 192, 256, 512}) {
    if (widest > most) continue;
    // Three digits, so that they sort in numerical order.
    features.insert(absl::StrCat("d, dv to ", absl::Dec(most, absl::kZeroPad3)));
    break;
  }
  const auto add = [&features](bool has, const char* feature) {
    if (has) features.insert(feature);
  };
  add(p.d % 8 != 0 || p.dv % 8 != 0, "d or dv not a multiple of 8");
  add(p.d != p.dv, "d is not dv");
  add(p.softcap != 0, "softcap");
  add(p.scale.has_value(), "scale");
  add(p.GroupSize() > 1, "GQA");
  add(p.b > 1, "batch");
  add(!c.with_lse, "without LSE");
  add(p.sq == 0, "no queries");
  add(p.sq == 1, "one query");
  add(p.skv == 0, "no keys");
  add(p.sq > p.skv, "more queries than keys");
  add(p.sq < p.skv, "more keys than queries");
  add(p.sq > 64 && p.skv > 64, "several tiles");
  add(p.KvDType() != p.dtype, "fp8 K and V");
  add(p.VDType() != p.KvDType(), "V of fp8_e5m2");
  add(p.scale_block != 0, "scales of blocks");
  add(p.page != 0, "pages");
  return features;
}

std::vector<Column> Columns(const std::vector<const Kernel*>& kernels) {
  std::vector<Column> columns;
  for (const Kernel* kernel : kernels) {
    const KernelTraits& traits = kernel->traits();
    if (traits.device == DeviceKind::kCpu) {
      columns.push_back({kernel, CpuInfo(), traits.name});
      continue;
    }
    for (int capability : {75, 80, 90}) {
      Column column = {kernel, Describe(capability),
                       absl::StrCat(traits.name, " ", CapabilityName(capability))};
      if (RunsOn(traits, column.device).ok()) columns.push_back(std::move(column));
    }
  }
  return columns;
}

Counts Count(const Column& column, std::vector<Case> cases) {
  std::vector<bool> supported;
  if (column.kernel->traits().needs_aligned_rows) {
    for (Case& c : cases) c = WithAlignedRows(std::move(c));
  }
  for (const Case& c : cases) {
    supported.push_back(column.kernel->Supports(c.problem, column.device, {}).ok());
  }
  Counts counts;
  for (const Check& check : Checks()) {
    if (!AppliesTo(check, *column.kernel)) continue;
    for (size_t i : CasesOf(check, cases)) {
      if (!supported[i]) continue;
      for (const std::string& feature : FeaturesOf(cases[i])) ++counts[feature][check.name];
    }
  }
  return counts;
}

std::map<std::string, int> CountConfigs(const Column& column, const std::vector<Case>& cases) {
  std::vector<Case> with_all;
  for (const Check& check : Checks()) {
    if (check.name != "config_overrides" || !AppliesTo(check, *column.kernel)) continue;
    for (size_t i : CasesOf(check, cases)) {
      if (cases[i].every_config) with_all.push_back(cases[i]);
    }
  }
  std::map<std::string, int> counts;
  for (const std::string& line : column.kernel->traits().config_examples) {
    const LaunchConfig config = LaunchConfig::Parse(line).value_or(LaunchConfig());
    int& count = counts[line];
    for (const Case& c : with_all) {
      count += column.kernel->Supports(c.problem, column.device, config).ok();
    }
  }
  return counts;
}

std::string CoverageTables(const std::vector<const Kernel*>& kernels) {
  const std::vector<Column> columns = Columns(kernels);
  const std::vector<Case> full = ConformanceCases(), reduced = ReducedCases();
  std::string checks;
  for (const Check& check : Checks()) absl::StrAppend(&checks, "- `", check.name, "`\n");
  return absl::StrCat(
      R"(# What the conformance suite covers

coverage_test checks this page. Make it with

    ./bazelw run //attention/conformance:coverage -- --coverage >docs/coverage.md

One row per feature, one column per kernel and capability. A number counts the checks that have a
problem with the feature that the kernel supports there. "3 of 4": a fourth check could have one. A
dash: the kernel supports none. The checks (`conformance.h` says what each does):

)",
      checks, "\n## On the GPU itself: ", full.size(), " problems\n\n",
      FeatureTable(columns, full, full),
      "\n## With code for an older GPU, and under the sanitizers: ", reduced.size(),
      " problems\n\nThe sanitizers run only the checks that launch what others do "
      "not.\n\n",
      FeatureTable(columns, reduced, full),
      "\n## Configurations\n\nThe kernels' examples, and on how many of `TileCases()`, "
      "`SharedTileCases()` and the\nfirst of `PretransposedCases()` and `PagedTileCases()` "
      "`config_overrides` runs each. Both sets\nhave these; under the sanitizers it runs two of "
      "them in turn on each. On every fourth other\nproblem it runs one, which is not counted.\n\n",
      ConfigTable(columns, reduced));
}

}  // namespace attnlab::conformance
