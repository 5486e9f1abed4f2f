// How long a problem takes on many GPUs, by the schedule of each way to divide it, except split KV. A model, not a measurement:
// it knows the rate of the kernel and of the links, and who waits for whom. It chooses between ways, and says
// what to expect of machines that are not at hand.
//
//   Predict(Way::kZigzagRing, problem, 8, machine)->seconds
#ifndef ATTENTION_MULTI_GPU_SIMULATOR_H_
#define ATTENTION_MULTI_GPU_SIMULATOR_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/core/problem.h"

namespace attnlab::multi_gpu {

// Of one rank in each direction.
struct Link {
  double bytes_per_second = 0;
  double latency = 0;  // seconds, from the start of a tensor's copy to its first byte
  // How many times as long K and V take beside a kernel if a rank sends and gets some.
  double both_ways = 1;
};

// What a rank's thread starts, in copies that take as long: of an all-to-all for each rank; of a ring for each step,
// with its waits, and for each kernel.
inline constexpr double kAllToAllCopies = 10, kRingCopies = 2.5, kKernelCopies = 2;

// By default an H200 with bf16 and head dim 128. All but `between` were measured (docs/multi_gpu.md): links within a
// node as copies between two GPUs of one process.
struct Machine {
  double flops_per_second = 690e12;  // of the kernel on one GPU, where it has enough to do
  double launch = 8e-6;  // seconds that a kernel takes besides; one that only copies, half
  double host = 16e-6;   // seconds in which a thread starts one of many copies
  double memory_per_second = 4.3e12;  // bytes of a GPU's memory, read and written
  double l2_bytes = 60e6;             // of these, what L2 keeps
  int ranks_per_node = 8;
  Link within = {390e9, 13e-6, 1.4}, between = {50e9, 30e-6};  // nodes
};
// The same with the kernel's rate as it was measured: one GPU takes `seconds`.
Machine WithRateOf(const AttentionProblem& problem, double seconds, Machine machine = {});

enum class Way {
  kRing,
  kZigzagRing,
  kAllToAll,
  kHeads,  // each rank has its heads before and after: nothing travels
};
absl::string_view Name(Way way);

struct Prediction {
  double seconds = 0;  // until the last rank has ended
  double waiting = 0;  // of these, seconds in which that rank computes nothing
};

constexpr int kMostRanks = 4096;  // a ring of n has n² pieces
// InvalidArgument for an invalid problem, one in which no query sees a key, lengths that differ, pages, a number
// of ranks beyond kMostRanks, and rates or latencies that make no sense.
absl::StatusOr<Prediction> Predict(Way way, const AttentionProblem& problem, int ranks,
                                   const Machine& machine);

// On one GPU.
absl::StatusOr<double> PredictOne(const AttentionProblem& problem, const Machine& machine);

// The fastest way for rows that are divided, thus not kHeads. Where none is faster than one GPU, `ranks` is 1.
struct Choice {
  Way way = Way::kZigzagRing;
  int ranks = 1;
  double seconds = 0;
};
absl::StatusOr<Choice> Choose(const AttentionProblem& problem, int ranks, const Machine& machine);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_SIMULATOR_H_
