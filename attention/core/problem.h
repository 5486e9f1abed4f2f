// The attention problem: what is computed, without where the data lies.
//
//   S = scale * Q Kᵀ,  S = softcap * tanh(S / softcap) if there is a cap,  P = softmax(mask(S)),
//   O = P V,  LSE = log(sum(exp(mask(S)))) in natural log, one a row.
//
// A problem is a value: it prints to and parses from one line, hashes and compares, and is the
// key of every benchmark row and test name. Pointers, strides and the lengths of the single
// sequences come apart, in AttentionTensors (tensors.h).
//
//   absl::StatusOr<AttentionProblem> p =
//       AttentionProblem::Parse("b=4,hq=32,hkv=8,sq=4096,skv=4096,d=128,dtype=bf16,mask=causal");
//
// The one-line form, keys in any order, each at most once:
//
//   key      value                                              default
//   b        batch, at least 1                                  1
//   hq       query heads, at least 1                            required
//   hkv      KV heads, divides hq (hq: MHA, 1: MQA)             hq
//   sq       query length, at least 0                           required
//   skv      KV length, at least 0                              sq
//   d        head dim of Q and K, 1 to 512                      required
//   dv       head dim of V and O, 1 to 512                      d
//   dtype    fp32, fp16, bf16, fp8_e4m3: of Q                   bf16
//   kvdtype  of K and V: dtype; or fp8_e4m3, for a cache of     dtype
//            8 bits under Q of fp16 or bf16
//   odtype   of O: dtype; or fp32, fp16 or bf16 where dtype     dtype
//            is fp8_e4m3
//   mask     none, causal, window:LEFT:RIGHT (see mask.h)       none
//   scale    0, or 1e-12 to 1e12                                1/sqrt(d)
//   softcap  1e-12 to 1e12; 0 or none: no cap                   none
//   lens     fixed, packed, padded (see Lengths)                fixed
//   page     tokens a page of the KV cache, a power of two;     none
//            0 or none: not paged
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
  kPacked,  // tokens of all sequences in a row, without gaps; cu_seqlens mark where each begins
  kPadded,  // room for sq queries and skv keys each, of which q_len[b] and kv_len[b] are used
};

struct AttentionProblem {
  int64_t b = 1;
  int64_t hq = 1;
  int64_t hkv = 1;
  int64_t sq = 0;   // the maximum over the batch, where lengths vary
  int64_t skv = 0;  // the maximum over the batch, where lengths vary
  int64_t d = 64;
  int64_t dv = 64;
  DType dtype = DType::kBFloat16;
  std::optional<DType> kv_dtype, o_dtype;  // unset: dtype; KvDType() and ODType() say which
  Mask mask;
  std::optional<float> scale;  // unset: 1/sqrt(d)
  float softcap = 0;           // 0: no cap
  Lengths lens = Lengths::kFixed;
  int64_t page = 0;  // 0: K and V are not paged

  static constexpr int64_t kMaxHeadDim = 512;
  // Of scale and softcap: their product and their quotient stay within the range of a float.
  static constexpr float kMinFactor = 1e-12f, kMaxFactor = 1e12f;
  static constexpr int64_t kMaxExtent = (int64_t{1} << 31) - 1;  // of b, heads, sq, skv, window

  // The problem of the line. InvalidArgument for an unknown, repeated, empty or missing key, for
  // a value that is not one, and for whatever Validate() rejects.
  static absl::StatusOr<AttentionProblem> Parse(absl::string_view line);

  // The canonical line: keys in the order above, those at their default left out except b, hkv,
  // skv, dtype and mask. Parse(ToString()) == *this for every valid problem.
  std::string ToString() const;

  // InvalidArgument that names the first field out of its range, the value and the limit.
  // OutOfRange when a tensor of the problem would have more than 2^60 bytes.
  absl::Status Validate() const;

  // The factor on Q Kᵀ: `scale`, or 1/sqrt(d).
  float Scale() const;

  DType KvDType() const { return kv_dtype.value_or(dtype); }
  DType ODType() const { return o_dtype.value_or(dtype); }

  // Pages that `tokens` of a sequence take.
  int64_t Pages(int64_t tokens) const { return (tokens + page - 1) / page; }

  // Query heads that share one KV head.
  int64_t GroupSize() const { return hq / hkv; }

  // All fields, for comparison and hashing.
  auto Key() const {
    return std::make_tuple(b, hq, hkv, sq, skv, d, dv, dtype, KvDType(), ODType(),
                           static_cast<int>(mask.kind), mask.left, mask.right, scale, softcap, lens,
                           page);
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

// Work that a computation does: arithmetic, and bytes between it and main memory.
struct Traffic {
  double flops = 0;  // a multiply-add counts 2
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  // Of a model: how much is read again depends on what L2 keeps, which no simple rule says. Then
  // bytes_read is a guess that nothing is to be held to.
  bool l2_decides = false;

  int64_t Bytes() const { return bytes_read + bytes_written; }
};

// Bytes of a model as a whole number, at most 2^61: what is read again can be more than an int64
// counts.
int64_t WholeBytes(double bytes);

// What any implementation must do: the two matrix products over the (query, key) pairs that the
// mask lets through, each input row that some query sees read once, O written once, and LSE
// too if `with_lse`. Of a paged cache the table's entries of those rows, too. Exponentials, scales
// and lengths are not counted.
//
// A causal problem has s(s+1)/2 pairs a head, where papers count s²/2; at s = 512 that is 0.2 %
// more FLOPs.
//
// `q_lens` and `kv_lens`: the lengths of the b sequences where they vary; empty: all sq and skv.
Traffic CompulsoryTraffic(const AttentionProblem& problem, bool with_lse = false,
                          absl::Span<const int32_t> q_lens = {},
                          absl::Span<const int32_t> kv_lens = {});

}  // namespace attnlab

#endif  // ATTENTION_CORE_PROBLEM_H_
