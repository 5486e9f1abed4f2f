// An attention problem: what to compute, without where the data lies.
//
//   S = scale * Q Kᵀ,  S = softcap * tanh(S / softcap) if there is a cap,  P = softmax(mask(S)),
//   O = P V,  LSE = log(sum(exp(mask(S)))), the natural log, one per row.
//
// A problem is a value: it prints to and parses from one line, hashes and compares. It is the key
// of every benchmark row and test name. Pointers, strides and the lengths of individual sequences
// are passed separately, in AttentionTensors (tensors.h).
//
//   absl::StatusOr<AttentionProblem> p =
//       AttentionProblem::Parse("b=4,hq=32,hkv=8,sq=4096,skv=4096,d=128,dtype=bf16,mask=causal");
//
// The one-line form. Keys may come in any order, each at most once:
//
//   key      value                                              default
//   b        batch, at least 1                                  1
//   hq       query heads, at least 1                            required
//   hkv      KV heads, divides hq (hq: MHA, 1: MQA)             hq
//   sq       query length, at least 0                           required
//   skv      KV length, at least 0                              sq
//   d        head dim of Q and K, 1 to 512                      required
//   dv       head dim of V and O, 1 to 512                      d
//   dtype    of Q: fp32, fp16, bf16, fp8_e4m3                   bf16
//   kvdtype  of K and V: dtype; or fp8_e4m3 (an 8-bit cache)    dtype
//            if dtype is fp16 or bf16
//   vdtype   of V: that of K; or fp8_e5m2 if dtype is          kvdtype
//            fp8_e4m3
//   odtype   of O: dtype, but fp32, fp16 or bf16 if that        dtype; bf16 if that
//            is fp8_e4m3                                        is fp8_e4m3
//   mask     none, causal, window:LEFT:RIGHT (see mask.h)       none
//   scale    0, or 1e-12 to 1e12                                1/sqrt(d)
//   softcap  1e-12 to 1e12; 0 or none: no cap                   none
//   lens     fixed, packed, padded (see Lengths)                fixed
//   page     tokens per page of the KV cache, a power of two;   none
//            0 or none: not paged
//   scaleblock  64 or 128 if dtype is fp8_e4m3: so many rows    none
//            of a head have one scale; 0 or none: all have
#ifndef ATTENTION_CORE_PROBLEM_H_
#define ATTENTION_CORE_PROBLEM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attention/core/dtype.h"
#include "attention/core/mask.h"

namespace attnlab {

// How the lengths of the sequences of a batch vary.
enum class Lengths {
  kFixed,   // every sequence has sq queries and skv keys
  kPacked,  // tokens of all sequences one after another, no gaps; cu_seqlens has the offsets
  kPadded,  // each sequence has room for sq queries and skv keys; q_len[b] and kv_len[b] are used
};

struct AttentionProblem {
  int64_t b = 1;
  int64_t hq = 1;
  int64_t hkv = 1;
  int64_t sq = 0;   // the maximum over the batch, if lengths vary
  int64_t skv = 0;  // the maximum over the batch, if lengths vary
  int64_t d = 64;
  int64_t dv = 64;
  DType dtype = DType::kBFloat16;
  // Unset: the default. Read with KvDType(), VDType() and ODType(). K has KvDType().
  std::optional<DType> kv_dtype, v_dtype, o_dtype;
  Mask mask;
  std::optional<float> scale;  // unset: 1/sqrt(d)
  float softcap = 0;           // 0: no cap
  Lengths lens = Lengths::kFixed;
  int64_t page = 0;         // 0: K and V are not paged
  int64_t scale_block = 0;  // 0: one scale for all rows of a head (tensors.h)

  static constexpr int64_t kMaxHeadDim = 512;
  // Limits of scale and softcap: within them, their product and quotient fit in a float.
  static constexpr float kMinFactor = 1e-12f, kMaxFactor = 1e12f;
  static constexpr int64_t kMaxExtent = (int64_t{1} << 31) - 1;  // b, heads, sq, skv, window, page

  // Parses a line. InvalidArgument for an unknown, repeated, empty or missing key and for a value
  // that does not parse; also the errors of Validate().
  static absl::StatusOr<AttentionProblem> Parse(absl::string_view line);

  // The canonical line, with keys in the order above. Keys at their default are left out, except b,
  // hkv, skv, dtype and mask. Parse(ToString()) == *this for every valid problem.
  std::string ToString() const;

  // InvalidArgument names the first field that is out of range, its value and the limit.
  // OutOfRange if a tensor of the problem would have more than 2^60 bytes.
  absl::Status Validate() const;

  // The factor on Q Kᵀ: `scale`, or 1/sqrt(d).
  float Scale() const;

  DType KvDType() const { return kv_dtype.value_or(dtype); }
  DType VDType() const { return v_dtype.value_or(KvDType()); }
  DType ODType() const {
    return o_dtype.value_or(dtype == DType::kFloat8E4M3 ? DType::kBFloat16 : dtype);
  }

  // The number of pages that hold `tokens` tokens of a sequence.
  int64_t Pages(int64_t tokens) const { return (tokens + page - 1) / page; }

  // The number of scales for so many rows of a head of Q, K or V.
  int64_t ScaleBlocks(int64_t rows) const {
    return scale_block == 0 ? 1 : (rows + scale_block - 1) / scale_block;
  }

  // The index of the one that row `row` has.
  int64_t ScaleBlockOf(int64_t row) const { return scale_block == 0 ? 0 : row / scale_block; }

  // The number of query heads that share one KV head.
  int64_t GroupSize() const { return hq / hkv; }

  // All fields, for comparison and hashing.
  auto Key() const {
    return std::make_tuple(b, hq, hkv, sq, skv, d, dv, dtype, KvDType(), VDType(), ODType(),
                           static_cast<int>(mask.kind), mask.left, mask.right, scale, softcap, lens,
                           page, scale_block);
  }

  friend bool operator==(const AttentionProblem& a, const AttentionProblem& b) {
    return a.Key() == b.Key();
  }
  friend bool operator!=(const AttentionProblem& a, const AttentionProblem& b) { return !(a == b); }
  template <typename H>
  friend H AbslHashValue(H h, const AttentionProblem& p) {
    return H::combine(std::move(h), p.Key());
  }
};

// The work of a computation: arithmetic, and bytes moved to and from main memory.
struct Traffic {
  double flops = 0;  // a multiply-add counts 2
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  // Set by a model when the bytes read again depend on what L2 keeps, which no simple rule
  // predicts. bytes_read is then a guess, and tests do not hold a kernel to it.
  bool l2_decides = false;

  int64_t Bytes() const { return bytes_read + bytes_written; }
};

// Converts a model's bytes to an integer, at most 2^61. Repeated reads can exceed an int64.
int64_t WholeBytes(double bytes);

// The work that no implementation can avoid. FLOPs: the two matrix products over the (query, key)
// pairs that the mask lets through. Bytes read: Q, and each row of K and V that some query sees,
// once; for a paged cache also the page-table entries of these rows. Bytes written: O once, and LSE
// if `with_lse`. Exponentials, scales and lengths are not counted.
//
// A causal problem has s(s+1)/2 pairs per head, where papers count s²/2. At s = 512 that is 0.2 %
// more FLOPs.
//
// `q_lens` and `kv_lens`: the lengths of the b sequences if they vary. Empty: all sq and skv.
Traffic CompulsoryTraffic(const AttentionProblem& problem, bool with_lse = false,
                          absl::Span<const int32_t> q_lens = {},
                          absl::Span<const int32_t> kv_lens = {});

}  // namespace attnlab

#endif  // ATTENTION_CORE_PROBLEM_H_
