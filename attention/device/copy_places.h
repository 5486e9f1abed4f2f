// How the threads of a block share out the copy of a tile.
#ifndef ATTENTION_DEVICE_COPY_PLACES_H_
#define ATTENTION_DEVICE_COPY_PLACES_H_

#include "attention/device/host_device.h"

namespace attnlab::device {

// Which parts of a tile a thread copies: of kRows rows of kUnits units those at kCount places that
// lie evenly, warps of kLanes lanes side by side and the others below.
//
//   using Places = CopyPlaces<64, 16, 8, 256>;   // 64 rows of 16 units by 256 threads
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
  // Of the warps, side by side: one where there are rows for all of them, since what a thread has
  // of one row needs one address. Otherwise as many as divide the row.
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
  // Whether the tile has the one `down` below the first.
  ATTNLAB_HOST_DEVICE bool Has(int down) const {
    return kRows % kDownStep == 0 || Row(down) < kRows;
  }
  ATTNLAB_HOST_DEVICE int Row(int down) const { return row + down * kDownStep; }
  ATTNLAB_HOST_DEVICE int Unit(int across) const { return unit + across * kAcrossStep; }

  int row, unit;  // the first
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_COPY_PLACES_H_
