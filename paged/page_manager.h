// The pages of a KV cache: which sequence has which pages, and what is shared.
//
// The manager decides; it never touches K and V. A step of a serving engine:
//
//   PageManager::Options options;
//   options.pages = 10'000;
//   absl::StatusOr<std::unique_ptr<PageManager>> cache = PageManager::Create(options);
//
//   absl::StatusOr<SequenceId> id = (*cache)->Begin(prompt);     // takes what is cached of the prompt
//   int64_t cached = *(*cache)->Tokens(*id);                     // K and V of these are there
//   std::vector<PageCopy> copies;
//   absl::Status s = (*cache)->Append({{*id, prompt.subspan(cached)}}, &copies);
//   // Do the copies, in order. Then write K and V of the new tokens, run attention.
//   s = (*cache)->Commit({*id});                                 // others may now share full pages
//   s = (*cache)->Free({*id});
//
// Sharing. Full pages of the same tokens after the same tokens are shared, if the salts are the same:
// K and V depend on nothing else. What else they depend on (a tenant, an adapter) belongs into the
// salt. Fork() shares all pages. A page that is shared, or that others can find, is never written:
// Append() copies it first.
//
// Order. Pages change hands without waiting for a GPU. So all copies, writes and reads of K and V
// must run in the order of the calls that caused them, as in one CUDA stream.
//
// Errors. A call that fails changes nothing.
//   InvalidArgument     an argument is wrong; the message names it, its value and the limit
//   NotFound            there is no such sequence (any more)
//   FailedPrecondition  the sequence is swapped out, or it is not
//   ResourceExhausted   there are too few pages, host pages or rows; the message says how many are
//                       needed, free, and evictable
//
// Threads. Any number of threads may call anything. Const functions run side by side, the others one
// at a time.
#ifndef PAGED_PAGE_MANAGER_H_
#define PAGED_PAGE_MANAGER_H_

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "paged/page_pool.h"

namespace attnlab::paged {

struct SequenceId {
  int32_t row = -1;  // of the block table
  uint32_t use = 0;  // which of the sequences that the row has had

  friend bool operator==(SequenceId a, SequenceId b) { return a.row == b.row && a.use == b.use; }
};

// Copy the whole page `from` to the page `to`.
struct PageCopy {
  enum Kind { kWithinPool, kToHost, kFromHost } kind;
  PageId from, to;  // indices into the pool or, on the host's side, into the host's pages
};

// Entry [row, column] of the block table became `page`.
struct TableChange {
  int32_t row, column;
  PageId page;
};

// Sequences whose first `pages` pages are the same.
struct SharedPrefix {
  int64_t pages = 0;
  std::vector<int64_t> members;  // indices into the sequences of the call, ascending
};

struct PageCounts {
  int64_t pages = 0;      // of the pool
  int64_t free = 0;       // in no use, with nothing worth keeping
  int64_t evictable = 0;  // in no use, but others can find them
  int64_t host_pages = 0, host_free = 0;
  int64_t sequences = 0;
  // Since the beginning.
  int64_t prompt_tokens = 0, cached_tokens = 0;  // given to Begin(), and found by it
  int64_t evictions = 0, copies = 0;             // pages

  int64_t used() const { return pages - free - evictable; }
};

class PageManager {
 public:
  struct Options {
    int64_t pages = 0;                  // of the pool, 1 to 2^30
    int64_t page = 16;                  // tokens per page, 1 to 256; kernels take powers of two
    int64_t host_pages = 0;             // for SwapOut(), 0 to 2^30
    int64_t sequences = 256;            // at a time: rows of the block table, 1 to 2^20
    int64_t most_tokens = 0;            // of a sequence, to 2^31 - 1; 0: as many as the pool holds
    bool prefix_caching = true;         // without: only Fork() shares
    uint64_t hash_mask = ~uint64_t{0};  // for tests: fewer bits let hashes collide
  };

  // InvalidArgument for an option out of range, ResourceExhausted without memory.
  static absl::StatusOr<std::unique_ptr<PageManager>> Create(const Options& options);

  const Options& options() const { return options_; }

  // A new sequence with the cached pages of this prompt. Only full pages are cached. An engine that
  // wants the output of the last token leaves it out of the prompt.
  absl::StatusOr<SequenceId> Begin(absl::Span<const int32_t> prompt, uint64_t salt = 0);

  // Adds tokens, and pages for them, to sequences that are all different. Adds to `copies`.
  struct NewTokens {
    SequenceId id;
    absl::Span<const int32_t> tokens;
  };
  absl::Status Append(absl::Span<const NewTokens> batch, std::vector<PageCopy>* copies);

  // K and V of all tokens of these sequences are written, or will be before what is caused by later
  // calls. Others may now find the full pages. A page whose tokens another one already holds is
  // given back, and replaced by that one.
  absl::Status Commit(absl::Span<const SequenceId> ids);

  // Another sequence with the same tokens, in the same pages.
  absl::StatusOr<SequenceId> Fork(SequenceId id);

  // Drops all tokens but the first `tokens`, such as those of a draft that were rejected.
  absl::Status Truncate(SequenceId id, int64_t tokens);

  // Gives back the pages that have only tokens before `token`, such as those that no window reaches
  // any more. Their entries in the block table stay as they are, with other sequences' K and V.
  absl::Status Reclaim(SequenceId id, int64_t token);

  // Ends sequences. What was committed can be found until its pages are needed.
  absl::Status Free(absl::Span<const SequenceId> ids);

  // Moves all pages of sequences to the host, or back. What is still cached comes back without a
  // copy. Adds to `copies`.
  absl::Status SwapOut(absl::Span<const SequenceId> ids, std::vector<PageCopy>* copies);
  absl::Status SwapIn(absl::Span<const SequenceId> ids, std::vector<PageCopy>* copies);

  // How many tokens of a prompt are cached now.
  int64_t CachedTokens(absl::Span<const int32_t> prompt, uint64_t salt = 0) const;

  absl::StatusOr<int64_t> Tokens(SequenceId id) const;
  // The sequence's row of the block table. Entries that Reclaim() has given back are kNoPage.
  absl::StatusOr<std::vector<PageId>> Pages(SequenceId id) const;

  // Groups of at least two sequences that share at least their first page, in the order of their
  // first members. A group has the longest prefix that all its members share.
  absl::StatusOr<std::vector<SharedPrefix>> SharedPrefixes(absl::Span<const SequenceId> ids) const;

  PageCounts counts() const;

  // Adds the entries of the block table that changed since the last call, for a copy elsewhere.
  void TakeTableChanges(std::vector<TableChange>* changes);

  // The tokens of each row's sequence, 0 where there is none or it is swapped out.
  void GetLengths(std::vector<int32_t>* lengths) const;
  // What `most_tokens` says, and the pages for so many.
  int64_t most_tokens() const { return most_tokens_; }
  int64_t columns() const { return PagesFor(most_tokens_); }

  // "" or what is wrong inside. For tests: takes time proportional to all pages.
  std::string Inconsistency() const;
  // All that a call can change, for tests: equal strings mean equal states.
  std::string State() const;

 private:
  struct Sequence {
    uint32_t use = 0;
    bool in_use = false;
    bool swapped = false;  // `pages` are the host's
    bool shares = true;    // whether its full pages go into the index
    bool changed = false;  // whether it is in changed_rows_
    uint64_t salt = 0;
    int64_t tokens = 0;
    int64_t first = 0;    // pages before it were reclaimed
    int64_t indexed = 0;  // pages up to here are in the index, or need not be looked at
    int64_t sent = 0;     // table entries up to here are as TakeTableChanges() gave them
    std::vector<PageId> pages;
  };

  explicit PageManager(const Options& options);

  int64_t PagesFor(int64_t tokens) const { return (tokens + options_.page - 1) / options_.page; }
  // OK if there is such a sequence, swapped out or not, as wanted.
  absl::Status Check(SequenceId id, bool swapped) const;
  // The same for several that must all be different.
  absl::Status CheckAll(absl::Span<const SequenceId> ids, bool swapped);
  void Prefetch(SequenceId id) const;  // any id
  absl::Status CheckDifferent(SequenceId id);
  absl::Status CheckAvailable(int64_t needed, int64_t available) const;

  absl::StatusOr<SequenceId> TakeRow();
  void SetPage(Sequence& s, int32_t row, int64_t index, PageId page);
  // The row's table entries from `index` on are not what TakeTableChanges() gave.
  void Changed(Sequence& s, int32_t row, int64_t index);
  // Drops the references to pages [begin, end), the last one first: the longer a prefix, the sooner
  // it is evicted.
  void Release(const Sequence& s, int64_t begin, int64_t end);

  const Options options_;
  const int64_t most_tokens_;
  mutable std::shared_mutex mutex_;
  PagePool pool_;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> free_rows_;
  std::vector<PageId> free_host_pages_;
  std::vector<int32_t> host_tokens_;
  std::vector<int32_t> changed_rows_;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, copies_ = 0;
  // A row's mark is the number of the last call that named it in a batch.
  std::vector<uint64_t> marks_;
  uint64_t calls_ = 0;
};

}  // namespace attnlab::paged

#endif  // PAGED_PAGE_MANAGER_H_
