// Attention for one tile of query rows over a range of keys: one work item, for one thread.
//
// Rows. The query heads that share a KV head see the same keys, so a tile has rows of all of them:
// row r of a (sequence, KV head) is head r % group at query position r / group. Rows are ordered by
// position, so that the rows of a tile see nearly the same keys under a causal mask.
#ifndef ATTENTION_CPU_TILE_H_
#define ATTENTION_CPU_TILE_H_

#include <cstdint>

#include "attention/core/dtype.h"
#include "attention/core/mask.h"

namespace attnlab::cpu {

// K or V of a sequence and its KV head. Strides are in elements.
struct KvRows {
  const void* data = nullptr;  // the row of the first key; with pages, the first row of page 0
  int64_t stride = 0;          // from a key to the next one
  int64_t page_stride = 0;     // from a page to the next one
};

// Scales of one head's blocks of rows, or of several heads. Null: all 1.
struct BlockScales {
  const float* data = nullptr;  // of the first block
  int64_t block_stride = 0, head_stride = 0;
  int64_t rows = 0;  // of a block; 0: there is one block

  float At(int64_t row, int64_t head = 0) const {
    if (data == nullptr) return 1;
    return data[(rows == 0 ? 0 : row / rows * block_stride) + head * head_stride];
  }
};

// Strides are in elements. Data pointers point to the first row of the sequence and the first head
// of the group.
struct TileTask {
  DType dtype = DType::kFloat32;     // of q
  DType kv_dtype = DType::kFloat32;  // of k and v: dtype, or fp8_e4m3
  bool e5m2_v = false;               // k is fp8_e4m3, and v is fp8_e5m2
  DType o_dtype = DType::kFloat32;   // fp32, fp16 or bf16
  const void* q = nullptr;
  int64_t q_row_stride = 0, q_head_stride = 0;
  KvRows k, v;
  const int32_t* pages = nullptr;  // of the sequence, in order; null: K and V are not paged
  int page_bits = 0;               // log2 of the keys per page
  void* o = nullptr;
  int64_t o_row_stride = 0, o_head_stride = 0;
  float* lse = nullptr;  // null: not wanted
  int64_t lse_row_stride = 0, lse_head_stride = 0;

  int64_t d = 0, dv = 0;
  int64_t group = 1;  // query heads of this KV head
  int64_t q_len = 0, kv_len = 0;
  Mask mask;
  float scale = 1;  // of the scores, with the scale of K if that is one for all keys
  float v_scale = 1;
  // Of fp8 Q, and of its K and V if blocks of keys have scales of their own.
  BlockScales q_scales, k_scales, v_scales;
  float softcap = 0;

  int64_t row_begin = 0, row_end = 0;  // of the q_len * group rows
  int64_t kv_begin = 0, kv_end = 0;    // of the kv_len keys; those that the mask hides are skipped
  int64_t tile_q = 0;                  // most rows of any task; sizes the scratch
  int64_t tile_kv = 0;                 // keys that are worked on at a time

  // Null: write O and LSE. Otherwise the keys are one chunk of several, and the state of the online
  // softmax goes here for MergeChunks: PartialFloats() floats.
  float* partial = nullptr;
};

// A (sequence, KV head) with at most this many rows is computed by few_rows-inl.h.
constexpr int64_t kFewRows = 4;

// Bytes of scratch per thread; depends on tile_q, tile_kv, d and dv only. Scratch must be aligned
// to 64 bytes, and the size is a multiple of 64.
int64_t TileScratchBytes(int64_t tile_q, int64_t tile_kv, int64_t d, int64_t dv);

// Floats of the state of `rows` rows: m, the sum, and O not yet divided by it.
int64_t PartialFloats(int64_t rows, int64_t dv);

// Computes the task with the best instruction set that the processor has.
void RunTile(const TileTask& task, void* scratch);

// Merges the chunks of [0, kv_len), `chunk` keys each, and writes O and LSE. Their states begin at
// `partials` and are `partial_stride` floats apart. The task's kv_begin, kv_end and partial are
// ignored. Chunks are added in order, so the result does not depend on which thread computed them,
// or when.
void MergeChunks(const TileTask& task, int64_t chunk, const float* partials, int64_t partial_stride,
                 void* scratch);

// The instruction set in use, as Highway calls it: "AVX3", "AVX2", "SSE4", …
const char* TargetName();

}  // namespace attnlab::cpu

#endif  // ATTENTION_CPU_TILE_H_
