// Replays a trace of requests on a PageManager, as a serving engine with continuous batching would.
// There is no model and no GPU: only the pages are real.
//
//   absl::StatusOr<std::vector<Request>> requests = GenerateTrace(TraceOptions());
//   absl::StatusOr<std::unique_ptr<PageManager>> cache = PageManager::Create(options);
//   absl::StatusOr<ReplayReport> report = Replay(*requests, ReplayOptions(), **cache);
//
// A step of the engine takes a fixed time. In each step
//
// 1. sequences that were swapped out come back, then requests that have arrived are admitted, first
//    come, first served, while rows and pages suffice. The last token of a context is never taken
//    from the cache: the engine needs its output;
// 2. each running sequence generates a token. If pages run out, the sequence that was admitted last
//    is preempted: swapped to the host, or, without enough host pages, freed. Then it returns to
//    the front of the queue, and its context has the tokens that it had generated;
// 3. finished sequences are freed.
//
// A request runs in as many steps as it generates tokens, or in one if it generates none. Time without requests is skipped. A request
// that needs more pages than there are is rejected.
#ifndef PAGED_REPLAY_REPLAY_H_
#define PAGED_REPLAY_REPLAY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "paged/page_manager.h"
#include "paged/replay/trace.h"

namespace attnlab::paged {

struct ReplayOptions {
  double step = 0.02;  // seconds, 1e-6 to 1e6
  // Tokens that contiguous preallocation reserves for a sequence. 0: the context and the generated
  // tokens of the longest request that is not rejected.
  int64_t longest = 0;
  // Called now and then. Replay() ends early once `stopped` returns true.
  std::function<bool()> stopped;
  std::function<void(int64_t requests_done)> progress;
};

// What a step has, before finished sequences are freed; or the mean over all steps.
struct Load {
  double sequences = 0;  // that run
  double pages = 0;      // in use: a page of several sequences counts once
  double empty = 0;      // slots of these pages that hold no token
  double tokens = 0;     // of each running sequence, shared or not
};

struct ReplayReport {
  int64_t requests = 0, done = 0;
  int64_t rejected = 0;         // requests that need more pages than the pool has
  std::string first_rejection;  // the first one, and why
  int64_t swapped = 0;          // how often a sequence was preempted and went to the host
  int64_t recomputed = 0;       // how often one was preempted and freed
  bool stopped = false;         // the rest was not replayed

  int64_t steps = 0;   // of the engine
  double seconds = 0;  // simulated, from the first arrival to the end of the last step

  int64_t prompt_tokens = 0;  // of the contexts of admitted requests, those after recomputing too
  int64_t cached_tokens = 0;  // those of them that were in the cache
  int64_t generated_tokens = 0;  // by all sequences
  int64_t evictions = 0;         // pages that were reused while others could have found them
  int64_t copies = 0;            // pages copied before a write; only forks cause any
  int64_t pages_to_host = 0, pages_from_host = 0;  // copied by swapping

  int64_t page = 0, pages = 0;  // tokens per page, and pages of the pool
  int64_t longest = 0;          // ReplayOptions::longest
  Load average;                 // over the steps: time that was skipped does not count
  Load peak;                    // in the first step with the most pages in use
  Load crowd;                   // in the first step with the most running sequences

  // The share of all prompt tokens that was cached.
  double HitRate() const { return Share(static_cast<double>(cached_tokens), prompt_tokens); }
  // The share of the slots of pages in use that hold no token.
  double Waste(const Load& load) const { return Share(load.empty, PagedSlots(load)); }
  // The same for contiguous preallocation, which reserves `longest` slots for each sequence and
  // shares none.
  double ContiguousWaste(const Load& load) const {
    return Share(ContiguousSlots(load) - load.tokens, ContiguousSlots(load));
  }
  double PagedSlots(const Load& load) const { return load.pages * static_cast<double>(page); }
  double ContiguousSlots(const Load& load) const {
    return load.sequences * static_cast<double>(longest);
  }
  // How many times more sequences fit into the same memory: contiguous slots over paged slots.
  double TimesMore() const { return Share(ContiguousSlots(average), PagedSlots(average)); }

  // What the pool looked like, at most kMostSamples times. A sample is the step with the most pages
  // in use in `sample_seconds`, so that the peak is exact. The first begins at the first arrival.
  struct Sample {
    int64_t used = 0, evictable = 0;  // pages
    int64_t running = 0;              // the most sequences in the time of the sample
  };
  static constexpr size_t kMostSamples = 1000;
  std::vector<Sample> samples;
  double sample_seconds = 0;

 private:
  static double Share(double part, double all) { return all == 0 ? 0 : part / all; }
};

// `cache` must be new. InvalidArgument for a bad option or request; the message names it.
absl::StatusOr<ReplayReport> Replay(absl::Span<const Request> requests,
                                    const ReplayOptions& options, PageManager& cache);

}  // namespace attnlab::paged

#endif  // PAGED_REPLAY_REPLAY_H_
