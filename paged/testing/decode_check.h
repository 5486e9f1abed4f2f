// For tests: a decode loop with all parts of this directory and attention, on any device.
#ifndef PAGED_TESTING_DECODE_CHECK_H_
#define PAGED_TESTING_DECODE_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "attention/core/device.h"

namespace attnlab::paged {

struct DecodeCase {
  // One step of 3 sequences: "b=3,sq=1,lens=padded,page=…". skv is the number of steps.
  std::string problem;
  std::string kernel;  // "": the one that MakePlan() chooses
  std::string config;
  bool prefix_caching = true;
};

// Fills an empty cache, a token per step and sequence, with PageManager, BlockTable, CopyPages(),
// Append() and Forward(). On the way, a sequence is forked, and another is swapped out and in. On a
// GPU, the later steps replay a graph of one step.
//
// OK if in each step O and LSE have the bits that the kernel gives with contiguous K and V, and no
// other row was written. Internal says where they differ first. Other errors are the calls'.
absl::Status CheckDecode(const DecodeCase& c, Device device);

}  // namespace attnlab::paged

#endif  // PAGED_TESTING_DECODE_CHECK_H_
