// Requests to a serving engine: from a CSV file, or generated.
//
//   arrival,context,generated,prefix,prefix_tokens
//   0.5,1200,300,assistant,1000
//   0.7,80,20
#ifndef PAGED_REPLAY_TRACE_H_
#define PAGED_REPLAY_TRACE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attnlab::paged {

struct Request {
  double arrival = 0;         // seconds
  int64_t context = 0;        // tokens of the prompt
  int64_t generated = 0;      // tokens that follow it
  int32_t prefix = -1;        // which prefix the context begins with; -1: none
  int64_t prefix_tokens = 0;  // how many tokens of the context are the prefix's
};

inline constexpr int64_t kMostRequests = 10'000'000;
inline constexpr int64_t kMostRequestTokens = (int64_t{1} << 31) - 1;  // context and generated
inline constexpr double kLatestArrival = 1e12;

// InvalidArgument for a member out of range.
absl::Status Validate(const Request& request);

// The tokens of the request's context and of what follows it, `count` in all. A token of a prefix is
// a negative number that stands for the prefix, any other is the request's own `number`. So two
// requests have the same tokens exactly as far as they share a prefix.
void MakeTokens(const Request& request, int32_t number, int64_t count,
                std::vector<int32_t>* tokens);

// Reads CSV as spreadsheets write it: quoted fields, lines that end in LF, CRLF or CR, a byte order
// mark. Blank lines, and lines that begin with #, are skipped. The first line names the columns; the
// last two may be missing, there and in each row. Rows may come in any order.
//
//   arrival        seconds, from 0 to 1e12
//   context        tokens of the prompt, at least 1
//   generated      tokens that follow it; both together at most 2^31 - 1
//   prefix         any name; requests with the same one begin with the same tokens
//   prefix_tokens  how many tokens of the context these are, if it is not all of them
//
// InvalidArgument names the line, the column, the value and the limit.
absl::StatusOr<std::vector<Request>> ParseTrace(absl::string_view csv);

struct TraceOptions {
  struct Range {
    int64_t least, most;
  };
  uint64_t seed = 0;
  int64_t requests = 1000;
  double rate = 10;                                    // per second; arrivals are a Poisson process
  Range context = {512, 2048}, generated = {64, 512};  // drawn uniformly
  int64_t prefixes = 0;       // each request begins with one of these, drawn uniformly
  int64_t prefix_tokens = 0;  // of each prefix: a part of the context
};

// The same options give the same requests. InvalidArgument for an option out of range.
absl::StatusOr<std::vector<Request>> GenerateTrace(const TraceOptions& options);

}  // namespace attnlab::paged

#endif  // PAGED_REPLAY_TRACE_H_
