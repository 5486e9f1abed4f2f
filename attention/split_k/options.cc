#include "attention/split_k/options.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/mask.h"
#include "attention/core/supports.h"

namespace attnlab::split_k {
namespace {

constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostParts = 4096;  // of a tile

int64_t CeilDivide(int64_t x, int64_t by) { return (x + by - 1) / by; }

absl::Status CheckProblem(const AttentionProblem& p, int capability) {
  constexpr int kMostDim = 256;
  for (const bool is_d : {true, false}) {
    const int64_t dim = is_d ? p.d : p.dv;
    if (dim <= kMostDim) continue;
    return absl::UnimplementedError(absl::StrCat(is_d ? "d" : "dv", ": ", dim, " is above ",
                                                 kMostDim,
                                                 ", the largest head dim of this kernel"));
  }
  if (capability < 80) {
    return absl::UnimplementedError(
        absl::StrCat("device: this kernel is for compute capability 8.0 and later; the code that "
                     "runs here is for ",
                     capability / 10, ".", capability % 10));
  }
  return absl::OkStatus();
}

SplitTile TileFor(const AttentionProblem& p, bool tensor_cores) {
  const bool fp8 = p.KvDType() == DType::kFloat8E4M3;
  for (const SplitTile& tile : !tensor_cores ? kCudaCoreTiles
                               : fp8         ? kFp8Tiles
                                             : kTensorCoreTiles) {
    if (tile.head_dim >= std::max(p.d, p.dv)) return tile;
  }
  return {};
}

// The most keys that a tile of so many rows walks.
int64_t MostKeysOfTile(const AttentionProblem& p, int rows) {
  if (p.mask.kind != Mask::Kind::kSlidingWindow) return p.skv;
  return std::min(p.skv, p.mask.left + p.mask.right + 1 + rows + kPartKeys);
}

// How many blocks with so much shared memory fit a multiprocessor, which has 1 KiB more than a block may
// take. CUDA takes 1 KiB per block.
int64_t RoomFor(const DeviceInfo& device, int64_t shared_bytes) {
  return (device.shared_memory_per_block + 1024) / (shared_bytes + 1024);
}

// How the parts of a tile are a cluster (SplitGrid::cluster_shift). A cluster begins when all of its blocks
// find room at once, near each other. So not if they may have to wait: if there are more than the
// multiprocessors, or half of them where only one fits each. Many small clusters may, as others are at
// work meanwhile (docs/split_k.md, "What was tried").
int ClusterShift(const DeviceInfo& device, int capability, const SplitTile& tile, int64_t tiles,
                 int64_t parts) {
  constexpr int64_t kMany = 6, kSmall = 4;  // blocks per multiprocessor; blocks of a cluster
  const int64_t room = RoomFor(device, tile.shared_bytes + tile.exchange_bytes);
  if (capability < 90 || tile.exchange_bytes == 0 || room == 0) return 0;
  const int64_t blocks = tiles * parts, multiprocessors = device.multiprocessors;
  const bool many = room >= 2 && parts <= kSmall && blocks > kMany * multiprocessors;
  if (blocks > (room >= 2 ? multiprocessors : multiprocessors / 2) && !many) return 0;
  for (const int shift : {1, 2, 3}) {
    if (parts == int64_t{1} << shift) return shift;
  }
  return 0;
}

// Roughly the seconds of a launch with so many parts per tile, of `keys` keys each. A block takes a
// while to begin and to end, and then reads K and V at a rate that its bytes under way allow, if
// its multiprocessor and the memory can serve all blocks at that rate.
double SecondsOf(const AttentionProblem& p, const DeviceInfo& device, const Options& options,
                 int64_t tiles, int64_t parts, int64_t keys, bool cluster) {
  constexpr double kBlockSeconds = 2e-6, kMergeSeconds = 2e-6, kClusterSeconds = 1e-6;
  constexpr double kEightSeconds = 1e-6;  // of eight parts' states that the merge loads
  // What memory gives, of the rate by its clock; if that is not known, of so many bytes per second of a
  // multiprocessor. It gives 15 % more where there is much to read, but then the choice is easy.
  constexpr double kOfMemory = 0.8, kUnknownRate = 34e9;
  // Keys per second of a block: as many of fp8 as of 16 bits, and no more if they are short. Two blocks of
  // a multiprocessor take 1.4 times as many as one.
  constexpr double kBlockKeys = 82e6, kOfTwo = 0.7;
  // Of several waves, the last blocks do not end together, by so much of what a block takes.
  constexpr double kApart = 0.04;
  // How much longer it takes with blocks on half of the multiprocessors or fewer: less is under way at first.
  constexpr double kOfFew = 0.08;
  // And how much if memory is the limit, but some multiprocessors have a block more than others, per part of the room
  // that this leaves.
  constexpr double kUneven = 0.2;
  const auto key_bytes = static_cast<double>((p.d + p.dv) * SizeOf(p.KvDType()));
  const double multiprocessors = std::max(1, device.multiprocessors);
  const double memory_rate =
      kOfMemory * (device.memory_bytes_per_second > 0 ? device.memory_bytes_per_second
                                                      : kUnknownRate * multiprocessors);
  const int64_t room =
      std::min<int64_t>(options.tile.blocks, RoomFor(device, options.tile.shared_bytes));
  const double together = multiprocessors * static_cast<double>(std::max<int64_t>(1, room));
  const double blocks = static_cast<double>(tiles) * static_cast<double>(parts);
  const double at_a_time = std::min(blocks, together);
  const double block_rate = (at_a_time > multiprocessors ? kOfTwo : 1) * kBlockKeys * key_bytes /
                            std::max(1.0, static_cast<double>(p.d + p.dv) / 256);
  const double share = memory_rate / std::max(1.0, at_a_time), rate = std::min(block_rate, share);
  const double bytes = static_cast<double>(keys) * key_bytes;
  const double waves = std::ceil(blocks / together);
  const double merged = blocks * options.tile.rows * static_cast<double>(p.dv) * 4;
  const double merge = parts == 1 ? 0
                       : cluster  ? kClusterSeconds
                                  : kMergeSeconds +
                                       kEightSeconds * static_cast<double>(CeilDivide(parts, 8)) +
                                       2 * merged / memory_rate;
  const double idle = 1 - std::min(1.0, blocks / multiprocessors);
  const double few = kOfFew * std::min(1.0, 4 * idle * idle);
  const double of_each = at_a_time / multiprocessors;
  const double uneven =
      share < block_rate && of_each > 1 ? kUneven * (1 - of_each / std::ceil(of_each)) : 0;
  const double apart = waves > 1 ? kApart * bytes / rate : 0;
  return (waves * (kBlockSeconds + bytes / rate) + apart + merge) * (1 + few + uneven);
}

// The most keys that a part may have: each of four warps adds a quarter of them.
int64_t MostPartKeys(const AttentionProblem& p) {
  if (p.dtype == DType::kFloat32) return std::numeric_limits<int64_t>::max();
  // Whichever dtype Q has, P and an fp8 V are multiplied in fp16.
  const bool fp16 = p.dtype == DType::kFloat16 || p.KvDType() == DType::kFloat8E4M3;
  return 4 * (fp16 ? kMostFp16Keys : kMostBf16Keys);
}

// The keys of a part that SecondsOf() likes best, of some numbers of parts.
int64_t ChoosePartKeys(const AttentionProblem& p, const DeviceInfo& device, int capability,
                       const Options& options, int64_t tiles, int64_t most_keys) {
  const int64_t step = options.tile.step, steps = CeilDivide(most_keys, step);
  const int64_t most_parts = std::min(steps, kMostParts);
  int64_t best_keys = CeilDivide(steps, most_parts) * step;
  double best = std::numeric_limits<double>::infinity();
  for (int64_t parts = 1; parts <= most_parts; parts += std::max<int64_t>(1, parts / 8)) {
    const int64_t keys = CeilDivide(steps, parts) * step;
    if (keys > MostPartKeys(p)) continue;
    const int64_t count = CeilDivide(most_keys, keys);
    const bool cluster = ClusterShift(device, capability, options.tile, tiles, count) > 0;
    const double seconds = SecondsOf(p, device, options, tiles, count, keys, cluster);
    if (seconds < best) best = seconds, best_keys = keys;
  }
  return best_keys;
}

// Whether a block takes four invariant parts, by SecondsOf().
bool TakesFour(const AttentionProblem& p, const DeviceInfo& device, int capability,
               const Options& options, int64_t tiles, int64_t most_keys) {
  if (!options.tile.slices) return false;
  const auto seconds = [&](int64_t of_block) {
    const int64_t keys = of_block * InvariantPartKeys(static_cast<uint32_t>(most_keys));
    const int64_t parts = CeilDivide(most_keys, keys);
    return SecondsOf(p, device, options, tiles, parts, std::min(keys, most_keys),
                     ClusterShift(device, capability, options.tile, tiles, parts) > 0);
  };
  return seconds(4) < seconds(1);
}

}  // namespace

int64_t Options::WorkspaceBytes(int64_t dv) const {
  if (grid.parts.Value() <= 1 || grid.cluster_shift > 0) return 0;
  return split_k::WorkspaceBytes(int64_t{grid.units} * grid.tiles.Value(), BlocksOf(grid),
                                 tile.rows, CeilDivide(dv, 4) * 4);
}

std::vector<std::string> ConfigKeys() {
  return {
      "k_splits: parts into which the keys of a query tile are divided, 1 to 4096; fewer if there "
      "are not as many keys [what a model of the time finds fastest]",
      "batch_invariant: true, if the result of a sequence must not depend on the others of its "
      "batch, to the bit; or false [false]",
  };
}

bool IsBestFor(const AttentionProblem& p, const DeviceInfo& device) {
  const SplitTile tile = TileFor(p, p.dtype != DType::kFloat32);
  if (tile.rows == 0) return false;
  const int64_t tiles = CeilDivide(p.sq * p.GroupSize(), tile.rows);
  return tiles <= 1 || tiles <= device.multiprocessors / 2 / std::max<int64_t>(1, p.b * p.hkv);
}

absl::StatusOr<Options> OptionsFor(const AttentionProblem& p, const DeviceInfo& device,
                                   int code_capability, const LaunchConfig& config) {
  if (absl::Status s = config.CheckKeys({"k_splits", "batch_invariant"}); !s.ok()) return s;
  const absl::StatusOr<int64_t> wanted = config.GetInteger("k_splits", 0, 1, kMostParts);
  if (!wanted.ok()) return wanted.status();
  const absl::StatusOr<bool> invariant = config.GetBool("batch_invariant", false);
  if (!invariant.ok()) return invariant.status();
  if (*invariant && *wanted != 0) {
    return absl::InvalidArgumentError(
        "config: k_splits and batch_invariant=true contradict each other");
  }
  const int capability = std::min(device.compute_capability, code_capability);
  if (absl::Status s = CheckProblem(p, capability); !s.ok()) return s;

  Options options;
  options.tensor_cores = p.dtype != DType::kFloat32;
  options.tile = TileFor(p, options.tensor_cores);
  const SplitTile& tile = options.tile;
  if (tile.shared_bytes > device.shared_memory_per_block) {
    return absl::ResourceExhaustedError(
        absl::StrCat("d: a block for head dims to ", tile.head_dim, " takes ", tile.shared_bytes,
                     " bytes of shared memory; this device has ", device.shared_memory_per_block));
  }
  if (p.sq > (int64_t{1} << 30) / p.GroupSize()) {
    return absl::UnimplementedError(absl::StrCat("sq: ", p.sq, " queries of ", p.GroupSize(),
                                                 " heads per KV head are more than 2^30 rows"));
  }
  const int64_t units = p.b * p.hkv, tiles = CeilDivide(p.sq * p.GroupSize(), tile.rows);
  if (tiles > 0 && units > kMostBlocks / tiles) {
    return absl::UnimplementedError(
        absl::StrCat("b: ", p.b, " sequences with ", p.hkv, " KV heads of ", tiles,
                     " query tiles each have more than ", kMostBlocks, " tiles"));
  }
  const int64_t most_keys = std::max<int64_t>(1, MostKeysOfTile(p, tile.rows));
  SplitGrid& grid = options.grid;
  int64_t parts = 0, part_keys = 0;
  if (*invariant) {
    parts = MostInvariantParts(most_keys);
    grid.invariant = 1;
    if (options.tensor_cores) {
      const bool four = TakesFour(p, device, capability, options, units * tiles, most_keys);
      const int64_t ranges = CeilDivide(parts, 4);
      parts = four ? ranges : 4 * ranges;
      grid.invariant = 4;
      grid.share_shift = four ? 0 : 2;
    }
  } else {
    part_keys = *wanted > 0
                    ? CeilDivide(CeilDivide(most_keys, *wanted), tile.step) * tile.step
                    : ChoosePartKeys(p, device, capability, options, units * tiles, most_keys);
    parts = CeilDivide(most_keys, part_keys);
  }
  // No more blocks than a launch can have.
  while (parts > 1 && tiles > 0 && units * tiles > kMostBlocks / parts) {
    if (*invariant || *wanted != 0) {
      return absl::UnimplementedError(absl::StrCat("config: ", parts, " parts of ", units * tiles,
                                                   " query tiles are more than ", kMostBlocks,
                                                   " blocks, the limit of a launch"));
    }
    part_keys *= 2;
    parts = CeilDivide(most_keys, part_keys);
  }
  const int64_t keys = part_keys > 0 ? part_keys : InvariantPartKeys(most_keys);
  if (keys > MostPartKeys(p)) {
    return absl::UnimplementedError(
        absl::StrCat("k_splits: a part has ", keys, " keys, more than the ", MostPartKeys(p),
                     " that tensor cores are given of ", Name(p.dtype), "; ask for more parts"));
  }
  grid.units = tiles > 0 ? static_cast<uint32_t>(units) : 0;
  grid.heads = device::Divisor(static_cast<uint32_t>(p.hkv));
  grid.tiles = device::Divisor(static_cast<uint32_t>(std::max<int64_t>(1, tiles)));
  grid.parts = device::Divisor(static_cast<uint32_t>(parts));
  grid.pack = device::Divisor(static_cast<uint32_t>(p.GroupSize()));
  grid.range_keys = static_cast<uint32_t>(part_keys);
  grid.cluster_shift = ClusterShift(device, capability, tile, units * tiles, parts);
  grid.prefetches =
      p.lens == Lengths::kFixed &&
      (p.mask.kind == Mask::Kind::kNone || (p.mask.kind == Mask::Kind::kCausal && tiles <= 1));
  return options;
}

}  // namespace attnlab::split_k
