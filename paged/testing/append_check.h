// For tests: Append() on any device against a simple computation in double.
#ifndef PAGED_TESTING_APPEND_CHECK_H_
#define PAGED_TESTING_APPEND_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "attention/core/device.h"
#include "attention/core/problem.h"

namespace attnlab::paged {

struct AppendCase {
  AttentionProblem problem;
  int64_t rotary_dim = 0;  // 0: no rotation
  bool interleaved = false;
  enum Queries { kNone, kApart, kInPlace } queries = kNone;  // rotated, too
  bool head_major = false;                                   // pages are [page][head][token][dim]
  int64_t gap = 0;  // elements between rows; odd ones make rows unaligned
  // A third of the page table names none of the pool, and the first packed row is no sequence's; on a GPU
  // only.
  bool lost_pages = false;
  // Offsets, lengths and page table are any integers; on a GPU only. Then rows may be written anywhere in
  // the cache and in Q, but nothing else.
  bool spoiled = false;
  uint64_t seed = 0;

  std::string ToString() const;
};

// Cases of every dtype, kind of lengths, rotation and layout, `count` of them drawn from a seed.
std::vector<AppendCase> AppendCases(uint64_t seed, int count);

// "" or what is wrong: a row of the cache or of Q that is not what it should be, or a byte elsewhere
// that was written.
std::string CheckAppend(const AppendCase& c, Device device);

}  // namespace attnlab::paged

#endif  // PAGED_TESTING_APPEND_CHECK_H_
