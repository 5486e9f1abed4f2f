// Where test data lies in memory: ways to place a tensor of four logical axes (batch, sequence,
// head, dim). They range from the usual ones to those that work only if a kernel follows strides.
#ifndef ATTENTION_ORACLE_LAYOUT_H_
#define ATTENTION_ORACLE_LAYOUT_H_

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/core/dtype.h"
#include "attention/core/problem.h"

namespace attnlab::oracle {

enum class Layout {
  kBshd,     // "bshd": [batch][sequence][head][dim]
  kBhsd,     // "bhsd": [batch][head][sequence][dim]
  kQkv,      // "qkv": Q, K and V of a token side by side, [batch][sequence][3][head][dim]
  kStrided,  // "strided": BSHD with gaps, every row still aligned to 16 bytes
  kOdd,      // "odd": BSHD with odd gaps, starting one element late; rows aligned to an element
};

constexpr std::array<Layout, 5> kAllLayouts = {Layout::kBshd, Layout::kBhsd, Layout::kQkv,
                                               Layout::kStrided, Layout::kOdd};

absl::string_view Name(Layout layout);

// The inverse of Name(). InvalidArgument lists the known names.
absl::StatusOr<Layout> ParseLayout(absl::string_view name);

// InvalidArgument, with the reason, if the layout cannot hold the problem: kQkv needs Q, K and V of
// the same shape and dtype, no pages and no packed lengths.
absl::Status CheckLayout(Layout layout, const AttentionProblem& problem);

// A tensor in an allocation of `elements`; its first element is at `begin`.
struct Placement {
  int64_t begin = 0;
  int64_t elements = 0;
  std::array<int64_t, 4> shape = {0, 0, 0, 0};
  std::array<int64_t, 4> strides = {0, 0, 0, 0};
};

// Places one tensor. kQkv is placed like kBshd: only the inputs share memory.
Placement Place(Layout layout, DType dtype, int64_t batch, int64_t sequence, int64_t heads,
                int64_t dim);

// Elements of the allocation up to the tensor's last one, without the gap after it. 0 for an empty
// tensor.
int64_t ElementsToLast(const Placement& place);

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_LAYOUT_H_
