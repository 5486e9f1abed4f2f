#include "attention/fa2/options.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "attention/core/dtype.h"
#include "attention/core/l2_reuse.h"
#include "attention/core/mask.h"
#include "attention/core/supports.h"
#include "attention/device/cuda_core_choice.h"
#include "attention/device/tile_choice.h"

namespace attnlab::fa2 {
namespace {

int64_t TilesOf(int64_t rows, int64_t tile) { return (rows + tile - 1) / tile; }

absl::Status CheckHeadDims(const AttentionProblem& p) {
  if (std::max(p.d, p.dv) <= kMaxHeadDim) return absl::OkStatus();
  const bool d = p.d > kMaxHeadDim;
  return absl::UnimplementedError(absl::StrCat(d ? "d" : "dv", ": ", d ? p.d : p.dv, " is above ",
                                               kMaxHeadDim, ", the largest head dim of FA2"));
}

// Ok if tensor cores may compute the problem's products; otherwise the reason why not.
absl::Status TensorCoresMultiply(const AttentionProblem& p, int capability) {
  if (p.dtype == DType::kFloat32) {
    return absl::UnimplementedError("dtype: tensor cores multiply fp16 and bf16, not fp32");
  }
  if (p.dtype == DType::kBFloat16 && capability < 80) {
    return absl::UnimplementedError(
        absl::StrCat("dtype: tensor cores multiply bf16 from compute capability 8.0 on; the code "
                     "that runs here is for ",
                     capability / 10, ".", capability % 10));
  }
  return CheckTensorCoreKeys(p, capability);
}

// Ok if tensor cores can multiply the dtype by 3xTF32; otherwise the reason why not.
absl::Status Tf32Multiplies(DType dtype, int capability) {
  if (dtype != DType::kFloat32) {
    return absl::UnimplementedError(
        absl::StrCat("config: mma=tf32x3 is for fp32, but dtype is ", Name(dtype)));
  }
  if (capability < 80) {
    return absl::UnimplementedError(absl::StrCat(
        "config: mma=tf32x3 needs compute capability 8.0 or later; the code that runs here is for ",
        capability / 10, ".", capability % 10));
  }
  return absl::OkStatus();
}

absl::StatusOr<Engine> EngineFor(const AttentionProblem& p, int capability,
                                 const LaunchConfig& config) {
  const std::string mma = config.Get("mma", "auto");
  const absl::Status multiply = TensorCoresMultiply(p, capability);
  if (mma == "auto") {
    if (multiply.ok()) return Engine::kMma;
    // FA2's CUDA-core kernels are for fp32 only; FA1 has some for 16 bits.
    if (p.dtype != DType::kFloat32) return multiply;
    return Engine::kCudaCores;
  }
  if (mma == "tf32x3") {
    if (const absl::Status s = Tf32Multiplies(p.dtype, capability); !s.ok()) return s;
    return Engine::kTf32x3;
  }
  if (mma == "none") {
    if (p.dtype == DType::kFloat32) return Engine::kCudaCores;
    return absl::UnimplementedError(
        absl::StrCat("config: mma=none is for fp32, but dtype is ", Name(p.dtype)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("config: mma=", mma, " is not one of auto, tf32x3, none"));
}

std::vector<TensorCoreTileRow> TensorCoreTilesOf(DType dtype) {
  std::vector<TensorCoreTileRow> tiles;
  for (const TensorCoreTileRow& tile : kTensorCoreTiles) {
    if (dtype == DType::kFloat16 || tile.size != TileSize::kSmall) tiles.push_back(tile);
  }
  return tiles;
}

// The row of a table for the problem. Errors are those of device/tile_choice.h.
template <typename Rows>
auto ChooseRow(const Rows& rows, const AttentionProblem& p, const DeviceInfo& device,
               const LaunchConfig& config, absl::string_view engine = "")
    -> absl::StatusOr<std::decay_t<decltype(rows[0])>> {
  std::vector<device::TileNeeds> tiles;
  for (const auto& row : rows) {
    tiles.push_back({row.head_dim, row.rows, row.keys, row.shared_bytes});
  }
  const absl::StatusOr<size_t> chosen =
      device::ChooseTile(tiles, p, device, config, device::kManyRows, engine);
  if (!chosen.ok()) return chosen.status();
  return rows[*chosen];
}

// Whether query heads that share a KV head share tiles.
enum class Packing { kAuto, kAlways, kNever };

absl::StatusOr<Packing> PackingOf(const LaunchConfig& config) {
  const std::string pack = config.Get("pack", "auto");
  if (pack == "auto") return Packing::kAuto;
  if (pack == "always") return Packing::kAlways;
  if (pack == "never") return Packing::kNever;
  return absl::InvalidArgumentError(
      absl::StrCat("config: pack=", pack, " is not one of auto, always, never"));
}

// By default, heads are packed if the query of one head would not fill a tile.
bool Packs(const AttentionProblem& p, Packing packing, int tile_rows) {
  if (packing == Packing::kAuto) return p.GroupSize() > 1 && p.sq < tile_rows;
  return packing == Packing::kAlways;
}

// The wanted order of blocks (device/tile_order.h).
struct Order {
  int64_t group_blocks = 0;   // per group of units, roughly
  double group_kv_bytes = 0;  // the most K and V of a group of several heads
  int64_t end_blocks = 0;     // that come after all groups, roughly
};

// On tensor cores, a group has as many blocks as run at a time. Its K and V take half of the L2
// cache; the rest is for Q, O and what comes next.
//
// CUDA-core blocks take ten times as long per tile of keys, and up to three run per multiprocessor,
// so the tail wave wastes most there. Their launch ends with short blocks, for which K and V are
// read once more. Their groups have twice as many blocks, with K and V that L2 surely holds, or
// those of one head.
Order OrderOf(Engine engine, const DeviceInfo& device, int blocks) {
  const int64_t together = std::max<int64_t>(1, int64_t{device.multiprocessors} * blocks);
  Order order;
  if (engine == Engine::kCudaCores) {
    order.group_blocks = 2 * together;
    order.group_kv_bytes = L2BytesForAll(device) * 2 / 3;
    order.end_blocks = together + together / 2;
  } else {
    order.group_blocks = together;
    order.group_kv_bytes = static_cast<double>(device.last_level_cache_bytes) / 2;
  }
  return order;
}

// The query tiles of each unit that come after all groups: those that see at most a quarter of the
// keys that others see.
int64_t EndTilesOf(const AttentionProblem& p, const Order& order, int64_t units, int64_t tiles,
                   int64_t tile_rows, int64_t pack) {
  if (p.mask == Mask::None() || units == 0) return 0;
  const int64_t wanted = std::min(tiles - 1, (order.end_blocks + units - 1) / units);
  int64_t end_tiles = 0;
  while (end_tiles < wanted) {
    const int64_t queries = device::QueriesOf(end_tiles + 1, tile_rows, pack, p.sq);
    const KvRange seen = VisibleKvOfRows(p.mask, 0, queries, p.sq, p.skv);
    if (seen.end - seen.begin > MostKeys(p) / 4) break;
    ++end_tiles;
  }
  return end_tiles;
}

int64_t GroupsOf(const AttentionProblem& p, const Order& order, int64_t units, int64_t tiles,
                 int32_t pack) {
  // If all blocks take equally long, heads run one after the other, so less of K and V is in use at
  // a time.
  if (p.mask == Mask::None()) return std::max<int64_t>(1, units);
  const double rounds =
      std::round(static_cast<double>(units * tiles) / static_cast<double>(order.group_blocks));
  const double kv_bytes =
      static_cast<double>(p.skv) * static_cast<double>((p.d + p.dv) * SizeOf(p.dtype));
  const double kv_heads = std::floor(order.group_kv_bytes / std::max(kv_bytes, 1.0));
  const double fit = std::max(1.0, kv_heads) * static_cast<double>(pack == 1 ? p.GroupSize() : 1);
  const double groups = std::max(rounds, std::ceil(static_cast<double>(units) / fit));
  return std::max<int64_t>(1, std::min(units, static_cast<int64_t>(groups)));
}

// Blocks per multiprocessor that there is shared memory for, at most `most`. A multiprocessor has 1
// KiB more shared memory than one block can have, and each block takes 1 KiB more than it asks for.
int BlocksAMultiprocessor(const DeviceInfo& device, int64_t shared_bytes, int64_t most) {
  if (device.shared_memory_per_block != 0) {
    most = std::min(most, (device.shared_memory_per_block + 1024) / (shared_bytes + 1024));
  }
  return static_cast<int>(std::max<int64_t>(1, most));
}

// Blocks per multiprocessor that there are registers for in any case. A thread has at most 255
// registers, which take the room of 256.
int64_t BlocksOfRegisters(const DeviceInfo& device, int threads) {
  return device.registers_per_multiprocessor / (256 * threads);
}

absl::StatusOr<Grid> GridFor(const AttentionProblem& p, bool packed, int tile_rows,
                             const Order& order) {
  const int32_t pack = packed ? static_cast<int32_t>(p.GroupSize()) : 1;
  const int64_t heads = p.hq / pack, units = p.b * heads;
  const int64_t tiles = TilesOf(p.sq * pack, tile_rows);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (tiles > 0 && units > kMost / tiles) {
    return absl::UnimplementedError(absl::StrCat("b: ", units, " heads of ", tiles,
                                                 " query tiles each are more than ", kMost,
                                                 " blocks, the limit of a launch"));
  }
  const int64_t end_tiles = EndTilesOf(p, order, units, tiles, tile_rows, pack);
  const int64_t groups = GroupsOf(p, order, units, tiles - end_tiles, pack);
  return device::MakeGrid(static_cast<uint32_t>(units), static_cast<uint32_t>(heads),
                          static_cast<uint32_t>(tiles), static_cast<uint32_t>(groups), pack,
                          static_cast<uint32_t>(end_tiles));
}

}  // namespace

int Options::Rows() const {
  switch (engine) {
    case Engine::kMma:
      return mma_tile.rows;
    case Engine::kTf32x3:
      return tf32_tile.rows;
    case Engine::kCudaCores:
      break;
  }
  return cuda_core_tile.rows;
}

std::vector<std::string> ConfigKeys() {
  return {
      "tile_q: query rows per tile, listed in docs/fa2.md [the first that fits]",
      "tile_kv: keys per tile, from the same list",
      "pack: auto (query heads of a KV head share tiles if the query is short), always or never "
      "[auto]",
      "mma: auto (tensor cores for 16 bits, CUDA cores for fp32), tf32x3 (fp32 on tensor cores as "
      "three products of TF32, from 8.0 on) or none (CUDA cores, fp32) [auto]",
  };
}

absl::StatusOr<Options> OptionsFor(const AttentionProblem& p, const DeviceInfo& device,
                                   int code_capability, const LaunchConfig& config) {
  if (absl::Status s = config.CheckKeys({"tile_q", "tile_kv", "pack", "mma"}); !s.ok()) return s;
  if (absl::Status s = CheckHeadDims(p); !s.ok()) return s;
  Options options;
  const absl::StatusOr<Engine> engine =
      EngineFor(p, std::min(device.compute_capability, code_capability), config);
  if (!engine.ok()) return engine.status();
  options.engine = *engine;
  const absl::StatusOr<Packing> packing = PackingOf(config);
  if (!packing.ok()) return packing.status();
  switch (*engine) {
    case Engine::kMma: {
      const auto tile = ChooseRow(TensorCoreTilesOf(p.dtype), p, device, config);
      if (!tile.ok()) return tile.status();
      options.mma_tile = *tile;
      options.blocks = BlocksAMultiprocessor(device, tile->shared_bytes, tile->blocks);
      break;
    }
    case Engine::kTf32x3: {
      const auto tile = ChooseRow(kTf32Tiles, p, device, config, "mma=tf32x3");
      if (!tile.ok()) return tile.status();
      options.tf32_tile = *tile;
      options.blocks = BlocksAMultiprocessor(device, tile->shared_bytes, tile->blocks);
      break;
    }
    case Engine::kCudaCores: {
      // Packed heads fill a tile together. By default, a query too long for the small tile fills
      // the large or medium one by itself.
      const int64_t rows = *packing == Packing::kNever ? p.sq : p.sq * p.GroupSize();
      const auto tile = device::ChooseCudaCoreTile(p, device, config, rows, /*medium=*/true);
      if (!tile.ok()) return tile.status();
      options.cuda_core_tile = *tile;
      options.blocks = BlocksAMultiprocessor(
          device, tile->shared_bytes,
          std::max<int64_t>(tile->blocks, BlocksOfRegisters(device, tile->threads)));
      break;
    }
  }
  const absl::StatusOr<Grid> grid = GridFor(p, Packs(p, *packing, options.Rows()), options.Rows(),
                                            OrderOf(*engine, device, options.blocks));
  if (!grid.ok()) return grid.status();
  options.grid = *grid;
  return options;
}

}  // namespace attnlab::fa2
