// What a GPU's L2 cache saves a kernel: the one assumption that all families' traffic models
// (ExpectedTraffic()) share.
//
//   ReadAgain again(L2BytesForAll(device));
//   again.Add(bytes, /*since=*/bytes_used_in_between);
//   again.AddTo(&traffic);
#ifndef ATTENTION_CORE_L2_REUSE_H_
#define ATTENTION_CORE_L2_REUSE_H_

#include <cstdint>

#include "attention/core/device.h"
#include "attention/core/problem.h"

namespace attnlab {

// The L2 bytes available for data that all multiprocessors read. On GPUs whose L2 has two parts,
// each part caches what the multiprocessors beside it read. Such data lies in both parts, so half
// of L2 is available. //profiling/microbench:l2_capacity measures this.
double L2BytesForAll(const DeviceInfo& device);

// How a kernel goes over K and V: once for some query rows of a head, and then again for the next
// rows.
struct KvWalk {
  double heads = 0;            // KV heads of all sequences
  double heads_at_a_time = 1;  // KV heads whose K and V are in use at the same time
  int64_t first_row = 0;       // the query row at which the walk begins
  int64_t rows = 1;            // query rows of a head per pass over K and V
  // Whether several blocks walk the same KV head. Nothing keeps these blocks in step when K and V
  // come from memory, so how much they read again is unclear.
  bool shared = false;
};

// Sums up the bytes that a kernel reads more than once and that come from memory each time.
class ReadAgain {
 public:
  // `l2_bytes`: the room that L2 has for the data in question.
  explicit ReadAgain(double l2_bytes) : l2_bytes_(l2_bytes) {}

  // Adds `bytes` that are read again after `since` bytes were used. They are still in L2 if `since`
  // is at most half of l2_bytes, and come from memory if it is at least twice l2_bytes. In between
  // no simple rule says what L2 keeps: the bytes count as unclear, and as read again if `since` is
  // above l2_bytes.
  void Add(double bytes, double since);

  // Adds K and V for each step of the walk but the first: the keys that it shares with the step
  // before it.
  void AddKv(const AttentionProblem& problem, const KvWalk& walk);

  // Adds the sum to traffic->bytes_read. Sets l2_decides if more than a tenth of the new bytes_read
  // is unclear.
  void AddTo(Traffic* traffic) const;

 private:
  double l2_bytes_;
  double bytes_ = 0, unclear_ = 0;
};

}  // namespace attnlab

#endif  // ATTENTION_CORE_L2_REUSE_H_
