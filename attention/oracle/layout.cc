#include "attention/oracle/layout.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attnlab::oracle {

absl::string_view Name(Layout layout) {
  switch (layout) {
    case Layout::kBshd:
      return "bshd";
    case Layout::kBhsd:
      return "bhsd";
    case Layout::kQkv:
      return "qkv";
    case Layout::kStrided:
      return "strided";
    case Layout::kOdd:
      return "odd";
  }
  return "unknown";
}

absl::StatusOr<Layout> ParseLayout(absl::string_view name) {
  for (Layout layout : kAllLayouts) {
    if (name == Name(layout)) return layout;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("layout: \"", name, "\" is not one of bshd, bhsd, qkv, strided, odd"));
}

absl::Status CheckLayout(Layout layout, const AttentionProblem& p) {
  if (layout != Layout::kQkv) return absl::OkStatus();
  if (p.hq == p.hkv && p.sq == p.skv && p.d == p.dv && p.lens != Lengths::kPacked &&
      p.KvDType() == p.dtype && p.VDType() == p.dtype && p.page == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("layout: qkv needs hq = hkv, sq = skv, d = dv, one dtype, no pages and lens "
                   "other than packed, "
                   "unlike ",
                   p.ToString()));
}

Placement Place(Layout layout, DType dtype, int64_t batch, int64_t sequence, int64_t heads,
                int64_t dim) {
  Placement place;
  place.shape = {batch, sequence, heads, dim};
  const int64_t unit = 16 / SizeOf(dtype);  // elements in 16 bytes
  int64_t head = dim, row = heads * dim, sequences = sequence * heads * dim;
  switch (layout) {
    case Layout::kBshd:
    case Layout::kQkv:
      break;
    case Layout::kBhsd:
      head = sequence * dim;
      row = dim;
      break;
    case Layout::kStrided:
      head = (dim + unit - 1) / unit * unit + unit;
      row = heads * head + 2 * unit;
      sequences = sequence * row + 3 * unit;
      place.begin = unit;
      break;
    case Layout::kOdd:
      head = dim + (dim % 2 == 0 ? 1 : 2);
      row = heads * head + 3;
      sequences = sequence * row + 5;
      place.begin = 1;
      break;
  }
  place.strides = {sequences, row, head, 1};
  place.elements = place.begin + batch * sequences;
  return place;
}

int64_t ElementsToLast(const Placement& place) {
  int64_t last = place.begin;
  for (int axis = 0; axis < 4; ++axis) {
    if (place.shape[axis] == 0) return 0;
    last += (place.shape[axis] - 1) * place.strides[axis];
  }
  return last + 1;
}

}  // namespace attnlab::oracle
