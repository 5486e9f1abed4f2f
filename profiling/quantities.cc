#include "profiling/quantities.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/lib/similar_names.h"

namespace attnlab::profiling {
namespace {

constexpr absl::string_view kSets[] = {"traffic", "l2", "compute", "stalls", "all"};

// Metrics that add up to the quantity. A chip must have all of them.
using Spelling = std::vector<std::string>;

struct Entry {
  Quantity quantity;
  std::vector<Spelling> spellings;  // preferred first
};

std::string StallMetric(absl::string_view reason) {
  return absl::StrCat("smsp__average_warps_issue_stalled_", reason, "_per_issue_active.ratio");
}

// Cycles that warps spend in this state per issued instruction. The sum over all reasons is the
// cycles between two instructions of a warp.
Entry Stall(absl::string_view name, absl::string_view reason, absl::string_view meaning) {
  return {{name, "cycles", meaning, "stalls"}, {{StallMetric(reason)}}};
}

// The remaining reasons. The first spelling is for chips before Blackwell.
Entry OtherStalls() {
  const char* const kLater[] = {"branch_resolving", "drain",       "membar", "misc",
                                "sleeping",         "tex_throttle"};
  Spelling spelling;
  for (const char* reason : kLater) spelling.push_back(StallMetric(reason));
  Spelling before = spelling;
  before.push_back(StallMetric("imc_miss"));
  return {{"stall_other", "cycles",
           "wait for a branch target, constants, textures, a fence, sleep or exit", "stalls"},
          {before, spelling}};
}

const std::vector<Entry>& Entries() {
  static const auto* const kEntries = new std::vector<Entry>{
      {{"hbm_bytes_read", "B", "read from HBM, or whatever memory the GPU has", "traffic"},
       {{"dram__bytes_read.sum"}, {"dram__bytes_op_read.sum"}}},
      {{"hbm_bytes_written", "B", "written to HBM", "traffic"},
       {{"dram__bytes_write.sum"}, {"dram__bytes_op_write.sum"}}},
      {{"range_duration", "s", "duration of the range, launch overhead included", "traffic", 1e-9},
       {{"gpu__time_duration.sum"}}},

      {{"l2_bytes", "B", "bytes through L2, all sources and destinations", "l2"},
       {{"lts__t_bytes.sum"}}},
      {{"l2_hit_rate", "%", "L2 sectors that hit", "l2"}, {{"lts__t_sector_hit_rate.pct"}}},
      {{"l2_sectors_read", "", "sectors of 32 bytes that multiprocessors asked L2 for", "l2"},
       {{"lts__t_sectors_srcunit_tex_op_read.sum"}}},
      {{"l2_sectors_written", "", "sectors of 32 bytes that multiprocessors wrote to L2", "l2"},
       {{"lts__t_sectors_srcunit_tex_op_write.sum"}}},
      {{"l2_bytes_to_sm", "B", "from L2 to multiprocessors", "l2"},
       {{"l1tex__m_xbar2l1tex_read_bytes.sum"}}},
      {{"l2_bytes_from_sm", "B", "from multiprocessors to L2", "l2"},
       {{"l1tex__m_l1tex2xbar_write_bytes.sum"}}},
      {{"tma_bytes_read", "B", "part of l2_bytes_to_sm that TMA loaded", "l2"},
       {{"l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"}}},

      {{"tensor_active", "%", "time with busy tensor cores, of the time with busy multiprocessors",
        "compute"},
       {{"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"}}},
      {{"tensor_flops_bf16", "FLOP", "by tensor cores, bf16", "compute"},
       {{"sm__ops_path_tensor_src_bf16_dst_fp32.sum"}}},
      {{"tensor_flops_fp16", "FLOP", "by tensor cores, fp16", "compute"},
       {{"sm__ops_path_tensor_src_fp16_dst_fp16.sum", "sm__ops_path_tensor_src_fp16_dst_fp32.sum"},
        {"sm__ops_path_tensor_src_fp16.sum"}}},
      {{"tensor_flops_tf32", "FLOP", "by tensor cores, TF32", "compute"},
       {{"sm__ops_path_tensor_src_tf32_dst_fp32.sum"}}},
      {{"tensor_flops_fp8", "FLOP", "by tensor cores, fp8 (from Blackwell on also fp6, fp4)",
        "compute"},
       {{"sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp16.sum",
         "sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp32.sum"},
        {"sm__ops_path_tensor_src_fp8.sum"}}},
      {{"occupancy", "%", "resident warps, of the most that a multiprocessor holds", "compute"},
       {{"sm__warps_active.avg.pct_of_peak_sustained_active"}}},
      {{"issue_active", "%", "scheduler cycles that issued an instruction", "compute"},
       {{"smsp__issue_active.avg.pct_of_peak_sustained_active"}}},
      {{"shared_bank_conflicts", "", "extra shared-memory wavefronts from bank conflicts",
        "compute"},
       {{"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"}}},
      {{"shared_wavefronts", "", "all shared-memory wavefronts", "compute"},
       {{"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"}}},

      Stall("stall_long_scoreboard", "long_scoreboard", "wait for global or local memory"),
      Stall("stall_short_scoreboard", "short_scoreboard", "wait for shared memory or MUFU"),
      Stall("stall_barrier", "barrier", "wait at a barrier of the block"),
      Stall("stall_gmma", "gmma", "wait for wgmma"),
      Stall("stall_math", "math_pipe_throttle", "wait for a math pipe"),
      Stall("stall_mio", "mio_throttle", "wait for the queue to shared memory and MUFU"),
      Stall("stall_lg", "lg_throttle", "wait for the queue to global and local memory"),
      Stall("stall_wait", "wait", "wait for a fixed number of cycles"),
      Stall("stall_dispatch", "dispatch_stall", "held back at dispatch"),
      Stall("stall_no_instruction", "no_instruction", "wait for instruction fetch"),
      Stall("stall_not_selected", "not_selected", "ready, but another warp was issued"),
      OtherStalls(),
      Stall("stall_selected", "selected", "issued (not a stall)"),
      // A warp is in exactly one of these states in each cycle, so this is their sum.
      {{"stalls_and_issue", "cycles",
        "sum of all of these: cycles between two instructions of a warp", "stalls"},
       {{"smsp__average_warps_active_per_issue_active.ratio"}}},
  };
  return *kEntries;
}

// Chip::Check(), and a hint where the name is a quantity, which a chip does not know.
absl::Status CheckMetric(const Chip& chip, const std::string& metric) {
  const absl::Status s = chip.Check(metric);
  if (!absl::IsNotFound(s)) return s;
  std::vector<std::string> names;
  for (const Quantity& q : Quantities()) names.emplace_back(q.name);
  const std::vector<std::string> like = SimilarNames(metric, names, 1);
  if (like.empty()) return s;
  for (const Quantity& q : Quantities()) {
    if (q.name != like[0]) continue;
    const std::string is = absl::StrCat(q.name, " is a quantity of --set=", q.set);
    return absl::NotFoundError(q.name == metric
                                   ? absl::StrCat("metric: ", is, ", not a metric of CUPTI")
                                   : absl::StrCat(s.message(), "; ", is));
  }
  return s;
}

}  // namespace

absl::Span<const Quantity> Quantities() {
  static const auto* const kQuantities = [] {
    auto* quantities = new std::vector<Quantity>();
    for (const Entry& entry : Entries()) quantities->push_back(entry.quantity);
    return quantities;
  }();
  return *kQuantities;
}

absl::Span<const absl::string_view> Sets() { return kSets; }

absl::StatusOr<std::vector<Counted>> Resolve(const Chip& chip, absl::string_view set,
                                             const std::vector<std::string>& metrics) {
  if (!set.empty() && std::find(std::begin(kSets), std::end(kSets), set) == std::end(kSets)) {
    return absl::NotFoundError(
        absl::StrCat("set: ", set, " is not one of ", absl::StrJoin(kSets, ", ")));
  }
  std::vector<Counted> counted;
  for (const Entry& entry : Entries()) {
    const Quantity& quantity = entry.quantity;
    if (set != "all" && quantity.set != set) continue;
    for (const Spelling& spelling : entry.spellings) {
      const auto has = [&](const std::string& metric) { return chip.Has(metric); };
      if (!std::all_of(spelling.begin(), spelling.end(), has)) continue;
      counted.push_back(
          {std::string(quantity.name), std::string(quantity.unit), spelling, quantity.scale});
      break;
    }
  }
  for (const std::string& metric : metrics) {
    if (absl::Status s = CheckMetric(chip, metric); !s.ok()) return s;
    counted.push_back({metric, "", {metric}, 1});
  }
  return counted;
}

std::vector<std::string> MetricsOf(absl::Span<const Counted> counted) {
  std::vector<std::string> metrics;
  for (const Counted& c : counted)
    metrics.insert(metrics.end(), c.metrics.begin(), c.metrics.end());
  std::sort(metrics.begin(), metrics.end());
  metrics.erase(std::unique(metrics.begin(), metrics.end()), metrics.end());
  return metrics;
}

}  // namespace attnlab::profiling
