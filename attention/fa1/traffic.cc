#include "attention/fa1/traffic.h"

#include <algorithm>
#include <cmath>

#include "attention/core/l2_reuse.h"

namespace attnlab::fa1 {

Traffic ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device, int64_t tile_rows) {
  // One block per query head, and one block per multiprocessor. With small tiles there may be more,
  // which run in step. Blocks take equally long. So the last blocks, which are fewer than the
  // multiprocessors, run by themselves.
  const int64_t blocks = p.b * p.hq, at_a_time = std::max(device.multiprocessors, 1);
  const int64_t last = blocks % at_a_time;
  ReadAgain again(L2BytesForAll(device));
  for (const int64_t part : {blocks - last, last}) {
    if (part == 0) continue;
    const auto group = static_cast<double>(p.GroupSize());
    KvWalk walk;
    walk.heads = static_cast<double>(part) / group;
    walk.heads_at_a_time = std::ceil(static_cast<double>(std::min(part, at_a_time)) / group);
    walk.rows = tile_rows;
    walk.shared = p.GroupSize() > 1;
    again.AddKv(p, walk);
  }
  Traffic traffic = CompulsoryTraffic(p);
  again.AddTo(&traffic);
  return traffic;
}

}  // namespace attnlab::fa1
