#include "paged/page_manager_model.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attnlab::paged {

PageManagerModel::PageManagerModel(const PageManager::Options& options, Next next)
    : options_(options),
      next_(std::move(next)),
      manager_(std::move(PageManager::Create(options).value())),
      pages_(options.pages * options.page),
      host_pages_(options.host_pages * options.page),
      table_(options.sequences) {}

std::string PageManagerModel::Step() {
  // Only now and then, because it takes longer than the operation.
  const bool keeps_state = next_(4) == 0;
  const std::string before = keeps_state ? manager_->State() : "";
  const int64_t kind = next_(20);
  std::string error = kind < 4    ? Begin()
                      : kind < 9  ? Append()
                      : kind < 12 ? Commit()
                      : kind < 13 ? Fork()
                      : kind < 14 ? Truncate()
                      : kind < 15 ? Reclaim()
                      : kind < 17 ? Free()
                      : kind < 19 ? Swap()
                                  : WrongCalls();
  // An operation that failed, or had nothing to do, says so.
  if (error == "failed") {
    if (keeps_state && manager_->State() != before) {
      return absl::StrCat("a failed call changed\n", before, "into\n", manager_->State());
    }
    error.clear();
  }
  if (error.empty()) error = manager_->Inconsistency();
  if (error.empty()) error = CheckSequences();
  return error;
}

std::vector<int32_t> PageManagerModel::Tokens(int64_t most) {
  std::vector<int32_t> tokens(next_(most + 1));
  for (int32_t& token : tokens) token = static_cast<int32_t>(next_(2));
  return tokens;
}

std::vector<size_t> PageManagerModel::Some(bool swapped) {
  std::vector<size_t> some;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].swapped == swapped && next_(2) == 0) some.push_back(i);
  }
  return some;
}

std::vector<SequenceId> PageManagerModel::Ids(const std::vector<size_t>& some) const {
  std::vector<SequenceId> ids;
  for (const size_t i : some) ids.push_back(sequences_[i].id);
  return ids;
}

std::vector<PageManagerModel::Digest> PageManagerModel::Digests(const Sequence& s) const {
  std::vector<Digest> digests;
  Digest digest = s.salt + 1;
  for (const int32_t token : s.tokens) {
    digest = (digest ^ static_cast<uint32_t>(token + 7)) * 0x9e3779b97f4a7c15u;
    digest ^= digest >> 29;
    digests.push_back(digest);
  }
  return digests;
}

std::string PageManagerModel::Do(const std::vector<PageCopy>& copies) {
  for (const PageCopy& copy : copies) {
    const std::vector<Digest>& from = copy.kind == PageCopy::kFromHost ? host_pages_ : pages_;
    std::vector<Digest>& to = copy.kind == PageCopy::kToHost ? host_pages_ : pages_;
    std::copy_n(from.begin() + copy.from * options_.page, options_.page,
                to.begin() + copy.to * options_.page);
    ++seen_[copy.kind == PageCopy::kWithinPool ? "copy on write"
            : copy.kind == PageCopy::kToHost   ? "copy to host"
                                               : "copy from host"];
  }
  return "";
}

std::string PageManagerModel::CheckExhaustion(const absl::Status& status, int64_t least,
                                              int64_t most, int64_t available) {
  if (status.ok()) return least > available ? "more pages were taken than there are" : "";
  if (!absl::IsResourceExhausted(status)) return status.ToString();
  ++seen_["exhausted"];
  if (most <= available) return absl::StrCat("there are enough pages: ", status.ToString());
  return "failed";
}

std::string PageManagerModel::Begin() {
  Sequence s;
  s.salt = 3 * next_(3);  // also what the index calls pages
  // Often the beginning of another prompt.
  if (!sequences_.empty() && next_(2) == 0) {
    s.tokens = sequences_[Any()].tokens;
    s.tokens.resize(next_(static_cast<int64_t>(s.tokens.size()) + 1));
  }
  for (const int32_t token : Tokens(3 * options_.page)) s.tokens.push_back(token);

  const int64_t expected = manager_->CachedTokens(s.tokens, s.salt);
  const PageCounts before = manager_->counts();
  const absl::StatusOr<SequenceId> id = manager_->Begin(s.tokens, s.salt);
  if (!id.ok()) {
    if (static_cast<int64_t>(sequences_.size()) != options_.sequences)
      return id.status().ToString();
    ++seen_["no row"];
    return "failed";
  }
  s.id = *id;
  const int64_t cached = *manager_->Tokens(*id);
  if (cached != (options_.prefix_caching ? expected : 0))
    return "CachedTokens() is not what Begin() found";
  if (manager_->counts().cached_tokens != before.cached_tokens + cached)
    return "cached_tokens is wrong";
  // What a sequence has committed is there, unless pages before it were given back.
  int64_t least = 0;
  for (const Sequence& other : sequences_) {
    if (!options_.prefix_caching || other.salt != s.salt || other.swapped || other.reclaimed > 0)
      continue;
    const int64_t most = std::min<int64_t>(other.committed, s.tokens.size());
    const auto same =
        std::mismatch(s.tokens.begin(), s.tokens.begin() + most, other.tokens.begin());
    least =
        std::max<int64_t>(least, (same.first - s.tokens.begin()) / options_.page * options_.page);
  }
  if (cached < least) return absl::StrCat("found ", cached, " tokens, but others hold ", least);
  if (cached > 0) ++seen_["hit"];
  if (cached > least) ++seen_["hit of pages in no use"];
  s.tokens.resize(cached);
  s.committed = cached;
  sequences_.push_back(std::move(s));
  return "";
}

std::string PageManagerModel::Append() {
  const std::vector<size_t> some = Some(/*swapped=*/false);
  if (some.empty()) return "";
  std::vector<std::vector<int32_t>> tokens;
  std::vector<PageManager::NewTokens> batch;
  int64_t least = 0, most = 0;
  for (size_t n = 0; n < some.size(); ++n) tokens.push_back(Tokens(2 * options_.page));
  for (size_t n = 0; n < some.size(); ++n) {
    const Sequence& s = sequences_[some[n]];
    const auto size = static_cast<int64_t>(s.tokens.size());
    batch.push_back({s.id, tokens[n]});
    const auto pages = [&](int64_t count) { return (count + options_.page - 1) / options_.page; };
    const int64_t grows = pages(size + static_cast<int64_t>(tokens[n].size())) - pages(size);
    least += grows;
    most += grows + (size % options_.page != 0 && !tokens[n].empty() ? 1 : 0);
  }
  const PageCounts before = manager_->counts();
  std::vector<PageCopy> copies;
  const absl::Status status = manager_->Append(batch, &copies);
  const std::string error = CheckExhaustion(status, least, most, before.free + before.evictable);
  if (!error.empty()) return error;
  const PageCounts after = manager_->counts();
  if (before.used() + least + static_cast<int64_t>(copies.size()) < after.used()) {
    return "more pages are used than were asked for";
  }
  if (std::string e = Do(copies); !e.empty()) return e;
  // "Writes K and V".
  for (size_t n = 0; n < some.size(); ++n) {
    Sequence& s = sequences_[some[n]];
    const size_t begin = s.tokens.size();
    s.tokens.insert(s.tokens.end(), tokens[n].begin(), tokens[n].end());
    const std::vector<Digest> digests = Digests(s);
    const std::vector<PageId> pages = *manager_->Pages(s.id);
    for (size_t t = begin; t < s.tokens.size(); ++t) {
      pages_[pages[t / options_.page] * options_.page + t % options_.page] = digests[t];
    }
  }
  return "";
}

std::string PageManagerModel::Commit() {
  const std::vector<size_t> some = Some(/*swapped=*/false);
  const int64_t used = manager_->counts().used();
  if (absl::Status s = manager_->Commit(Ids(some)); !s.ok()) return s.ToString();
  if (manager_->counts().used() < used) ++seen_["page replaced by its twin"];
  for (const size_t i : some) {
    sequences_[i].committed = static_cast<int64_t>(sequences_[i].tokens.size());
  }
  return "";
}

std::string PageManagerModel::Fork() {
  if (sequences_.empty()) return "";
  Sequence s = sequences_[Any()];
  const absl::StatusOr<SequenceId> id = manager_->Fork(s.id);
  if (s.swapped)
    return absl::IsFailedPrecondition(id.status()) ? "failed" : "forked what is swapped out";
  if (!id.ok()) {
    return static_cast<int64_t>(sequences_.size()) == options_.sequences ? "failed"
                                                                         : id.status().ToString();
  }
  s.id = *id;
  sequences_.push_back(std::move(s));
  return "";
}

std::string PageManagerModel::Truncate() {
  const std::vector<size_t> some = Some(/*swapped=*/false);
  if (some.empty()) return "";
  Sequence& s = sequences_[some[0]];
  const auto size = static_cast<int64_t>(s.tokens.size());
  const int64_t tokens = next_(size + 2);
  const absl::Status status = manager_->Truncate(s.id, tokens);
  if (tokens > size || tokens < s.reclaimed * options_.page) {
    return absl::IsInvalidArgument(status) ? "failed" : "truncated to what is not there";
  }
  if (!status.ok()) return status.ToString();
  s.tokens.resize(tokens);
  s.committed = std::min(s.committed, tokens);
  return "";
}

std::string PageManagerModel::Reclaim() {
  const std::vector<size_t> some = Some(/*swapped=*/false);
  if (some.empty()) return "";
  Sequence& s = sequences_[some[0]];
  const int64_t token = next_(static_cast<int64_t>(s.tokens.size()) + 1);
  if (absl::Status r = manager_->Reclaim(s.id, token); !r.ok()) return r.ToString();
  s.reclaimed = std::max(s.reclaimed, token / options_.page);
  if (s.reclaimed > 0) ++seen_["reclaimed"];
  return "";
}

std::string PageManagerModel::Free() {
  std::vector<size_t> some;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (next_(4) == 0) some.push_back(i);
  }
  if (absl::Status s = manager_->Free(Ids(some)); !s.ok()) return s.ToString();
  for (size_t n = some.size(); n-- > 0;) sequences_.erase(sequences_.begin() + some[n]);
  return "";
}

std::string PageManagerModel::Swap() {
  const bool back = next_(2) == 0;
  const std::vector<size_t> some = Some(/*swapped=*/back);
  const PageCounts before = manager_->counts();
  int64_t pages = 0;
  for (const size_t i : some) {
    const Sequence& s = sequences_[i];
    pages +=
        (static_cast<int64_t>(s.tokens.size()) + options_.page - 1) / options_.page - s.reclaimed;
  }
  std::vector<PageCopy> copies;
  const absl::Status status =
      back ? manager_->SwapIn(Ids(some), &copies) : manager_->SwapOut(Ids(some), &copies);
  const std::string error = back ? CheckExhaustion(status, 0, pages, before.free + before.evictable)
                                 : CheckExhaustion(status, pages, pages, before.host_free);
  if (!error.empty()) return error;
  if (static_cast<int64_t>(copies.size()) < pages) ++seen_["came back without a copy"];
  for (const size_t i : some) {
    sequences_[i].swapped = !back;
    sequences_[i].committed = 0;
  }
  return Do(copies);
}

std::string PageManagerModel::WrongCalls() {
  const SequenceId none{static_cast<int32_t>(next_(options_.sequences + 2)) - 1, 1u << 30};
  std::vector<PageCopy> copies;
  if (!absl::IsNotFound(manager_->Commit({none})))
    return "a sequence that is not there was committed";
  if (!absl::IsNotFound(manager_->Tokens(none).status()))
    return "a sequence that is not there has tokens";
  const std::vector<size_t> some = Some(/*swapped=*/false);
  if (some.empty()) return "failed";
  std::vector<SequenceId> ids = Ids(some);
  ids.push_back(ids[0]);
  if (!absl::IsInvalidArgument(manager_->Free(ids))) return "freed twice";
  if (!absl::IsInvalidArgument(manager_->SwapOut(ids, &copies))) return "swapped out twice";
  if (!absl::IsFailedPrecondition(manager_->SwapIn({ids[0]}, &copies)))
    return "swapped in what is in";
  return "failed";
}

std::string PageManagerModel::CheckSequences() {
  // Not after each operation, so that changes of several come together.
  const bool take_changes = next_(3) == 0;
  if (take_changes) {
    std::vector<TableChange> changes;
    manager_->TakeTableChanges(&changes);
    for (const TableChange& change : changes) {
      std::vector<PageId>& row = table_[change.row];
      row.resize(std::max<size_t>(row.size(), change.column + 1), kNoPage);
      row[change.column] = change.page;
    }
  }
  for (const Sequence& s : sequences_) {
    if (*manager_->Tokens(s.id) != static_cast<int64_t>(s.tokens.size()))
      return "wrong number of tokens";
    if (s.swapped) continue;
    const std::vector<Digest> digests = Digests(s);
    const std::vector<PageId> pages = *manager_->Pages(s.id);
    for (size_t t = s.reclaimed * options_.page; t < digests.size(); ++t) {
      const PageId page = pages[t / options_.page];
      if (pages_[page * options_.page + t % options_.page] != digests[t]) {
        return absl::StrCat("row ", s.id.row, "'s token ", t, " in page ", page,
                            " is not its own; tokens ", absl::StrJoin(s.tokens, ""));
      }
    }
    for (size_t i = s.reclaimed; take_changes && i < pages.size(); ++i) {
      if (table_[s.id.row].size() <= i || table_[s.id.row][i] != pages[i]) {
        return absl::StrCat("the table's row ", s.id.row, " is old at ", i);
      }
    }
  }
  return "";
}

}  // namespace attnlab::paged
