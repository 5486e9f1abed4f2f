#include "attention/device/sequences.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

void ExpectSpan(const Span& span, int64_t batch, int64_t begin, int64_t length) {
  EXPECT_EQ(span.batch, batch);
  EXPECT_EQ(span.begin, begin);
  EXPECT_EQ(span.length, length);
}

TEST(SequencesTest, FixedHaveTheProblemsLength) {
  Sequences s;
  s.longest = 7;
  ExpectSpan(s[0], 0, 0, 7);
  ExpectSpan(s[3], 3, 0, 7);
}

TEST(SequencesTest, PaddedHaveTheirOwn) {
  const int32_t lengths[] = {0, 5, 7};
  Sequences s;
  s.lengths = lengths;
  s.longest = 7;
  ExpectSpan(s[0], 0, 0, 0);
  ExpectSpan(s[1], 1, 0, 5);
  ExpectSpan(s[2], 2, 0, 7);
}

TEST(SequencesTest, PackedFollowEachOther) {
  const int32_t offsets[] = {0, 4, 4, 9};
  Sequences s;
  s.offsets = offsets;
  s.longest = 5;
  s.tokens = 9;
  ExpectSpan(s[0], 0, 0, 4);
  ExpectSpan(s[1], 0, 4, 0);
  ExpectSpan(s[2], 0, 4, 5);
}

TEST(SequencesTest, NonsenseStaysWithinTheTensor) {
  const int32_t lengths[] = {-1, 8, INT32_MIN, INT32_MAX};
  Sequences padded;
  padded.lengths = lengths;
  padded.longest = 7;
  for (int i = 0; i < 4; ++i) ExpectSpan(padded[i], i, 0, i % 2 == 0 ? 0 : 7);

  const int32_t offsets[] = {-3, 20, 5, INT32_MAX, INT32_MIN};
  Sequences packed;
  packed.offsets = offsets;
  packed.longest = 6;
  packed.tokens = 9;
  ExpectSpan(packed[0], 0, 0, 6);  // 0..9, cut to the longest
  ExpectSpan(packed[1], 0, 9, 0);  // the end lies before the begin
  ExpectSpan(packed[2], 0, 5, 4);
  ExpectSpan(packed[3], 0, 9, 0);
}

}  // namespace
}  // namespace attnlab::device
