// What the L2 cache of a GPU saves a kernel: the one assumption that the families' models of their
// traffic (ExpectedTraffic()) share.
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

// Bytes that L2 holds of data that multiprocessors everywhere read. On GPUs whose L2 has two parts,
// each part caches what the multiprocessors beside it read, so such data lies in both: half of L2.
// //profiling/microbench:l2_capacity shows it.
double L2BytesForAll(const DeviceInfo& device);

// How kernels that go over K and V once for some query rows of a head, and then again for the next
// rows, do it.
struct KvWalk {
  double heads = 0;            // KV heads of all sequences
  double heads_at_a_time = 1;  // KV heads whose K and V are in use at the same time
  int64_t first_row = 0;       // query rows before it are not part of the walk
  int64_t rows = 1;            // query rows of a head for which K and V are read once
  // Whether several blocks walk a KV head: where its K and V come from memory, nothing keeps them
  // in step, and what they read again is unclear.
  bool shared = false;
};

// Sums up what a kernel reads more than once, as far as it comes from memory.
class ReadAgain {
 public:
  // `l2_bytes`: of the data in question that L2 has room for.
  explicit ReadAgain(double l2_bytes) : l2_bytes_(l2_bytes) {}

  // `bytes` that are read again after `since` bytes were used. They are still in L2 where that is
  // at most half of its room, and come from memory where it is at least twice its room. In between
  // L2 keeps a part that no simple rule gives: then they count as unclear, and as read again where
  // `since` is above the room.
  void Add(double bytes, double since);

  // K and V of all steps of the walk but the first.
  void AddKv(const AttentionProblem& problem, const KvWalk& walk);

  // Adds the sum to traffic->bytes_read. Sets l2_decides where more than a tenth of it is unclear.
  void AddTo(Traffic* traffic) const;

 private:
  double l2_bytes_;
  double bytes_ = 0, unclear_ = 0;
};

}  // namespace attnlab

#endif  // ATTENTION_CORE_L2_REUSE_H_
