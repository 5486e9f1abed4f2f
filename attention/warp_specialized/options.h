// What the warp-specialised family chooses for a problem.
#ifndef ATTENTION_WARP_SPECIALIZED_OPTIONS_H_
#define ATTENTION_WARP_SPECIALIZED_OPTIONS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/device/tile_order.h"
#include "attention/warp_specialized/shares.h"

namespace attnlab::warp_specialized {

// A shape of hopper_shape.h.
struct HopperTile {
  int bytes = 0;                     // of an element of Q, K and V
  bool e5m2_v = false;               // V is fp8_e5m2
  bool pretransposed = false;        // V is transposed by a kernel of its own
  int head_dim = 0, head_dim_v = 0;  // the most that d and dv may be
  int rows = 0, keys = 0;
  int shared_bytes = 0;
  int64_t workspace_bytes = 0;  // of a block
  int part_bytes = 0;           // of a block that shares query tiles
  bool adds = false;            // can add to O of other keys
  bool pairs = false;           // two blocks may share copies
  bool stores_by_tma = false;   // can
};

struct Options {
  size_t shape = 0;  // among those of WithHopperShapes()
  HopperTile tile;
  device::Grid grid;
  // Keys that are copied at once. They lie in one page: it divides the keys of a tile, and those of a
  // page.
  int box_keys = 0;
  int blocks = 0;
  // Whether two blocks at a time, a cluster, have neighbouring query tiles of a head, and each copies half of K
  // and V to both. A tile of `grid` is that of both.
  bool pairs = false;
  // Whether blocks take the next tile when they need one: tiles may differ in length. If not, their
  // order is fixed.
  bool dynamic = false;
  // How blocks, or pairs, share the last query tiles, if they do (shares.h).
  Shares shares;
  // Whether consumers store O by TMA, of tensors that it can express.
  bool stores_by_tma = false;
  // If tile.pretransposed: the tiles of keys of a head, and the bytes of V transposed.
  int key_tiles = 0;
  int64_t transposed_bytes = 0;

  bool HasShares() const { return shares.each > 0; }
};

// `code_capability`: the compute capability for which the device code that runs there was compiled
// (attention/cuda/code_capability_of.h).
//
// Errors:
//
//   Unimplemented       GPUs and code other than those of compute capability 9.0; fp32; O of fp32 of fp8;
//                       pages of fewer than 8 keys; head dims above 256; rows that see too many keys; more
//                       than 2^31 - 1 query tiles; pairs=true for V of fp8_e5m2, head dims to 96, softcap, or
//                       pages that make 3 boxes of a tile of keys or more, and an odd number; shares=true with
//                       a mask or lengths, or where nothing is left to share; pretransposed=true but for
//                       fp8_e4m3 in tiles of head dim 128 or 256, or with softcap, lengths, pages, no keys, or dv
//                       that is no multiple of 16
//   InvalidArgument     a configuration with other keys than pairs, shares and pretransposed, or with neither true
//                       nor false
//   ResourceExhausted   a tile that does not fit the device's shared memory
absl::StatusOr<Options> OptionsFor(const AttentionProblem& problem, const DeviceInfo& device,
                                   int code_capability, const LaunchConfig& config);

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_OPTIONS_H_
