// A tile of one to kFewRows query rows, as in decoding. Each key and value is used so rarely that
// loading it is the work, and a panel would be mostly empty. K and V are read once, in place, and
// converted in registers.
//
//   for each tile of keys:
//     for each query position, and its heads (they see the same keys):
//       S[head][key] = Q K, dot products along d, four keys at a time
//       P, m, sum: the online softmax along the keys
//       O += P V, sums of all columns of V in registers
//
// Included once for each target, inside the file that dispatches.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "attention/core/stop.h"
#include "attention/cpu/convert-inl.h"
#include "attention/cpu/rows.h"
#include "attention/cpu/softmax-inl.h"
#include "attention/cpu/targets.h"
#include "attention/cpu/tile.h"
#include "hwy/highway.h"

#if defined(ATTENTION_CPU_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CPU_FEW_ROWS_INL_H_
#undef ATTENTION_CPU_FEW_ROWS_INL_H_
#else
#define ATTENTION_CPU_FEW_ROWS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace attnlab::cpu::HWY_NAMESPACE {

// Keys of one step of the dot products, and vectors of V of one step of the outputs.
constexpr int kDotKeys = 4;
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kOutputVectors = 4;
#else
constexpr int kOutputVectors = 2;
#endif

// s[r * s_stride + j] = q_r . k_j for R rows of q and J rows of k. Rows of q are floats, padded
// with zeros, q_stride apart.
template <int R, int J, typename T>
void Dots(const float* HWY_RESTRICT q, int64_t q_stride, const T* HWY_RESTRICT k, int64_t k_stride,
          int64_t d, float* HWY_RESTRICT s, int64_t s_stride) {
  const F df;
  VF sum[R][J];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) sum[r][j] = hn::Zero(df);
  }
  const int64_t whole = d / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) {
      const VF key = LoadFloats(k + j * k_stride + i);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        sum[r][j] = hn::MulAdd(key, hn::Load(df, q + r * q_stride + i), sum[r][j]);
      }
    }
  }
  if (whole < d) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) {
      const VF key = LoadFloatsTail(k + j * k_stride + whole, d - whole);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        sum[r][j] = hn::MulAdd(key, hn::Load(df, q + r * q_stride + whole), sum[r][j]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) s[r * s_stride + j] = hn::GetLane(hn::SumOfLanes(df, sum[r][j]));
  }
}

// The online softmax of one row: replaces s[0, count) by 2^(s - m) and returns the factor for O. s
// is aligned and has room for a whole vector at the end.
HWY_INLINE float SoftmaxRow(float* HWY_RESTRICT s, int64_t count, float* m, float* sum) {
  const F df;
  const VF none = hn::Set(df, -std::numeric_limits<float>::infinity());
  for (int64_t j = count; j % kLanes != 0; ++j) s[j] = -std::numeric_limits<float>::infinity();
  VF max = none;
  for (int64_t j = 0; j < count; j += kLanes) max = hn::Max(max, hn::Load(df, s + j));
  const VF before = hn::Set(df, *m);
  const VF after = hn::Max(before, hn::MaxOfLanes(df, max));
  const VF subtrahend = Subtrahend(after);
  VF added = hn::Zero(df);
  for (int64_t j = 0; j < count; j += kLanes) {
    const VF p = Exp2(hn::Sub(hn::Load(df, s + j), subtrahend));
    hn::Store(p, df, s + j);
    added = hn::Add(added, p);
  }
  const float factor = hn::GetLane(Exp2(hn::Sub(before, subtrahend)));
  *sum = *sum * factor + hn::GetLane(hn::SumOfLanes(df, added));
  *m = hn::GetLane(after);
  return factor;
}

// o[r][c] = factor[r] * o[r][c] + sum over keys of p[r][j] v[begin + j][column + c], for R rows and C
// vectors of columns of V, whose elements are T. The last vector has `tail` columns.
template <int R, int C, typename T>
void AddValues(const float* HWY_RESTRICT p, int64_t p_stride, const TileTask& t, int64_t begin,
               int64_t keys, int64_t column, int64_t tail, const float* factor,
               float* HWY_RESTRICT o, int64_t o_stride) {
  const F df;
  VF sum[R][C];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      sum[r][c] = hn::Mul(hn::Load(df, o + r * o_stride + c * kLanes), hn::Set(df, factor[r]));
    }
  }
  for (int64_t j = 0; j < keys;) {
    const KeyRun<T> run = RunAt<T>(t, t.v, begin + j);
    const T* row = run.rows + column;
    for (const int64_t end = std::min(keys, j + run.count); j < end; ++j, row += t.v.stride) {
      VF value[C];
#pragma GCC unroll 4
      for (int c = 0; c < C - 1; ++c) value[c] = LoadFloats(row + c * kLanes);
      value[C - 1] = tail == kLanes ? LoadFloats(row + (C - 1) * kLanes)
                                    : LoadFloatsTail(row + (C - 1) * kLanes, tail);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const VF weight = hn::Set(df, p[r * p_stride + j]);
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) sum[r][c] = hn::MulAdd(weight, value[c], sum[r][c]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) hn::Store(sum[r][c], df, o + r * o_stride + c * kLanes);
  }
}

// K, V: the elements of the tensors of these names.
template <typename K, typename V>
class FewRowsTile {
 public:
  FewRowsTile(const TileTask& task, void* memory)
      : t_(task),
        scratch_(memory, task.tile_q, task.tile_kv, task.d, task.dv),
        rows_(task.row_end - task.row_begin),
        q_stride_(PaddedFloats(task.d)),
        s_stride_(PaddedFloats(task.tile_kv)),
        o_stride_(PaddedFloats(task.dv)) {}

  void Run() {
    const float factor = t_.softcap != 0 ? t_.scale / t_.softcap : t_.scale * kLog2E;
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t row = t_.row_begin + r;
      LoadRowOf(t_.dtype, t_.q, QOffset(t_, row), factor * QScale(t_, row), t_.d,
                scratch_.q + r * q_stride_);
      scratch_.m[r] = -std::numeric_limits<float>::infinity();
      scratch_.sum[r] = 0;
    }
    std::fill(scratch_.o, scratch_.o + rows_ * o_stride_, 0.0f);
    const int64_t begin = VisibleOfRow(t_, t_.row_begin).begin;
    const int64_t end = VisibleOfRow(t_, t_.row_end - 1).end;
    for (int64_t key = begin; key < end && !Stopping();) {
      const int64_t next = std::min((key / t_.tile_kv + 1) * t_.tile_kv, end);
      for (int64_t r = 0; r < rows_;) {
        // The heads at one position.
        const int64_t position = (t_.row_begin + r) / t_.group;
        const int64_t count = std::min((position + 1) * t_.group - t_.row_begin, rows_) - r;
        const KvRange visible = VisibleOfRow(t_, t_.row_begin + r);
        RunRows(r, count, std::clamp(visible.begin, key, next), std::clamp(visible.end, key, next));
        r += count;
      }
      key = next;
    }
  }

  float Max(int64_t r) const { return scratch_.m[r]; }
  float Sum(int64_t r) const { return scratch_.sum[r]; }
  const float* Output(int64_t r) const { return scratch_.o + r * o_stride_; }

 private:
  void RunRows(int64_t r, int64_t count, int64_t begin, int64_t end) {
    if (begin >= end) return;
    static_assert(kFewRows == 4, "one case a number of rows");
    switch (count) {
      case 1:
        return RunRows<1>(r, begin, end);
      case 2:
        return RunRows<2>(r, begin, end);
      case 3:
        return RunRows<3>(r, begin, end);
      case 4:
        return RunRows<4>(r, begin, end);
    }
  }

  template <int R>
  void RunRows(int64_t r, int64_t begin, int64_t end) {
    const int64_t keys = end - begin;
    const float* q = scratch_.q + r * q_stride_;
    const int64_t k_stride = t_.k.stride;
    for (int64_t j = 0; j < keys;) {
      const KeyRun<K> run = RunAt<K>(t_, t_.k, begin + j);
      const K* k = run.rows;
      const int64_t run_end = std::min(keys, j + run.count);
      for (; j + kDotKeys <= run_end; j += kDotKeys, k += kDotKeys * k_stride) {
        Dots<R, kDotKeys>(q, q_stride_, k, k_stride, t_.d, scratch_.s + j, s_stride_);
      }
      for (; j < run_end; ++j, k += k_stride) {
        Dots<R, 1>(q, q_stride_, k, k_stride, t_.d, scratch_.s + j, s_stride_);
      }
    }
    float factor[R];
    for (int i = 0; i < R; ++i) {
      float* s = scratch_.s + i * s_stride_;
      for (int64_t j = 0; j < keys && t_.k_scales.data != nullptr; ++j) {
        s[j] *= t_.k_scales.At(begin + j);
      }
      if (t_.softcap != 0) {
        for (int64_t at = keys; at % kLanes != 0; ++at) s[at] = 0;
        CapScores(s, kLanes, 0, (keys + kLanes - 1) / kLanes, t_.softcap * kLog2E);
      }
      factor[i] = SoftmaxRow(s, keys, scratch_.m + r + i, scratch_.sum + r + i);
      // The sum has the weights as they were.
      if (t_.dtype == DType::kFloat8E4M3) {
        RoundWeights(s, kLanes, 0, (keys + kLanes - 1) / kLanes);
      }
      for (int64_t j = 0; j < keys && t_.v_scales.data != nullptr; ++j) {
        s[j] *= t_.v_scales.At(begin + j);
      }
    }
    float* o = scratch_.o + r * o_stride_;
    int64_t c = 0;
    for (; c + kOutputVectors * kLanes <= t_.dv; c += kOutputVectors * kLanes) {
      AddValues<R, kOutputVectors, V>(scratch_.s, s_stride_, t_, begin, keys, c, kLanes, factor,
                                      o + c, o_stride_);
    }
    for (; c < t_.dv; c += kLanes) {
      AddValues<R, 1, V>(scratch_.s, s_stride_, t_, begin, keys, c, std::min(t_.dv - c, kLanes),
                         factor, o + c, o_stride_);
    }
  }

  const TileTask& t_;
  const Scratch scratch_;
  const int64_t rows_;
  const int64_t q_stride_, s_stride_, o_stride_;
};

}  // namespace attnlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTENTION_CPU_FEW_ROWS_INL_H_
