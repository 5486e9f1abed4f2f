#include "tools/command/profile_ranks.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/oracle/inputs.h"
#include "profiling/timeline.h"
#include "tools/command/ranks.h"
#include "tools/command/selection.h"
#include "tools/command/timeline_table.h"
#include "tools/lib/files.h"

namespace attnlab::command {
namespace {

constexpr int kCallsBefore = 3;  // they allocate, and load code

absl::StatusOr<std::vector<profiling::Activity>> TimelineOf(const AttentionProblem& p,
                                                            const NamedWay& way, const Ranks& ranks,
                                                            const std::string& kernel,
                                                            uint64_t seed) {
  oracle::InputOptions options;
  options.seed = seed;
  const absl::StatusOr<oracle::Inputs> inputs = oracle::Inputs::Make(p, Device::Cpu(), options);
  if (!inputs.ok()) return inputs.status();
  const ConstTensorView o =
      BshdView(static_cast<const void*>(nullptr), p.ODType(), Device::Cpu(), p.b, p.sq, p.hq, p.dv);
  const absl::StatusOr<DividedProblem> divided =
      DividedProblem::Make(p, way, ranks, inputs->host_tensors(), o);
  if (!divided.ok()) return divided.status();
  const auto call = [&] {
    return OnRanks(ranks, [&](int rank) { return divided->Call(rank, kernel, nullptr); });
  };
  for (int i = 0; i < kCallsBefore; ++i) {
    if (absl::Status s = call(); !s.ok()) return s;
  }
  std::vector<int> ordinals;
  for (const auto& rank : ranks) ordinals.push_back(rank->device().ordinal);
  return profiling::TimelineOfGpus(ordinals, call);
}

}  // namespace

absl::Status ProfileRanks(const ProfileFlags& f, const Streams& streams) {
  const absl::StatusOr<NamedWay> way = WayOf(f.parallel);
  if (!way.ok()) return way.status();
  const absl::StatusOr<std::vector<AttentionProblem>> problems = ProblemsOf(f.problem);
  if (!problems.ok()) return problems.status();
  if (problems->size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--problem: ", problems->size(), " are given, --gpus takes one"));
  }
  const AttentionProblem& p = problems->front();
  if (p.lens != Lengths::kFixed || p.page != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--problem: ", p.ToString(), ": with --gpus, lengths must be fixed, without pages"));
  }
  const absl::StatusOr<Ranks> ranks = MakeRanks(static_cast<int>(f.gpus), /*on_cpu=*/false);
  if (!ranks.ok()) return ranks.status();
  const auto timeline =
      TimelineOf(p, *way, *ranks, f.kernel == "all" ? "" : f.kernel, static_cast<uint64_t>(f.seed));
  if (!timeline.ok()) return timeline.status();
  streams.out << p.ToString() << ", " << way->name << "\n\n";
  PrintTimeline(*timeline, streams);
  if (f.trace.empty()) return absl::OkStatus();
  return OfFlag(WriteFile(ResolvePath(f.trace), TraceOf(*timeline).dump() + "\n"), "--trace");
}

}  // namespace attnlab::command
