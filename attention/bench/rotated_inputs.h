// Several sets of tensors for one problem, used in turn, so that a timed call finds its inputs
// in main memory, not in a cache that the call before has filled.
#ifndef ATTENTION_BENCH_ROTATED_INPUTS_H_
#define ATTENTION_BENCH_ROTATED_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "attention/oracle/inputs.h"

namespace attnlab::bench {

class RotatedInputs {
 public:
  // As many sets as together are larger than the last-level cache (64 MiB where the machine does
  // not tell), plus one; but at least one, no more than `memory_bytes` hold, and no more than 1024,
  // so that the sets of a tiny problem may stay in the cache: past_cache() tells. Values are
  // normal numbers from the seed.
  //
  // Where lengths vary, all sets have the same ones: from a sixteenth of the longest to the longest
  // in equal steps, in random order. K and V are as long as Q if sq is skv.
  //
  // Errors as Inputs::Make().
  static absl::StatusOr<RotatedInputs> Make(const AttentionProblem& problem,
                                            const DeviceInfo& device, uint64_t seed, bool with_lse,
                                            int64_t memory_bytes);

  // The set whose turn it is. Valid while this object lives and does not move.
  const AttentionTensors& Next();

  int64_t sets() const { return static_cast<int64_t>(sets_.size()); }
  // Q, K, V, O and LSE of one set; of pages, what sequences use.
  int64_t set_bytes() const { return set_bytes_; }
  // Whether a set has left the cache when its turn comes again.
  bool past_cache() const { return past_cache_; }

  // What a call must do (problem.h), with the lengths of these inputs.
  const Traffic& compulsory() const { return compulsory_; }

 private:
  RotatedInputs() = default;

  struct Set {
    oracle::Inputs inputs;
    Buffer o, lse;
    AttentionTensors tensors;
  };
  std::vector<Set> sets_;
  size_t next_ = 0;
  int64_t set_bytes_ = 0;
  bool past_cache_ = false;
  Traffic compulsory_;
};

}  // namespace attnlab::bench

#endif  // ATTENTION_BENCH_ROTATED_INPUTS_H_
