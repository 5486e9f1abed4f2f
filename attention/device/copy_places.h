// How the threads of a block divide the copy of a tile.
#ifndef ATTENTION_DEVICE_COPY_PLACES_H_
#define ATTENTION_DEVICE_COPY_PLACES_H_

#include "attention/device/host_device.h"

namespace attnlab::device {

// Which parts of a tile a thread copies. The tile has kRows rows of kUnits units. Each thread
// copies kCount of them, evenly spaced. A warp covers kLanes units of 32 / kLanes rows at a time.
//
//   using Places = CopyPlaces<64, 16, 8, 256>;   // 64 rows of 16 units, 256 threads
//   const Places places = Places::Of(thread);
//   for (int down = 0; down < Places::kDown; ++down) {
//     if (!places.Has(down)) break;
//     for (int across = 0; across < Places::kAcross; ++across) {
//       Copy(places.Row(down), places.Unit(across));
//     }
//   }
template <int kRows, int kUnits, int kLanes, int kThreads>
struct CopyPlaces {
  static constexpr int kWarps = kThreads / 32, kGroups = kUnits / kLanes;
  // Warps side by side in a row. It is 1 if there are rows for all warps, because a thread needs
  // one address per row. Otherwise it is as many as divide the row evenly.
  static constexpr int kWarpColumns = kRows % (kWarps * (32 / kLanes)) == 0 ? 1
                                      : kGroups % kWarps == 0               ? kWarps
                                      : kGroups % (kWarps / 2) == 0         ? kWarps / 2
                                      : kGroups % 2 == 0                    ? 2
                                                                            : 1;
  static constexpr int kAcrossStep = kLanes * kWarpColumns, kAcross = kUnits / kAcrossStep;
  static constexpr int kDownStep = kThreads / kAcrossStep;
  static constexpr int kDown = (kRows + kDownStep - 1) / kDownStep;
  static constexpr int kCount = kAcross * kDown;
  static_assert(kUnits % kAcrossStep == 0 && kThreads % kAcrossStep == 0);

  ATTNLAB_HOST_DEVICE static CopyPlaces Of(int thread) {
    const int lane = thread % 32, warp = thread / 32;
    return {lane / kLanes + warp / kWarpColumns * (32 / kLanes),
            lane % kLanes + warp % kWarpColumns * kLanes};
  }
  // Whether the tile has the thread's row number `down`.
  ATTNLAB_HOST_DEVICE bool Has(int down) const {
    return kRows % kDownStep == 0 || Row(down) < kRows;
  }
  ATTNLAB_HOST_DEVICE int Row(int down) const { return row + down * kDownStep; }
  ATTNLAB_HOST_DEVICE int Unit(int across) const { return unit + across * kAcrossStep; }

  int row, unit;  // the thread's first
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_COPY_PLACES_H_
