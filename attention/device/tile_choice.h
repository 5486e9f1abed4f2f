// Which tile of those that a kernel is compiled for a problem gets.
#ifndef ATTENTION_DEVICE_TILE_CHOICE_H_
#define ATTENTION_DEVICE_TILE_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"

namespace attnlab::device {

// What matters of a tile.
struct TileNeeds {
  int head_dim = 0;  // the most that d and dv may be
  int rows = 0, keys = 0;
  int shared_bytes = 0;  // dynamic shared memory a block
};

constexpr int64_t kManyRows = std::numeric_limits<int64_t>::max();

// The index of the tile for the problem's head dims, of which those that are large enough come
// after those that are not: of the least that is, the first that has the tile_q and tile_kv of the
// configuration, where it names them, and fits the device. Where it names neither, and the last of
// them has room for `rows` rows, the last that fits.
//
// Unimplemented for head dims above the largest; InvalidArgument for tiles that there are not, with
// those that there are; ResourceExhausted, with how much is needed and how much there is, for those
// that do not fit. `engine`: what messages call the kernel, as "mma=tf32x3"; empty where the
// configuration need not name it.
absl::StatusOr<size_t> ChooseTile(absl::Span<const TileNeeds> tiles,
                                  const AttentionProblem& problem, const DeviceInfo& device,
                                  const LaunchConfig& config, int64_t rows = kManyRows,
                                  absl::string_view engine = "");

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_TILE_CHOICE_H_
