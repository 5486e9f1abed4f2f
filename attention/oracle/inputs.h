// Q, K, V and lengths for a problem, from a seed, on any device.
//
//   InputOptions options;
//   options.seed = 7;
//   absl::StatusOr<Inputs> inputs = Inputs::Make(problem, Device::Cuda(0), options);
//   AttentionTensors tensors = inputs->tensors();       // the caller adds o and lse
//   Exact(problem, inputs->host_tensors(), rows);
//
// Values come from a counter. Element i of (seed, tensor, sequence, row, head) is the same whatever
// the layout, the kind of lengths, the device and the number of threads. One seed therefore gives
// the same attention in all of them.
//
// Q, K and V of fp8 have a scale per sequence, block and head, from 0.5 to 1.5; with kLargeScores
// every other scale of V is 2^-64 of that.
//
// Paged K and V have their pages in an order drawn from the seed, with kUnusedPages among them.
//
// Everything that a kernel must not use is NaN, so that using it shows: gaps between strides; Q, K
// and V beyond their sequence's length, and so the rest of a last page; unused pages; tokens of no
// sequence; and kInputFence bytes on each side (none with bare_memory.h). Entries of the page table
// beyond a sequence's pages are far out of range.
#ifndef ATTENTION_ORACLE_INPUTS_H_
#define ATTENTION_ORACLE_INPUTS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "attention/oracle/layout.h"

namespace attnlab::oracle {

// How the numbers are distributed.
enum class Values {
  kNormal,       // "normal": mean 0, variance 1 (a sum of four uniforms: at most 3.5 in size)
  kUniform,      // "uniform": in [-1, 1)
  kOutliers,     // "outliers": normal, but one in 64 elements is 10 times as large
  kLargeScores,  // "large": normal, but Q is 40 times as large: softmax is close to a maximum, and
                 //          exponentials overflow unless the maximum is subtracted first
  kZeroQ,        // "zero_q": normal, but Q is 0: O is the mean of the V that a row sees
  kConstantV,    // "constant_v": normal, but V is 1, and so is O
};

constexpr std::array<Values, 6> kAllValues = {Values::kNormal,   Values::kUniform,
                                              Values::kOutliers, Values::kLargeScores,
                                              Values::kZeroQ,    Values::kConstantV};

absl::string_view Name(Values values);

// The inverse of Name(). InvalidArgument lists the known names.
absl::StatusOr<Values> ParseValues(absl::string_view name);

constexpr int64_t kInputFence = 4096;  // bytes of NaN before and after each tensor
constexpr int64_t kUnusedPages = 3;    // of no sequence

struct InputOptions {
  uint64_t seed = 0;
  Values values = Values::kNormal;
  Layout layout = Layout::kBshd;

  // Lengths of the b sequences, for lens = packed and padded. Empty: drawn from the seed. Many of
  // these are 0, 1 or the maximum; one sequence has the maximum of both if b > 1.
  std::vector<int32_t> q_lens = {};
  std::vector<int32_t> kv_lens = {};
};

class Inputs {
 public:
  // Returns the errors of Make() that do not depend on a device, without making anything.
  static absl::Status Check(const AttentionProblem& problem, const InputOptions& options = {});

  // InvalidArgument for an invalid problem, lengths that do not fit it, a layout that cannot hold
  // it, or too many pages; OutOfRange if the pages of K or V have more than 2^60 bytes;
  // ResourceExhausted if the device or the host has too little memory.
  static absl::StatusOr<Inputs> Make(const AttentionProblem& problem, Device device,
                                     const InputOptions& options = {});

  // q, k, v, lengths, page table and scales on the device. Valid as long as this object, or one moved from it, lives.
  const AttentionTensors& tensors() const { return tensors_; }
  // The same on the host; on the CPU it is the same memory.
  const AttentionTensors& host_tensors() const { return host_tensors_; }

  // One entry per sequence, whatever the kind of lengths.
  absl::Span<const int32_t> q_lens() const { return q_lens_; }
  absl::Span<const int32_t> kv_lens() const { return kv_lens_; }

  // Changes rows of a sequence, for tests of what must have no influence: to numbers of another
  // seed, or to NaN. Rows beyond the sequence's length are left alone.
  enum class Fill { kOtherNumbers, kNan };
  absl::Status ChangeQ(int64_t sequence, int64_t begin, int64_t end, Fill fill);
  absl::Status ChangeKv(int64_t sequence, int64_t begin, int64_t end, Fill fill);

 private:
  Inputs() = default;
  // Has lengths, but no tensors yet.
  static absl::StatusOr<Inputs> Begin(const AttentionProblem& problem, Device device,
                                      const InputOptions& options);
  absl::Status MakeLengths();
  absl::Status CheckPages() const;
  int64_t UsedPages() const;
  absl::Status Allocate();
  absl::Status FillPageTable();
  void FillRows(int tensor, int64_t sequence, int64_t begin, int64_t end, bool nan, uint64_t seed);
  absl::Status Upload();

  AttentionProblem problem_;
  InputOptions options_;
  Device device_;
  std::vector<int32_t> q_lens_, kv_lens_, cu_q_, cu_kv_;
  std::vector<Buffer> host_;       // one per tensor, or one for Q, K and V; page table, scales
  std::vector<Buffer> on_device_;  // the same; none on the CPU
  Buffer device_lengths_;
  AttentionTensors tensors_, host_tensors_;
};

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_INPUTS_H_
