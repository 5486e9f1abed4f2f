// Where the rows of a tile lie, and what they see. Plain arithmetic, shared by all targets.
#ifndef ATTENTION_CPU_ROWS_H_
#define ATTENTION_CPU_ROWS_H_

#include <algorithm>
#include <cstdint>

#include "attention/core/mask.h"
#include "attention/cpu/tile.h"

namespace attnlab::cpu {

// Keys that row r of the (sequence, KV head) sees among [task.kv_begin, task.kv_end).
inline KvRange VisibleOfRow(const TileTask& t, int64_t r) {
  const KvRange all = VisibleKv(t.mask, r / t.group, t.q_len, t.kv_len);
  return {std::clamp(all.begin, t.kv_begin, t.kv_end), std::clamp(all.end, t.kv_begin, t.kv_end)};
}

// Elements from the data pointer to row r.
inline int64_t QOffset(const TileTask& t, int64_t r) {
  return r / t.group * t.q_row_stride + r % t.group * t.q_head_stride;
}
inline int64_t OOffset(const TileTask& t, int64_t r) {
  return r / t.group * t.o_row_stride + r % t.group * t.o_head_stride;
}
inline int64_t LseOffset(const TileTask& t, int64_t r) {
  return r / t.group * t.lse_row_stride + r % t.group * t.lse_head_stride;
}

// The scale of row r of Q.
inline float QScale(const TileTask& t, int64_t r) {
  return t.q_scales.At(r / t.group, r % t.group);
}

// Keys whose rows lie one stride apart.
template <typename T>
struct KeyRun {
  const T* rows;
  int64_t count;
};

// The keys of K or V from `key` < kv_len on: all of them, or with pages those of one page.
template <typename T>
KeyRun<T> RunAt(const TileTask& t, const KvRows& kv, int64_t key) {
  const T* const data = static_cast<const T*>(kv.data);
  if (t.pages == nullptr) return {data + key * kv.stride, t.kv_len - key};
  const int64_t page = int64_t{1} << t.page_bits, row = key & (page - 1);
  return {data + t.pages[key >> t.page_bits] * kv.page_stride + row * kv.stride, page - row};
}

// Floats that a row is padded to in scratch: a multiple of the longest vector, so that the layout
// does not depend on the target.
constexpr int64_t kScratchLanes = 16;
constexpr int64_t PaddedFloats(int64_t n) {
  return (n + kScratchLanes - 1) / kScratchLanes * kScratchLanes;
}

// A panel of query rows or of columns of V has at most this many floats in a row.
constexpr int64_t kMaxPanel = 64;

// One thread's scratch, in the caller's memory. All parts are aligned to 64 bytes.
struct Scratch {
  float* q = nullptr;      // Q, scaled: transposed panels [d][width]; or rows [padded d]
  float* stage = nullptr;  // [kScratchLanes][padded d]: rows of Q as floats
  float* k = nullptr;      // [tile_kv][padded d]
  float* v = nullptr;      // panels [tile_kv][kMaxPanel]
  float* s = nullptr;      // [tile_kv, padded][kMaxPanel]: scores, then P
  float* o = nullptr;      // [tile_q][padded dv]
  float* m = nullptr;      // [tile_q], as are these:
  float* sum = nullptr;
  float* factor = nullptr;
  float* begin = nullptr;  // the keys of the current tile that a row sees, from the tile's start
  float* end = nullptr;
  int64_t bytes = 0;

  Scratch(void* memory, int64_t tile_q, int64_t tile_kv, int64_t d, int64_t dv) {
    const int64_t rows = PaddedFloats(tile_q);
    const auto take = [&](int64_t floats) {
      float* part = reinterpret_cast<float*>(static_cast<char*>(memory) + bytes);
      bytes += PaddedFloats(floats) * static_cast<int64_t>(sizeof(float));
      return part;
    };
    q = take(rows * PaddedFloats(d));
    stage = take(kScratchLanes * PaddedFloats(d));
    k = take(tile_kv * PaddedFloats(d));
    v = take(tile_kv * ((dv + kMaxPanel - 1) / kMaxPanel * kMaxPanel));
    s = take((tile_kv + kScratchLanes) * kMaxPanel);
    o = take(rows * PaddedFloats(dv));
    m = take(rows);
    sum = take(rows);
    factor = take(rows);
    begin = take(rows);
    end = take(rows);
  }
};

}  // namespace attnlab::cpu

#endif  // ATTENTION_CPU_ROWS_H_
