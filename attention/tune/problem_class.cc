#include "attention/tune/problem_class.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace attnlab::tune {
namespace {

// The power of two that is nearest in ratio, at most `most`; 0 stays.
int64_t Rounded(int64_t x, int64_t most = AttentionProblem::kMaxExtent) {
  if (x <= 0) return x;
  const int exponent = static_cast<int>(std::lround(std::log2(static_cast<double>(x))));
  int64_t power = int64_t{1} << exponent;
  while (power > most) power /= 2;
  return power;
}

}  // namespace

AttentionProblem ClassOf(const AttentionProblem& problem) {
  AttentionProblem p = problem;
  const int64_t group = p.GroupSize();
  p.b = Rounded(p.b);
  p.hkv = Rounded(p.hkv, AttentionProblem::kMaxExtent / group);
  p.hq = p.hkv * group;
  p.sq = Rounded(p.sq);
  p.skv = Rounded(p.skv);
  if (p.mask.kind == Mask::Kind::kSlidingWindow) {
    p.mask = Mask::SlidingWindow(Rounded(p.mask.left), Rounded(p.mask.right));
  }
  p.scale = std::nullopt;
  if (p.softcap != 0) p.softcap = 1;
  // Rounding up may exceed the largest tensor that there can be.
  while (!p.Validate().ok() && p.b > 1) p.b /= 2;
  return p.Validate().ok() ? p : problem;
}

}  // namespace attnlab::tune
