#include "attention/cpu/tile.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "attention/cpu/rows.h"
#include "attention/cpu/targets.h"

// Highway compiles this file once for each target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/tile.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "attention/cpu/few_rows-inl.h"
#include "attention/cpu/panels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attnlab::cpu::HWY_NAMESPACE {
namespace {

// Writes O and LSE of row r from the state of its online softmax.
void FinishRow(const TileTask& t, int64_t r, float m, float sum, const float* o) {
  const float factor = sum == 0 ? 0.0f : t.v_scale / sum;  // without keys, O is zero
  StoreRowOf(t.o_dtype, o, factor, t.dv, t.o, OOffset(t, r));
  if (t.lse == nullptr) return;
  constexpr double kLn2 = 0.693147180559945309;
  t.lse[LseOffset(t, r)] = sum == 0
                               ? -std::numeric_limits<float>::infinity()
                               : static_cast<float>((double{m} + std::log2(double{sum})) * kLn2);
}

template <typename Tile>
void RunWith(const TileTask& t, void* scratch) {
  Tile tile(t, scratch);
  tile.Run();
  const int64_t rows = t.row_end - t.row_begin;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t r = t.row_begin + i;
    if (t.partial == nullptr) {
      FinishRow(t, r, tile.Max(i), tile.Sum(i), tile.Output(i));
    } else {
      const int64_t stride = PaddedFloats(t.dv);
      t.partial[2 * i] = tile.Max(i);
      t.partial[2 * i + 1] = tile.Sum(i);
      std::copy(tile.Output(i), tile.Output(i) + stride,
                t.partial + PaddedFloats(2 * rows) + i * stride);
    }
  }
}

template <typename K, typename V = K>
void Run(const TileTask& t, void* scratch) {
  if (t.q_len * t.group <= kFewRows) {
    RunWith<FewRowsTile<K, V>>(t, scratch);
  } else {
    RunWith<PanelTile<K, V>>(t, scratch);
  }
}

void Merge(const TileTask& task, int64_t chunk, const float* partials, int64_t partial_stride,
           void* memory) {
  TileTask t = task;
  t.kv_begin = 0;
  t.kv_end = t.kv_len;
  const int64_t rows = t.row_end - t.row_begin;
  const int64_t stride = PaddedFloats(t.dv);
  const Scratch scratch(memory, t.tile_q, t.tile_kv, t.d, t.dv);
  float* const o = scratch.o;
  const F df;
  for (int64_t i = 0; i < rows; ++i) {
    const KvRange visible = VisibleOfRow(t, t.row_begin + i);
    const auto for_each_chunk = [&](const auto& use) HWY_ATTR {
      if (visible.begin >= visible.end) return;
      for (int64_t c = visible.begin / chunk; c * chunk < visible.end; ++c) {
        use(partials + c * partial_stride);
      }
    };
    float m = -std::numeric_limits<float>::infinity();
    for_each_chunk([&](const float* p) HWY_ATTR { m = std::max(m, p[2 * i]); });
    const float subtrahend = std::isinf(m) && m < 0 ? 0 : m;
    float sum = 0;
    std::fill(o, o + stride, 0.0f);
    for_each_chunk([&](const float* p) HWY_ATTR {
      const VF factor = Exp2(hn::Set(df, p[2 * i] - subtrahend));
      sum += hn::GetLane(factor) * p[2 * i + 1];
      const float* from = p + PaddedFloats(2 * rows) + i * stride;
      for (int64_t j = 0; j < stride; j += kLanes) {
        hn::Store(hn::MulAdd(factor, hn::Load(df, from + j), hn::Load(df, o + j)), df, o + j);
      }
    });
    FinishRow(t, t.row_begin + i, m, sum, o);
  }
}

void RunFloat32(const TileTask& t, void* scratch) { Run<float>(t, scratch); }
void RunFloat16(const TileTask& t, void* scratch) { Run<Float16>(t, scratch); }
void RunBFloat16(const TileTask& t, void* scratch) { Run<BFloat16>(t, scratch); }
void RunFloat8(const TileTask& t, void* scratch) { Run<Float8E4M3>(t, scratch); }
void RunE5m2V(const TileTask& t, void* scratch) { Run<Float8E4M3, Float8E5M2>(t, scratch); }

const char* ThisTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace attnlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnlab::cpu {

// One function per element type of K and V, or pair of two, each compiled for every target.
HWY_EXPORT(RunFloat32);
HWY_EXPORT(RunFloat16);
HWY_EXPORT(RunBFloat16);
HWY_EXPORT(RunFloat8);
HWY_EXPORT(RunE5m2V);
HWY_EXPORT(Merge);
HWY_EXPORT(ThisTarget);

int64_t TileScratchBytes(int64_t tile_q, int64_t tile_kv, int64_t d, int64_t dv) {
  return Scratch(nullptr, tile_q, tile_kv, d, dv).bytes;
}

int64_t PartialFloats(int64_t rows, int64_t dv) {
  return PaddedFloats(2 * rows) + rows * PaddedFloats(dv);
}

void RunTile(const TileTask& task, void* scratch) {
  if (task.e5m2_v) return HWY_DYNAMIC_DISPATCH(RunE5m2V)(task, scratch);
  switch (task.kv_dtype) {
    case DType::kFloat32:
      return HWY_DYNAMIC_DISPATCH(RunFloat32)(task, scratch);
    case DType::kFloat16:
      return HWY_DYNAMIC_DISPATCH(RunFloat16)(task, scratch);
    case DType::kBFloat16:
      return HWY_DYNAMIC_DISPATCH(RunBFloat16)(task, scratch);
    case DType::kFloat8E4M3:
      return HWY_DYNAMIC_DISPATCH(RunFloat8)(task, scratch);
    case DType::kFloat8E5M2:
      break;  // of V only
  }
}

void MergeChunks(const TileTask& task, int64_t chunk, const float* partials, int64_t partial_stride,
                 void* scratch) {
  HWY_DYNAMIC_DISPATCH(Merge)(task, chunk, partials, partial_stride, scratch);
}

const char* TargetName() { return HWY_DYNAMIC_DISPATCH(ThisTarget)(); }

}  // namespace attnlab::cpu
#endif  // HWY_ONCE
