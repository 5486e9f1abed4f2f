#include "attention/cpu/schedule.h"

#include <algorithm>

#include "absl/status/status.h"

namespace attnlab::cpu {
namespace {

constexpr int64_t kMaxTile = 4096;
constexpr int64_t kMaxThreads = 4096;

// With this, a tile of V as wide as a panel takes 24 KB, and so do scores: both fit the first-level
// cache together. It is a multiple of the rows of a block.
constexpr int64_t kDefaultTileKv = 96;

// Larger tiles read K and V less often; smaller ones give each thread enough items.
constexpr int64_t kDefaultTilesQ[] = {256, 128, 64};
constexpr int64_t kItemsPerThread = 4;

// Heads with at most kMaxSplitRows rows are cut into chunks of at least kMinChunk keys. The state
// of a chunk is then at most a few hundredths of the size of its keys and values.
constexpr int64_t kMaxSplitRows = 64;
constexpr int64_t kMinChunk = 1024;
constexpr int64_t kKeysPerRow = 64;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t DefaultThreads(const AttentionProblem& p, const DeviceInfo& device) {
  const double multiply_adds = CompulsoryTraffic(p).flops / 2;
  const double useful = multiply_adds / static_cast<double>(kMultiplyAddsPerThread);
  const int64_t threads = std::max(device.threads, 1);
  return useful < static_cast<double>(threads) ? std::max<int64_t>(static_cast<int64_t>(useful), 1)
                                               : threads;
}

int64_t DefaultTileQ(const AttentionProblem& p, int threads) {
  const int64_t rows = p.sq * p.GroupSize();
  for (int64_t tile : kDefaultTilesQ) {
    if (p.b * p.hkv * DivideUp(rows, tile) >= kItemsPerThread * threads) return tile;
  }
  return kDefaultTilesQ[2];
}

}  // namespace

absl::StatusOr<Options> OptionsFor(const AttentionProblem& problem, const DeviceInfo& device,
                                   const LaunchConfig& config) {
  if (absl::Status s = config.CheckKeys({"threads", "tile_q", "tile_kv"}); !s.ok()) return s;
  const absl::StatusOr<int64_t> threads =
      config.GetInteger("threads", DefaultThreads(problem, device), 1, kMaxThreads);
  if (!threads.ok()) return threads.status();
  const absl::StatusOr<int64_t> tile_q =
      config.GetInteger("tile_q", DefaultTileQ(problem, static_cast<int>(*threads)), 1, kMaxTile);
  if (!tile_q.ok()) return tile_q.status();
  const absl::StatusOr<int64_t> tile_kv = config.GetInteger("tile_kv", kDefaultTileKv, 1, kMaxTile);
  if (!tile_kv.ok()) return tile_kv.status();
  return Options{static_cast<int>(*threads), *tile_q, *tile_kv};
}

Schedule::Schedule(const AttentionProblem& problem, const Options& options) : problem_(problem) {
  const int64_t rows = problem.sq * problem.GroupSize();
  tile_q_ = std::clamp<int64_t>(rows, 1, options.tile_q);
  max_tiles_ = DivideUp(rows, tile_q_);
  if (rows <= kMaxSplitRows) {
    chunk_ = DivideUp(std::max(kMinChunk, kKeysPerRow * rows), options.tile_kv) * options.tile_kv;
    max_chunks_ = std::max<int64_t>(DivideUp(problem.skv, chunk_), 1);
  }
}

int64_t Schedule::TilesOf(const Sequence& s) const {
  return DivideUp(s.q_len * problem_.GroupSize(), tile_q_);
}

int64_t Schedule::ChunksOf(const Sequence& s) const {
  return max_chunks_ == 1 ? 1 : std::max<int64_t>(DivideUp(s.kv_len, chunk_), 1);
}

int64_t Schedule::Count(const AttentionTensors& tensors, int64_t* offsets) const {
  offsets[0] = 0;
  for (int64_t i = 0; i < problem_.b; ++i) {
    const Sequence s = SequenceOf(problem_, tensors, i);
    offsets[i + 1] = offsets[i] + problem_.hkv * TilesOf(s) * ChunksOf(s);
  }
  return offsets[problem_.b];
}

Item Schedule::ItemAt(const AttentionTensors& tensors, const int64_t* offsets,
                      int64_t index) const {
  Item item;
  item.sequence = std::upper_bound(offsets, offsets + OffsetCount(), index) - offsets - 1;
  const Sequence s = SequenceOf(problem_, tensors, item.sequence);
  const int64_t tiles = TilesOf(s);
  const int64_t chunks = ChunksOf(s);
  const int64_t in_sequence = index - offsets[item.sequence];
  const int64_t chunk = in_sequence % chunks;
  const int64_t tile = tiles - 1 - in_sequence / chunks % tiles;
  item.kv_head = in_sequence / chunks / tiles;
  item.row_begin = tile * tile_q_;
  item.row_end = std::min(item.row_begin + tile_q_, s.q_len * problem_.GroupSize());
  item.kv_end = s.kv_len;
  if (chunks > 1) {
    item.kv_begin = chunk * chunk_;
    item.kv_end = std::min(item.kv_begin + chunk_, s.kv_len);
    item.slot =
        ((item.sequence * problem_.hkv + item.kv_head) * max_tiles_ + tile) * max_chunks_ + chunk;
  }
  return item;
}

}  // namespace attnlab::cpu
