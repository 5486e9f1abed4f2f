// What the L2 cache of a GPU saves: the assumptions that the families' models of their traffic
// share (ExpectedTraffic()).
//
// Cached data that was used longest ago goes first, so what was read or written is still there when
// no more than the cache holds was used since. On GPUs whose L2 is in two parts (NVIDIA A100 and
// H100 whitepapers: each part caches what the multiprocessors beside it access) data that many
// multiprocessors read lies in both: //profiling/microbench:l2_capacity shows it.
#ifndef ATTENTION_L2_REUSE_H_
#define ATTENTION_L2_REUSE_H_

#include <initializer_list>
#include <vector>

#include "absl/functional/function_ref.h"
#include "attention/machine.h"
#include "attention/problem.h"

namespace attnlab {

// Bytes of distinct data that L2 holds when each of them is read by so many multiprocessors, at
// least 1. Where L2 has two parts, a byte lies in the one that its address belongs to, and in the
// other if a multiprocessor there reads it: half of L2 for many readers, two thirds for one.
double L2BytesFor(const DeviceInfo& device, double readers);

// And that are found again for sure: two thirds of that.
double L2BytesSurelyFor(const DeviceInfo& device, double readers);

// What `model` says of the device, and what reads lie between where L2 does not decide it clearly.
//
// All or nothing is what L2 answers away from its capacity only: what takes up to two thirds of
// what there is room for is found again, what takes more than one and a half times as much is not,
// and of what is in between a part is (the same lesson shows it). So the model is asked about an L2
// of two thirds and of three halves of the size, too, and what it says of all three, values and
// intervals, is one interval; or, where the most is above the least by no more than a tenth, the
// value that is nearest to the model's and from which neither is more than 5 % away.
Traffic WithL2InDoubt(const DeviceInfo& device,
                      absl::FunctionRef<Traffic(const DeviceInfo&)> model);

// Steps, one after the other, each of which goes through its tensors side by side from their
// beginnings to their ends.
class L2Steps {
 public:
  explicit L2Steps(double l2_bytes) : l2_bytes_(l2_bytes) {}

  struct Access {
    int tensor = 0;  // any number that stands for it
    double bytes = 0;
  };
  // A tensor that is read and written is named in both, and counts once for what L2 has to hold.
  void Add(std::initializer_list<Access> reads, std::initializer_list<Access> writes);

  // Bytes that come from memory, since they were not in L2 any more, or not yet.
  double BytesRead() const { return bytes_read_; }
  // Bytes that are written, all of which go to memory sooner or later.
  double BytesWritten() const { return bytes_written_; }

 private:
  using Step = std::vector<Access>;  // each tensor once

  static void Note(const Access& access, Step* step);
  static bool Uses(const Step& step, int tensor);
  // The part of a tensor that a step of these finds in L2.
  double PartFound(const Access& read, std::initializer_list<Access> reads,
                   std::initializer_list<Access> writes) const;

  double l2_bytes_;
  double bytes_read_ = 0, bytes_written_ = 0;
  std::vector<Step> steps_;
};

}  // namespace attnlab

#endif  // ATTENTION_L2_REUSE_H_
