// How a problem is cut into tiles and items of work, and how much scratch they need.
//
// An item is one tile of query rows of one (sequence, KV head). Items of one head follow each
// other, so that its K and V stay in the caches, and go from the last tile to the first: under a
// causal mask the last sees the most keys, and what is left for the end is short.
//
// Where a head has one tile of few rows, as in decoding, its keys are cut into chunks, each an
// item of its own, and the chunks are merged afterwards. How they are cut depends on the problem
// alone, not on the threads: the result has the same bits for any number of them.
#ifndef ATTENTION_CPU_SCHEDULE_H_
#define ATTENTION_CPU_SCHEDULE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"

namespace attnlab::cpu {

// By default a call has one thread for so many multiply-adds: about 10 microseconds of one core
// from its caches, ten times that where K and V come from memory. For less, waking a thread costs
// more than it does, and one that waits for a busy processor holds up all the others.
inline constexpr int64_t kMultiplyAddsPerThread = int64_t{1} << 18;

struct Options {
  int threads = 1;
  int64_t tile_q = 0;
  int64_t tile_kv = 0;
};

// The configuration's choice, and the defaults for what it leaves out. InvalidArgument for keys
// that are not known or values out of range.
absl::StatusOr<Options> OptionsFor(const AttentionProblem& problem, const DeviceInfo& device,
                                   const LaunchConfig& config);

// One item.
struct Item {
  int64_t sequence = 0;
  int64_t kv_head = 0;
  int64_t row_begin = 0, row_end = 0;  // of the q_len * group rows, see tile.h
  int64_t kv_begin = 0, kv_end = 0;
  int64_t slot = -1;  // where the chunk's state goes, or -1: it is the only one
};

// The items of a call.
class Schedule {
 public:
  // What does not depend on the lengths. `problem` must outlive the schedule.
  Schedule(const AttentionProblem& problem, const Options& options);

  // Keys of a chunk, a multiple of tile_kv; chunks of the longest sequence; 1 if not split.
  int64_t chunk() const { return chunk_; }
  int64_t max_chunks() const { return max_chunks_; }
  // Slots for the states of chunks, and the most rows that one has.
  int64_t slots() const { return max_chunks_ > 1 ? Heads() * max_tiles_ * max_chunks_ : 0; }
  int64_t slot_rows() const { return tile_q_; }
  // Query rows of a tile: tile_q, or all rows where they are fewer.
  int64_t tile_q() const { return tile_q_; }
  int64_t max_tiles() const { return max_tiles_; }

  // Numbers that Count() writes.
  int64_t OffsetCount() const { return problem_.b + 1; }

  // Fills in offsets[OffsetCount()] from the lengths of the sequences, and returns the number of
  // items.
  int64_t Count(const AttentionTensors& tensors, int64_t* offsets) const;

  // Item `index` of Count(). `offsets` as Count() left them.
  Item ItemAt(const AttentionTensors& tensors, const int64_t* offsets, int64_t index) const;

 private:
  int64_t Heads() const { return problem_.b * problem_.hkv; }
  int64_t TilesOf(const Sequence& s) const;
  int64_t ChunksOf(const Sequence& s) const;

  const AttentionProblem& problem_;
  int64_t tile_q_ = 0;
  int64_t max_tiles_ = 0;
  int64_t chunk_ = 0;
  int64_t max_chunks_ = 1;
};

}  // namespace attnlab::cpu

#endif  // ATTENTION_CPU_SCHEDULE_H_
