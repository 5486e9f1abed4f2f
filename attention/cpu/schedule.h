// How a problem is cut into tiles and items of work, and how much scratch they need.
//
// An item is one tile of query rows of one (sequence, KV head). Items of one head follow each
// other, so that its K and V stay in the caches. They go from the last tile to the first: under a
// causal mask the last tile sees the most keys, so short items are left for the end.
//
// If a head has one tile of few rows, as in decoding, its keys are cut into chunks. Each chunk is
// an item of its own, and chunks are merged afterwards. The cut depends on the problem alone, so
// the result has the same bits for any number of threads.
#ifndef ATTENTION_CPU_SCHEDULE_H_
#define ATTENTION_CPU_SCHEDULE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"

namespace attnlab::cpu {

// By default, a call has one thread per this many multiply-adds. They take one core about 10
// microseconds from its caches, or ten times as long if K and V come from memory. For less work,
// waking a thread costs more than it does, and a thread that waits for a busy processor delays all
// the others.
inline constexpr int64_t kMultiplyAddsPerThread = int64_t{1} << 18;

struct Options {
  int threads = 1;
  int64_t tile_q = 0;
  int64_t tile_kv = 0;
};

// The configured options, with defaults for what the configuration leaves out. Errors:
// InvalidArgument for unknown keys or values out of range.
absl::StatusOr<Options> OptionsFor(const AttentionProblem& problem, const DeviceInfo& device,
                                   const LaunchConfig& config);

// One item.
struct Item {
  int64_t sequence = 0;
  int64_t kv_head = 0;
  int64_t row_begin = 0, row_end = 0;  // of the q_len * group rows, see tile.h
  int64_t kv_begin = 0, kv_end = 0;
  int64_t slot = -1;  // where the chunk's state goes; -1 for an only chunk
};

// The items of a call.
class Schedule {
 public:
  // Computes what does not depend on the lengths. `problem` must outlive the schedule.
  Schedule(const AttentionProblem& problem, const Options& options);

  // chunk(): keys per chunk, a multiple of tile_kv. max_chunks(): chunks of the longest sequence, 1
  // if keys are not split.
  int64_t chunk() const { return chunk_; }
  int64_t max_chunks() const { return max_chunks_; }
  // Slots for the states of chunks, and the most rows that a slot has.
  int64_t slots() const { return max_chunks_ > 1 ? Heads() * max_tiles_ * max_chunks_ : 0; }
  int64_t slot_rows() const { return tile_q_; }
  // Query rows per tile: options.tile_q, or all rows if they are fewer.
  int64_t tile_q() const { return tile_q_; }
  int64_t max_tiles() const { return max_tiles_; }

  // How many numbers Count() writes.
  int64_t OffsetCount() const { return problem_.b + 1; }

  // Fills in offsets[OffsetCount()] from the lengths of the sequences, and returns the number of
  // items.
  int64_t Count(const AttentionTensors& tensors, int64_t* offsets) const;

  // Item `index` of the Count() items. `offsets` must be as Count() left them.
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
