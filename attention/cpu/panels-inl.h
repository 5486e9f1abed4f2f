// A tile of many query rows: panels of up to kPanel rows, two matrix products each.
//
//   transpose and scale Q
//   for each tile of keys that some row sees:
//     pack K and V (converted to floats) if they cannot be used in place
//     for each panel of rows:
//       Sᵀ = K Qᵀ                      ScoresBlock
//       P  = 2^(S - m), m, sum         SoftmaxColumn
//       O  = factor * O + P V          OutputsBlock
//   O / sum, LSE
//
// Tiles of keys begin at multiples of tile_kv whatever the rows. Sums go through keys in order, and
// partial sums are by position in the tile. So a row's bits depend on tile_kv, but not on the tile
// of rows that it is in.
//
// At the edges of the mask the products leave out what no row of a block sees. Sᵀ skips whole
// vectors of rows. For O, the keys that all rows of a block see are multiplied for the whole block.
// The keys before and after them are added row by row, to the rows that see them.
//
// Included once for each target, inside the file that dispatches.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "attention/core/stop.h"
#include "attention/cpu/convert-inl.h"
#include "attention/cpu/matmul-inl.h"
#include "attention/cpu/rows.h"
#include "attention/cpu/softmax-inl.h"
#include "attention/cpu/targets.h"
#include "attention/cpu/tile.h"
#include "hwy/highway.h"

#if defined(ATTENTION_CPU_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CPU_PANELS_INL_H_
#undef ATTENTION_CPU_PANELS_INL_H_
#else
#define ATTENTION_CPU_PANELS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace attnlab::cpu::HWY_NAMESPACE {

static_assert(kPanel <= kMaxPanel && kLanes <= kScratchLanes, "scratch is laid out for these");

constexpr BlockTable<decltype(ScoresBlock<1, 1>)> kScoresBlock = ATTNLAB_BLOCK_TABLE(ScoresBlock);
constexpr BlockTable<decltype(OutputsBlock<1, 1>)> kOutputsBlock =
    ATTNLAB_BLOCK_TABLE(OutputsBlock);

HWY_INLINE int64_t VectorsOf(int64_t floats) { return (floats + kLanes - 1) / kLanes; }

// K or V of the current tile as floats: `rows` + j * `stride` is key j of the tile.
struct FloatRows {
  const float* rows;
  int64_t stride;
};

// K, V: the elements of the tensors of these names.
template <typename K, typename V>
class PanelTile {
 public:
  PanelTile(const TileTask& task, void* memory)
      : t_(task),
        scratch_(memory, task.tile_q, task.tile_kv, task.d, task.dv),
        rows_(task.row_end - task.row_begin),
        o_stride_(PaddedFloats(task.dv)) {}

  void Run() {
    PackQueries();
    std::fill(scratch_.o, scratch_.o + rows_ * o_stride_, 0.0f);
    const int64_t padded = VectorsOf(rows_) * kLanes;
    std::fill(scratch_.m, scratch_.m + padded, -std::numeric_limits<float>::infinity());
    std::fill(scratch_.sum, scratch_.sum + padded, 0.0f);

    const int64_t begin = VisibleOfRow(t_, t_.row_begin).begin;
    const int64_t end = VisibleOfRow(t_, t_.row_end - 1).end;
    for (int64_t key = begin; key < end && !Stopping();) {
      const int64_t origin = key / t_.tile_kv * t_.tile_kv;
      const int64_t next = std::min(origin + t_.tile_kv, end);
      RunKeys(origin, key - origin, next - origin);
      key = next;
    }
  }

  // The state of row r of the tile.
  float Max(int64_t r) const { return scratch_.m[r]; }
  float Sum(int64_t r) const { return scratch_.sum[r]; }
  const float* Output(int64_t r) const { return scratch_.o + r * o_stride_; }

 private:
  // Panels [d][width], one after the other; `width` is kPanel except for the last panel.
  void PackQueries() {
    const float factor = t_.softcap != 0 ? t_.scale / t_.softcap : t_.scale * kLog2E;
    const int64_t stride = PaddedFloats(t_.d);
    for (int64_t r0 = 0; r0 < rows_; r0 += kLanes) {
      const int64_t count = std::min(rows_ - r0, kLanes);
      for (int64_t r = 0; r < kLanes; ++r) {
        float* to = scratch_.stage + r * stride;
        if (r < count) {
          const int64_t row = t_.row_begin + r0 + r;
          LoadRowOf(t_.dtype, t_.q, QOffset(t_, row), factor * QScale(t_, row), t_.d, to);
        } else {
          std::fill(to, to + t_.d, 0.0f);
        }
      }
      const int64_t panel = r0 / kPanel * kPanel;
      TransposeRows(scratch_.stage, stride, t_.d, scratch_.q + panel * t_.d + (r0 - panel),
                    PanelWidth(panel));
    }
  }

  int64_t PanelRows(int64_t panel) const { return std::min(rows_ - panel, kPanel); }
  int64_t PanelWidth(int64_t panel) const { return VectorsOf(PanelRows(panel)) * kLanes; }

  FloatRows Keys(int64_t origin, int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<K, float>) {
      // Rows that are far apart share few sets of the caches, so they are packed.
      const KeyRun<float> run = RunAt<float>(t_, t_.k, origin);
      if (t_.k.stride <= kNearFloats && run.count >= end) return {run.rows, t_.k.stride};
    }
    const int64_t stride = PaddedFloats(t_.d);
    Pack<K>(t_.k, origin, begin, end, t_.d, stride, 0, scratch_.k);
    return {scratch_.k, stride};
  }

  // Panels [key][kPanel], t_.tile_kv * kPanel floats apart.
  FloatRows Values(int64_t origin, int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<V, float>) {
      const KeyRun<float> run = RunAt<float>(t_, t_.v, origin);
      if (t_.dv == kPanel && t_.v.stride == kPanel && run.count >= end &&
          reinterpret_cast<uintptr_t>(run.rows) % (kLanes * sizeof(float)) == 0) {
        return {run.rows, kPanel};
      }
    }
    Pack<V>(t_.v, origin, begin, end, t_.dv, kPanel, t_.tile_kv * kPanel, scratch_.v);
    return {scratch_.v, kPanel};
  }

  // PackRows() for keys [begin, end) of a tile, wherever they lie. `to` is for key 0 of the tile.
  template <typename T>
  void Pack(const KvRows& kv, int64_t origin, int64_t begin, int64_t end, int64_t dim,
            int64_t width, int64_t panel_stride, float* to) {
    for (int64_t j = begin; j < end;) {
      const KeyRun<T> run = RunAt<T>(t_, kv, origin + j);
      const int64_t count = std::min(end - j, run.count);
      PackRows(run.rows, kv.stride, count, dim, width, panel_stride, to + j * width);
      j += count;
    }
  }

  // Keys [begin, end) of the tile of keys that starts at `origin`.
  void RunKeys(int64_t origin, int64_t begin, int64_t end) {
    const FloatRows k = Keys(origin, begin, end);
    const FloatRows v = Values(origin, begin, end);
    for (int64_t panel = 0; panel < rows_; panel += kPanel) {
      const int64_t count = PanelRows(panel);
      const int64_t width = PanelWidth(panel);
      float* const see_begin = scratch_.begin + panel;
      float* const see_end = scratch_.end + panel;
      // Ranges slide with the rows: the last row has the last begin, and the first row the first
      // end.
      const KvRange first = VisibleOfRow(t_, t_.row_begin + panel);
      const KvRange last = VisibleOfRow(t_, t_.row_begin + panel + count - 1);
      if (last.begin <= origin + begin && first.end >= origin + end) {
        std::fill(see_begin, see_begin + width, static_cast<float>(begin));
        std::fill(see_end, see_end + width, static_cast<float>(end));
      } else {
        for (int64_t r = 0; r < width; ++r) {
          // Lanes beyond the rows copy the last row.
          const int64_t row = t_.row_begin + panel + std::min(r, count - 1);
          const KvRange range = VisibleOfRow(t_, row);
          see_begin[r] = static_cast<float>(std::clamp(range.begin - origin, begin, end));
          see_end[r] = static_cast<float>(std::clamp(range.end - origin, begin, end));
        }
      }
      if (see_begin[0] >= see_end[width - 1]) continue;
      Scores(k, panel);
      Softmax(panel, origin);
      Outputs(v, panel);
    }
  }

  // Keys that some row, or all rows, of vector c of the panel see. Ranges slide with the rows, so
  // the first and the last row decide.
  int64_t SomeBegin(int64_t panel, int64_t c) const {
    return static_cast<int64_t>(scratch_.begin[panel + c * kLanes]);
  }
  int64_t SomeEnd(int64_t panel, int64_t c) const {
    return static_cast<int64_t>(scratch_.end[panel + (c + 1) * kLanes - 1]);
  }
  int64_t AllBegin(int64_t panel, int64_t c) const {
    return static_cast<int64_t>(scratch_.begin[panel + (c + 1) * kLanes - 1]);
  }
  int64_t AllEnd(int64_t panel, int64_t c) const {
    return static_cast<int64_t>(scratch_.end[panel + c * kLanes]);
  }

  void Scores(const FloatRows& k, int64_t panel) {
    const int64_t width = PanelWidth(panel);
    const int64_t vectors = width / kLanes;
    const float* q = scratch_.q + panel * t_.d;
    const int64_t end = SomeEnd(panel, vectors - 1);
    for (int64_t j = SomeBegin(panel, 0); j < end;) {
      const int64_t count = std::min(end - j, kBlockRows);
      int64_t c0 = 0, c1 = vectors;
      while (c0 < c1 && SomeEnd(panel, c0) <= j) ++c0;
      while (c0 < c1 && SomeBegin(panel, c1 - 1) >= j + count) --c1;
      if (c0 < c1) {
        kScoresBlock[count - 1][c1 - c0 - 1](k.rows + j * k.stride, k.stride, q + c0 * kLanes,
                                             width, t_.d, scratch_.s + j * width + c0 * kLanes,
                                             width);
      }
      j += count;
    }
  }

  void Softmax(int64_t panel, int64_t origin) {
    const int64_t width = PanelWidth(panel);
    for (int64_t c = 0; c < width / kLanes; ++c) {
      const int64_t row = panel + c * kLanes;
      const int64_t begin = SomeBegin(panel, c);
      const int64_t end = SomeEnd(panel, c);
      if (begin >= end) {
        std::fill(scratch_.factor + row, scratch_.factor + row + kLanes, 1.0f);
        continue;
      }
      float* s = scratch_.s + c * kLanes;
      if (t_.k_scales.data != nullptr) ScaleKeys(s, width, begin, end, t_.k_scales, origin);
      if (t_.softcap != 0) CapScores(s, width, begin, end, t_.softcap * kLog2E);
      if (begin % kPartialSums == 0 && AllBegin(panel, c) <= begin && AllEnd(panel, c) >= end) {
        SoftmaxColumn(s, width, begin, end, AllVisible(), scratch_.m + row, scratch_.sum + row,
                      scratch_.factor + row);
      } else {
        const F df;
        SoftmaxColumn(
            s, width, begin / kPartialSums * kPartialSums, end,
            SomeVisible{hn::Load(df, scratch_.begin + row), hn::Load(df, scratch_.end + row)},
            scratch_.m + row, scratch_.sum + row, scratch_.factor + row);
      }
      // The sum has the weights as they were.
      if (t_.dtype == DType::kFloat8E4M3) RoundWeights(s, width, begin, end);
      if (t_.v_scales.data != nullptr) ScaleKeys(s, width, begin, end, t_.v_scales, origin);
    }
  }

  void Outputs(const FloatRows& v, int64_t panel) {
    const int64_t count = PanelRows(panel);
    for (int64_t r = 0; r < count; r += kBlockRows) {
      const int64_t n = std::min(count - r, kBlockRows);
      const float* begin = scratch_.begin + panel + r;
      const float* end = scratch_.end + panel + r;
      const bool alike = begin[0] == begin[n - 1] && end[0] == end[n - 1];
      for (int64_t c = 0; c < t_.dv; c += kPanel) {
        if (alike) {
          AddProducts(v, panel, r, n, c, begin[0], end[0], nullptr, scratch_.factor + panel + r,
                      scratch_.o + (panel + r) * o_stride_ + c, o_stride_);
        } else {
          AddAtEdge(v, panel, r, n, c);
        }
      }
    }
  }

  // Rows [r, r + n) of the panel, columns from c on, keys [begin, end); see OutputsBlock.
  void AddProducts(const FloatRows& v, int64_t panel, int64_t r, int64_t n, int64_t c, float begin,
                   float end, const float* sums, const float* factor, float* o, int64_t o_stride) {
    if (begin >= end) return;
    const int64_t width = PanelWidth(panel);
    const int64_t vectors = VectorsOf(std::min(t_.dv - c, kPanel));
    const int64_t key = static_cast<int64_t>(begin);
    kOutputsBlock[n - 1][vectors - 1](
        scratch_.s + key * width + r, width, v.rows + c * t_.tile_kv + key * v.stride, v.stride,
        static_cast<int64_t>(end) - key, sums, o_stride, factor, o, o_stride);
  }

  // The same for rows that do not all see the same keys. Each row's keys still go in order into
  // one sum, so that its bits do not depend on the rows that share its block.
  void AddAtEdge(const FloatRows& v, int64_t panel, int64_t r, int64_t n, int64_t c) {
    HWY_ALIGN_MAX float sums[kBlockRows * kPanel] = {};
    const float* begin = scratch_.begin + panel + r;
    const float* end = scratch_.end + panel + r;
    // The keys that all rows of the block see. If there are none, all keys are added row by row.
    const bool common = begin[n - 1] < end[0];
    const float all_begin = common ? begin[n - 1] : std::numeric_limits<float>::infinity();
    const float all_end = common ? end[0] : all_begin;
    const auto row_by_row = [&](int64_t i, float from, float to) HWY_ATTR {
      float* sum = sums + i * kPanel;
      AddProducts(v, panel, r + i, 1, c, from, to, sum, nullptr, sum, kPanel);
    };
    for (int64_t i = 0; i < n; ++i) row_by_row(i, begin[i], std::min(end[i], all_begin));
    AddProducts(v, panel, r, n, c, all_begin, all_end, sums, nullptr, sums, kPanel);
    for (int64_t i = 0; i < n; ++i) row_by_row(i, all_end, end[i]);

    const F df;
    const int64_t floats = VectorsOf(std::min(t_.dv - c, kPanel)) * kLanes;
    for (int64_t i = 0; i < n; ++i) {
      const VF factor = hn::Set(df, scratch_.factor[panel + r + i]);
      float* o = scratch_.o + (panel + r + i) * o_stride_ + c;
      for (int64_t at = 0; at < floats; at += kLanes) {
        const VF sum = hn::Load(df, sums + i * kPanel + at);
        hn::Store(hn::MulAdd(hn::Load(df, o + at), factor, sum), df, o + at);
      }
    }
  }

  // 2 KB, the size of a row of the largest head dim.
  static constexpr int64_t kNearFloats = 512;

  const TileTask& t_;
  const Scratch scratch_;
  const int64_t rows_;
  const int64_t o_stride_;
};

}  // namespace attnlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTENTION_CPU_PANELS_INL_H_
