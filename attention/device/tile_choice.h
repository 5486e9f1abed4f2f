// Chooses one of a kernel's compiled tiles for a problem.
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

// What the choice depends on.
struct TileNeeds {
  int head_dim = 0;  // the most that d and dv may be
  int rows = 0, keys = 0;
  int shared_bytes = 0;  // dynamic shared memory per block
};

constexpr int64_t kManyRows = std::numeric_limits<int64_t>::max();

// Returns the index of the tile for a problem. `tiles` is sorted by head dim. Candidates have the
// smallest head dim that is at least d and dv. They also have the configuration's tile_q and
// tile_kv, if it names them. The result is the first candidate that fits the device. If the
// configuration names neither and the last candidate has room for all `rows` rows, it is the last
// one that fits.
//
// Errors: Unimplemented for head dims above the largest. InvalidArgument for a tile that does not
// exist; the message lists those that do. ResourceExhausted for a tile that does not fit, with the
// bytes that it needs and the bytes that there are. `engine` is what messages call the kernel, such
// as "mma=tf32x3"; it is empty if the configuration need not name it.
absl::StatusOr<size_t> ChooseTile(absl::Span<const TileNeeds> tiles,
                                  const AttentionProblem& problem, const DeviceInfo& device,
                                  const LaunchConfig& config, int64_t rows = kManyRows,
                                  absl::string_view engine = "");

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_TILE_CHOICE_H_
