#include "paged/page_manager.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace attnlab::paged {
namespace {

constexpr int64_t kMostTokens = (int64_t{1} << 31) - 1;  // AttentionProblem::kMaxExtent

absl::Status CheckRange(absl::string_view name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", value, " is not in [", least, ", ", most, "]"));
}

// Sequences, or pages, whose memory is read early.
constexpr int64_t kAhead = 8;

std::string Name(SequenceId id) {
  return absl::StrCat("sequence (row ", id.row, ", use ", id.use, ")");
}

using Writer = std::unique_lock<std::shared_mutex>;
using Reader = std::shared_lock<std::shared_mutex>;

}  // namespace

PageManager::PageManager(const Options& options)
    : options_(options),
      most_tokens_(options.most_tokens != 0 ? options.most_tokens
                                            : std::min(options.pages * options.page, kMostTokens)),
      pool_(options.pages, options.page, options.hash_mask),
      sequences_(options.sequences),
      host_tokens_(options.host_pages * options.page),
      marks_(options.sequences) {
  // The first ones are taken first.
  for (int64_t i = options.sequences; i-- > 0;) free_rows_.push_back(static_cast<int32_t>(i));
  for (int64_t i = options.host_pages; i-- > 0;) free_host_pages_.push_back(static_cast<PageId>(i));
}

absl::StatusOr<std::unique_ptr<PageManager>> PageManager::Create(const Options& options) {
  constexpr int64_t kMostPages = int64_t{1} << 30;
  absl::Status s = CheckRange("pages", options.pages, 1, kMostPages);
  if (s.ok()) s = CheckRange("page", options.page, 1, 256);
  if (s.ok()) s = CheckRange("host_pages", options.host_pages, 0, kMostPages);
  if (s.ok()) s = CheckRange("sequences", options.sequences, 1, int64_t{1} << 20);
  if (s.ok()) s = CheckRange("most_tokens", options.most_tokens, 0, kMostTokens);
  if (!s.ok()) return s;
  try {
    return std::unique_ptr<PageManager>(new PageManager(options));
  } catch (const std::exception&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("pages: no memory for a manager of ", options.pages, " pages and ",
                     options.host_pages, " host pages of ", options.page, " tokens"));
  }
}

absl::Status PageManager::Check(SequenceId id, bool swapped) const {
  if (id.row < 0 || id.row >= options_.sequences || !sequences_[id.row].in_use ||
      sequences_[id.row].use != id.use) {
    return absl::NotFoundError(absl::StrCat(Name(id), ": does not exist"));
  }
  if (sequences_[id.row].swapped != swapped) {
    return absl::FailedPreconditionError(
        absl::StrCat(Name(id), swapped ? ": is not swapped out" : ": is swapped out"));
  }
  return absl::OkStatus();
}

void PageManager::Prefetch(SequenceId id) const {
  if (id.row < 0 || id.row >= options_.sequences) return;
  const char* const sequence = reinterpret_cast<const char*>(&sequences_[id.row]);
  __builtin_prefetch(sequence, 1);
  __builtin_prefetch(sequence + sizeof(Sequence) - 1, 1);
  __builtin_prefetch(&marks_[id.row], 1);
}

absl::Status PageManager::CheckDifferent(SequenceId id) {
  if (marks_[id.row] == calls_) {
    return absl::InvalidArgumentError(absl::StrCat(Name(id), ": is given twice"));
  }
  marks_[id.row] = calls_;
  return absl::OkStatus();
}

absl::Status PageManager::CheckAll(absl::Span<const SequenceId> ids, bool swapped) {
  ++calls_;
  for (const SequenceId id : ids) {
    absl::Status s = Check(id, swapped);
    if (s.ok()) s = CheckDifferent(id);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status PageManager::CheckAvailable(int64_t needed, int64_t available) const {
  if (needed <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "pages: ", needed, " needed, ", pool_.available() - pool_.evictable(), " free and ",
      pool_.evictable(), " evictable of ", options_.pages,
      available < pool_.available()
          ? absl::StrCat("; ", pool_.available() - available, " of these are to be kept")
          : ""));
}

absl::StatusOr<SequenceId> PageManager::TakeRow() {
  if (free_rows_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("sequences: 1 needed, 0 free of ", options_.sequences));
  }
  const int32_t row = free_rows_.back();
  free_rows_.pop_back();
  return SequenceId{row, sequences_[row].use};
}

void PageManager::SetPage(Sequence& s, int32_t row, int64_t index, PageId page) {
  s.pages[index] = page;
  Changed(s, row, index);
}

void PageManager::Changed(Sequence& s, int32_t row, int64_t index) {
  s.sent = std::min(s.sent, index);
  if (!s.changed) changed_rows_.push_back(row);
  s.changed = true;
}

void PageManager::Release(const Sequence& s, int64_t begin, int64_t end) {
  for (int64_t i = end; i-- > begin;) {
    if (i - kAhead >= begin) pool_.Prefetch(s.pages[i - kAhead]);
    pool_.Release(s.pages[i]);
  }
}

absl::StatusOr<SequenceId> PageManager::Begin(absl::Span<const int32_t> prompt, uint64_t salt) {
  const Writer lock(mutex_);
  const absl::StatusOr<SequenceId> id = TakeRow();
  if (!id.ok()) return id;
  Sequence& s = sequences_[id->row];
  s.in_use = true;
  s.shares = options_.prefix_caching;
  s.salt = salt;
  if (s.shares) {
    const std::vector<PageId> cached =
        pool_.Match(salt, static_cast<int64_t>(prompt.size()) / options_.page,
                    [&](int64_t i) { return prompt.data() + i * options_.page; });
    for (const PageId page : cached) pool_.Share(page);
    s.pages.assign(cached.begin(), cached.end());
    s.indexed = static_cast<int64_t>(cached.size());
    s.tokens = s.indexed * options_.page;
    Changed(s, id->row, 0);
  }
  prompt_tokens_ += static_cast<int64_t>(prompt.size());
  cached_tokens_ += s.tokens;
  return id;
}

absl::Status PageManager::Append(absl::Span<const NewTokens> batch, std::vector<PageCopy>* copies) {
  const Writer lock(mutex_);
  ++calls_;
  int64_t needed = 0;
  absl::Status too_long;  // said only if there are pages enough
  // Pages that are not written, because more than one sequence has them.
  std::vector<PageId> shared;
  for (const NewTokens& b : batch) {
    absl::Status status = Check(b.id, /*swapped=*/false);
    if (status.ok()) status = CheckDifferent(b.id);
    if (!status.ok()) return status;
    const Sequence& s = sequences_[b.id.row];
    const int64_t tokens = s.tokens + static_cast<int64_t>(b.tokens.size());
    if (tokens > most_tokens_ && too_long.ok()) {
      too_long = absl::InvalidArgumentError(
          absl::StrCat(Name(b.id), ": ", tokens, " tokens, above ", most_tokens_));
    }
    if (b.tokens.empty()) continue;
    needed += PagesFor(tokens) - static_cast<int64_t>(s.pages.size());
    if (s.tokens % options_.page == 0) continue;
    const PageId last = s.pages.back();
    if (pool_.Indexed(last)) {
      ++needed;
    } else if (pool_.References(last) > 1) {
      shared.push_back(last);
    }
  }
  // Of all sequences that have a page, the last one may write it.
  std::sort(shared.begin(), shared.end());
  for (auto begin = shared.begin(); begin != shared.end();) {
    const auto end = std::upper_bound(begin, shared.end(), *begin);
    needed += std::min<int64_t>(end - begin, pool_.References(*begin) - 1);
    begin = end;
  }
  if (absl::Status s = CheckAvailable(needed, pool_.available()); !s.ok()) return s;
  if (!too_long.ok()) return too_long;

  std::vector<PageId> taken(needed);
  pool_.Take(absl::MakeSpan(taken));
  auto next = taken.begin();
  for (const NewTokens& b : batch) {
    Sequence& s = sequences_[b.id.row];
    const int64_t used = s.tokens % options_.page;
    if (used != 0 && !b.tokens.empty()) {
      const PageId last = s.pages.back();
      if (pool_.Indexed(last) || pool_.References(last) > 1) {
        const PageId page = *next++;
        std::copy_n(pool_.Tokens(last), used, pool_.Tokens(page));
        copies->push_back({PageCopy::kWithinPool, last, page});
        ++copies_;
        pool_.Release(last);
        SetPage(s, b.id.row, s.tokens / options_.page, page);
      }
    }
    const auto old_pages = static_cast<int64_t>(s.pages.size());
    const auto added = static_cast<int64_t>(b.tokens.size());
    const int64_t new_pages = PagesFor(s.tokens + added) - old_pages;
    s.pages.insert(s.pages.end(), next, next + new_pages);
    next += new_pages;
    if (new_pages > 0) Changed(s, b.id.row, old_pages);
    for (int64_t i = 0; i < added;) {
      const int64_t at = s.tokens % options_.page;
      const int64_t count = std::min(options_.page - at, added - i);
      std::copy_n(&b.tokens[i], count, pool_.Tokens(s.pages[s.tokens / options_.page]) + at);
      i += count;
      s.tokens += count;
    }
  }
  return absl::OkStatus();
}

absl::Status PageManager::Commit(absl::Span<const SequenceId> ids) {
  const Writer lock(mutex_);
  if (absl::Status s = CheckAll(ids, /*swapped=*/false); !s.ok()) return s;
  const auto count = static_cast<int64_t>(ids.size());
  for (int64_t n = 0; n < count; ++n) {
    if (n + kAhead < count) {
      const Sequence& later = sequences_[ids[n + kAhead].row];
      if (later.shares && later.first == 0 && later.indexed == 0 && later.tokens >= options_.page) {
        pool_.PrefetchIndex(PagePool::Empty(later.salt), later.pages[0]);
      }
    }
    const SequenceId id = ids[n];
    Sequence& s = sequences_[id.row];
    for (int64_t full = s.tokens / options_.page; s.shares && s.indexed < full;) {
      // What follows a page that was given back would never be found, nor what follows one that has left the index,
      // as may be when a fork is committed whose first pages are others.
      s.shares = s.first < std::max<int64_t>(s.indexed, 1) &&
                 (s.indexed == 0 || pool_.Indexed(s.pages[s.indexed - 1]));
      if (!s.shares) break;
      const int64_t begin = s.indexed;
      const absl::Span<const PageId> pages =
          absl::MakeConstSpan(s.pages).subspan(begin, std::min(PagePool::kTogether, full - begin));
      PageId same[PagePool::kTogether];
      pool_.FindOrIndex(begin == 0 ? PagePool::Empty(s.salt) : pool_.After(s.pages[begin - 1]),
                        pages, same);
      for (size_t i = 0; i < pages.size(); ++i, ++s.indexed) {
        if (same[i] == pages[i]) continue;
        pool_.Share(same[i]);
        pool_.Release(pages[i]);
        SetPage(s, id.row, s.indexed, same[i]);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SequenceId> PageManager::Fork(SequenceId id) {
  const Writer lock(mutex_);
  if (absl::Status s = Check(id, /*swapped=*/false); !s.ok()) return s;
  const absl::StatusOr<SequenceId> fork = TakeRow();
  if (!fork.ok()) return fork;
  const Sequence& from = sequences_[id.row];
  Sequence& s = sequences_[fork->row];
  s.in_use = true;
  s.shares = from.shares;
  s.salt = from.salt;
  s.tokens = from.tokens;
  s.first = from.first;
  s.indexed = from.indexed;
  s.pages.assign(from.pages.begin(), from.pages.end());
  for (int64_t i = s.first; i < static_cast<int64_t>(s.pages.size()); ++i) pool_.Share(s.pages[i]);
  Changed(s, fork->row, 0);
  return fork;
}

absl::Status PageManager::Truncate(SequenceId id, int64_t tokens) {
  const Writer lock(mutex_);
  if (absl::Status s = Check(id, /*swapped=*/false); !s.ok()) return s;
  Sequence& s = sequences_[id.row];
  if (absl::Status r = CheckRange("tokens", tokens, s.first * options_.page, s.tokens); !r.ok()) {
    return r;
  }
  const int64_t kept = PagesFor(tokens);
  Release(s, kept, static_cast<int64_t>(s.pages.size()));
  s.pages.resize(kept);
  s.tokens = tokens;
  s.indexed = std::min(s.indexed, tokens / options_.page);
  return absl::OkStatus();
}

absl::Status PageManager::Reclaim(SequenceId id, int64_t token) {
  const Writer lock(mutex_);
  if (absl::Status s = Check(id, /*swapped=*/false); !s.ok()) return s;
  Sequence& s = sequences_[id.row];
  if (absl::Status r = CheckRange("token", token, 0, s.tokens); !r.ok()) return r;
  const int64_t first = std::max(s.first, token / options_.page);
  Release(s, s.first, first);
  std::fill(s.pages.begin() + s.first, s.pages.begin() + first, kNoPage);
  s.first = first;
  return absl::OkStatus();
}

absl::Status PageManager::Free(absl::Span<const SequenceId> ids) {
  const Writer lock(mutex_);
  ++calls_;
  for (const SequenceId id : ids) Prefetch(id);
  for (const SequenceId id : ids) {
    absl::Status s = Check(id, /*swapped=*/false);
    if (absl::IsFailedPrecondition(s)) s = absl::OkStatus();  // swapped out
    if (s.ok()) s = CheckDifferent(id);
    if (!s.ok()) return s;
    __builtin_prefetch(sequences_[id.row].pages.data());
  }
  const auto count = static_cast<int64_t>(ids.size());
  for (int64_t n = 0; n < count; ++n) {
    const SequenceId id = ids[n];
    // The page that is released first is far away; so are those of the next sequences.
    if (n + kAhead < count) {
      const Sequence& later = sequences_[ids[n + kAhead].row];
      if (!later.swapped && later.first < static_cast<int64_t>(later.pages.size())) {
        pool_.Prefetch(later.pages.back());
      }
    }
    Sequence& s = sequences_[id.row];
    const auto pages = static_cast<int64_t>(s.pages.size());
    if (s.swapped) {
      free_host_pages_.insert(free_host_pages_.end(), s.pages.begin() + s.first, s.pages.end());
    } else {
      Release(s, s.first, pages);
    }
    Sequence unused;
    unused.use = s.use + 1;
    unused.changed = s.changed;
    unused.pages = std::move(s.pages);  // keeps its memory for the row's next sequence
    unused.pages.clear();
    s = std::move(unused);
    free_rows_.push_back(id.row);
  }
  return absl::OkStatus();
}

absl::Status PageManager::SwapOut(absl::Span<const SequenceId> ids, std::vector<PageCopy>* copies) {
  const Writer lock(mutex_);
  if (absl::Status s = CheckAll(ids, /*swapped=*/false); !s.ok()) return s;
  int64_t needed = 0;
  for (const SequenceId id : ids) {
    const Sequence& s = sequences_[id.row];
    needed += static_cast<int64_t>(s.pages.size()) - s.first;
  }
  if (needed > static_cast<int64_t>(free_host_pages_.size())) {
    return absl::ResourceExhaustedError(absl::StrCat("host_pages: ", needed, " needed, ",
                                                     free_host_pages_.size(), " free of ",
                                                     options_.host_pages));
  }
  for (const SequenceId id : ids) {
    Sequence& s = sequences_[id.row];
    const auto pages = static_cast<int64_t>(s.pages.size());
    Release(s, s.first, pages);
    for (int64_t i = s.first; i < pages; ++i) {
      const PageId page = s.pages[i], host = free_host_pages_.back();
      free_host_pages_.pop_back();
      std::copy_n(pool_.Tokens(page), options_.page, &host_tokens_[host * options_.page]);
      copies->push_back({PageCopy::kToHost, page, host});
      s.pages[i] = host;
    }
    s.swapped = true;
    s.indexed = 0;
  }
  return absl::OkStatus();
}

absl::Status PageManager::SwapIn(absl::Span<const SequenceId> ids, std::vector<PageCopy>* copies) {
  const Writer lock(mutex_);
  if (absl::Status s = CheckAll(ids, /*swapped=*/true); !s.ok()) return s;
  std::vector<std::vector<PageId>> cached(ids.size());
  std::vector<PageId> kept;  // cached pages that are in the queue now
  int64_t needed = 0;
  for (size_t n = 0; n < ids.size(); ++n) {
    const Sequence& s = sequences_[ids[n].row];
    if (s.shares && s.first == 0) {
      cached[n] = pool_.Match(s.salt, s.tokens / options_.page,
                              [&](int64_t i) { return &host_tokens_[s.pages[i] * options_.page]; });
    }
    for (const PageId page : cached[n]) {
      if (pool_.References(page) == 0) kept.push_back(page);
    }
    needed +=
        static_cast<int64_t>(s.pages.size()) - s.first - static_cast<int64_t>(cached[n].size());
  }
  std::sort(kept.begin(), kept.end());
  const auto different = std::unique(kept.begin(), kept.end()) - kept.begin();
  if (absl::Status s = CheckAvailable(needed, pool_.available() - different); !s.ok()) return s;

  for (const std::vector<PageId>& pages : cached) {
    for (const PageId page : pages) pool_.Share(page);
  }
  for (size_t n = 0; n < ids.size(); ++n) {
    Sequence& s = sequences_[ids[n].row];
    s.swapped = false;
    s.indexed = static_cast<int64_t>(cached[n].size());
    std::vector<PageId> pages = std::move(cached[n]);
    pages.resize(s.pages.size(), kNoPage);
    const int64_t copied = std::max(s.first, s.indexed);
    pool_.Take(absl::MakeSpan(pages).subspan(copied));
    for (int64_t i = copied; i < static_cast<int64_t>(pages.size()); ++i) {
      const PageId host = s.pages[i];
      std::copy_n(&host_tokens_[host * options_.page], options_.page, pool_.Tokens(pages[i]));
      copies->push_back({PageCopy::kFromHost, host, pages[i]});
    }
    free_host_pages_.insert(free_host_pages_.end(), s.pages.begin() + s.first, s.pages.end());
    s.pages = std::move(pages);
    Changed(s, ids[n].row, 0);
  }
  return absl::OkStatus();
}

int64_t PageManager::CachedTokens(absl::Span<const int32_t> prompt, uint64_t salt) const {
  const Reader lock(mutex_);
  const std::vector<PageId> cached =
      pool_.Match(salt, static_cast<int64_t>(prompt.size()) / options_.page,
                  [&](int64_t i) { return prompt.data() + i * options_.page; });
  return static_cast<int64_t>(cached.size()) * options_.page;
}

absl::StatusOr<int64_t> PageManager::Tokens(SequenceId id) const {
  const Reader lock(mutex_);
  if (absl::Status s = Check(id, false); absl::IsNotFound(s)) return s;
  return sequences_[id.row].tokens;
}

absl::StatusOr<std::vector<PageId>> PageManager::Pages(SequenceId id) const {
  const Reader lock(mutex_);
  if (absl::Status s = Check(id, /*swapped=*/false); !s.ok()) return s;
  return sequences_[id.row].pages;
}

absl::StatusOr<std::vector<SharedPrefix>> PageManager::SharedPrefixes(
    absl::Span<const SequenceId> ids) const {
  const Reader lock(mutex_);
  std::vector<SharedPrefix> groups;
  absl::flat_hash_map<PageId, size_t> group_of;  // by first page
  for (size_t n = 0; n < ids.size(); ++n) {
    if (absl::Status s = Check(ids[n], /*swapped=*/false); !s.ok()) return s;
    const Sequence& s = sequences_[ids[n].row];
    const int64_t full = s.tokens / options_.page;
    if (full == 0 || s.first > 0) continue;
    const auto [entry, is_new] = group_of.try_emplace(s.pages[0], groups.size());
    if (is_new) groups.push_back({full, {}});
    SharedPrefix& group = groups[entry->second];
    const Sequence& leader =
        is_new ? s : sequences_[ids[static_cast<size_t>(group.members[0])].row];
    const int64_t most = std::min(group.pages, full);
    group.pages =
        std::mismatch(s.pages.begin(), s.pages.begin() + most, leader.pages.begin()).first -
        s.pages.begin();
    group.members.push_back(static_cast<int64_t>(n));
  }
  groups.erase(std::remove_if(groups.begin(), groups.end(),
                              [](const SharedPrefix& g) { return g.members.size() < 2; }),
               groups.end());
  return groups;
}

PageCounts PageManager::counts() const {
  const Reader lock(mutex_);
  PageCounts c;
  c.pages = options_.pages;
  c.evictable = pool_.evictable();
  c.free = pool_.available() - c.evictable;
  c.host_pages = options_.host_pages;
  c.host_free = static_cast<int64_t>(free_host_pages_.size());
  c.sequences = options_.sequences - static_cast<int64_t>(free_rows_.size());
  c.prompt_tokens = prompt_tokens_;
  c.cached_tokens = cached_tokens_;
  c.evictions = pool_.evictions();
  c.copies = copies_;
  return c;
}

void PageManager::TakeTableChanges(std::vector<TableChange>* changes) {
  const Writer lock(mutex_);
  for (const int32_t row : changed_rows_) {
    Sequence& s = sequences_[row];
    s.changed = false;
    if (s.swapped) continue;
    for (; s.sent < static_cast<int64_t>(s.pages.size()); ++s.sent) {
      const PageId page = s.pages[s.sent];
      if (page != kNoPage) changes->push_back({row, static_cast<int32_t>(s.sent), page});
    }
  }
  changed_rows_.clear();
}

void PageManager::GetLengths(std::vector<int32_t>* lengths) const {
  const Reader lock(mutex_);
  lengths->clear();
  for (const Sequence& s : sequences_) {
    lengths->push_back(s.swapped ? 0 : static_cast<int32_t>(s.tokens));
  }
}

std::string PageManager::Inconsistency() const {
  const Reader lock(mutex_);
  std::vector<int32_t> references(options_.pages);
  std::vector<bool> host_used(options_.host_pages);
  for (const PageId host : free_host_pages_) {
    if (host_used[host]) return absl::StrCat("host page ", host, " is free twice");
    host_used[host] = true;
  }
  int64_t in_use = 0;
  for (int64_t row = 0; row < options_.sequences; ++row) {
    const Sequence& s = sequences_[row];
    in_use += s.in_use ? 1 : 0;
    if (static_cast<int64_t>(s.pages.size()) != PagesFor(s.tokens)) {
      return absl::StrCat("row ", row, " has ", s.pages.size(), " pages for ", s.tokens, " tokens");
    }
    for (int64_t i = 0; i < static_cast<int64_t>(s.pages.size()); ++i) {
      const PageId page = s.pages[i];
      if ((page == kNoPage) != (i < s.first)) {
        return absl::StrCat("row ", row, " has page ", page, " at ", i, ", first ", s.first);
      }
      if (page == kNoPage) continue;
      if (!s.swapped) {
        ++references[page];
        if (s.shares && s.first == 0 && i < s.indexed && !pool_.Indexed(page)) {
          return absl::StrCat("row ", row, "'s page ", page, " at ", i, " is not in the index");
        }
      } else if (host_used[page]) {
        return absl::StrCat("host page ", page, " is free or used twice");
      } else {
        host_used[page] = true;
      }
    }
  }
  if (in_use + static_cast<int64_t>(free_rows_.size()) != options_.sequences) {
    return "rows in use and free rows are not all rows";
  }
  if (std::find(host_used.begin(), host_used.end(), false) != host_used.end()) {
    return "a host page is lost";
  }
  return pool_.Inconsistency(references);
}

std::string PageManager::State() const {
  const Reader lock(mutex_);
  std::string state =
      absl::StrCat("queue ", absl::StrJoin(pool_.Queue(), " "), "\nhost ",
                   absl::StrJoin(free_host_pages_, " "), "\nrows ", absl::StrJoin(free_rows_, " "),
                   "\nchanged ", absl::StrJoin(changed_rows_, " "), "\n");
  for (int64_t row = 0; row < options_.sequences; ++row) {
    const Sequence& s = sequences_[row];
    absl::StrAppend(&state, row, " use ", s.use, " in_use ", s.in_use, " swapped ", s.swapped,
                    " shares ", s.shares, " changed ", s.changed, " salt ", s.salt, " tokens ",
                    s.tokens, " first ", s.first, " indexed ", s.indexed, " sent ", s.sent, ":");
    for (const PageId page : s.pages) {
      absl::StrAppend(&state, " ", page);
      if (s.swapped || page == kNoPage) continue;
      absl::StrAppend(&state, "(", pool_.References(page), pool_.Indexed(page) ? "i:" : ":",
                      absl::StrJoin(absl::MakeConstSpan(pool_.Tokens(page), options_.page), "."),
                      ")");
    }
    absl::StrAppend(&state, "\n");
  }
  absl::StrAppend(&state, "counts ", prompt_tokens_, " ", cached_tokens_, " ", copies_, " ",
                  pool_.evictions(), "\n");
  return state;
}

}  // namespace attnlab::paged
