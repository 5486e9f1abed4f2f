#include "paged/page_pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace attnlab::paged {

PagePool::PagePool(int64_t pages, int64_t page_tokens, uint64_t hash_mask)
    : page_tokens_(page_tokens),
      hash_mask_(hash_mask),
      pages_(pages),
      tokens_(pages * page_tokens),
      index_(pages, Hash{this}, Equal{this}),
      queue_(2 * pages, kNoPage) {
  for (int64_t page = 0; page < pages; ++page) EnqueueLast(static_cast<PageId>(page));
}

void PagePool::Take(absl::Span<PageId> taken) {
  for (size_t begin = 0; begin < taken.size(); begin += kTogether) {
    const absl::Span<PageId> together = taken.subspan(begin, kTogether);
    for (PageId& page : together) {
      page = DequeueFirst();
      pages_[page].references = 1;
      __builtin_prefetch(Tokens(page), 1);
      if (Indexed(page)) index_.prefetch(ByHash{pages_[page].hash});
    }
    for (const PageId page : together) {
      if (!Indexed(page)) continue;
      RemoveFromIndex(page);
      --evictable_;
      ++evictions_;
    }
  }
}

void PagePool::Share(PageId page) {
  if (pages_[page].references++ > 0) return;
  Dequeue(page);
  if (Indexed(page)) --evictable_;
}

void PagePool::Release(PageId page) {
  if (--pages_[page].references > 0) return;
  if (Indexed(page)) {
    ++evictable_;
    EnqueueLast(page);
  } else {
    EnqueueFirst(page);
  }
}

void PagePool::EnqueueFirst(PageId page) {
  if (length_ == queue_.size()) CloseGaps();
  first_ = (first_ == 0 ? queue_.size() : first_) - 1;
  ++length_;
  ++available_;
  PutAt(first_, page);
}

void PagePool::EnqueueLast(PageId page) {
  if (length_ == queue_.size()) CloseGaps();
  ++available_;
  PutAt(Wrap(first_ + length_++), page);
}

void PagePool::PutAt(size_t place, PageId page) {
  queue_[place] = page;
  pages_[page].place = static_cast<uint32_t>(place);
}

void PagePool::Dequeue(PageId page) {
  queue_[pages_[page].place] = kNoPage;
  --available_;
}

PageId PagePool::DequeueFirst() {
  constexpr size_t kAhead = 8;
  for (;;) {
    const PageId page = queue_[first_];
    queue_[first_] = kNoPage;
    first_ = Wrap(first_ + 1);
    --length_;
    if (kAhead < length_) {
      const PageId later = queue_[Wrap(first_ + kAhead)];
      if (later != kNoPage) Prefetch(later);
    }
    if (page == kNoPage) continue;
    --available_;
    return page;
  }
}

void PagePool::CloseGaps() {
  size_t length = 0;
  for (size_t i = 0; i < length_; ++i) {
    const PageId page = std::exchange(queue_[Wrap(first_ + i)], kNoPage);
    if (page != kNoPage) PutAt(Wrap(first_ + length++), page);
  }
  length_ = length;
}

uint64_t PagePool::HashAfter(uint64_t hash, const int32_t* tokens) const {
  const absl::string_view bytes(reinterpret_cast<const char*>(tokens),
                                page_tokens_ * sizeof(int32_t));
  return absl::HashOf(hash, bytes) & hash_mask_;
}

bool PagePool::Holds(PageId page, const Key& key) const {
  const Page& p = pages_[page];
  return p.before == key.prefix.before && (p.serial & 1) == key.prefix.empty &&
         std::memcmp(Tokens(page), key.tokens, page_tokens_ * sizeof(int32_t)) == 0;
}

void PagePool::FindOrIndex(Prefix prefix, absl::Span<const PageId> pages, PageId* same) {
  uint64_t hashes[kTogether];
  uint64_t hash = prefix.hash;
  for (size_t i = 0; i < pages.size(); ++i) {
    hashes[i] = hash = HashAfter(hash, Tokens(pages[i]));
    index_.prefetch(ByHash{hash});
  }
  for (size_t i = 0; i < pages.size(); ++i) {
    Page& p = pages_[pages[i]];
    // A fork can have put the page into the index after pages that were evicted since.
    if (Indexed(pages[i]) && p.before != prefix.before) RemoveFromIndex(pages[i]);

    const auto add = [&](const auto& construct) {
      serials_ += 2;
      p.serial = serials_ | (prefix.empty ? 1 : 0);
      p.hash = hashes[i];
      p.before = prefix.before;
      construct(pages[i]);
    };
    same[i] = *index_.lazy_emplace(Key{prefix, hashes[i], Tokens(pages[i])}, add);
    prefix = After(same[i]);
  }
}

void PagePool::RemoveFromIndex(PageId page) {
  index_.erase(page);
  pages_[page].serial = 0;
}

const char* PagePool::Inconsistency(const std::vector<int32_t>& references) const {
  const int64_t count = static_cast<int64_t>(pages_.size());
  std::vector<bool> queued(count), indexed(count);
  int64_t in_queue = 0, evictable = 0;
  for (const PageId page : Queue()) {
    if (queued[page]) return "a page is in the queue twice";
    if (queue_[pages_[page].place] != page) return "a page's place in the queue is another's";
    queued[page] = true;
    ++in_queue;
    evictable += Indexed(page) ? 1 : 0;
  }
  for (const PageId page : index_) indexed[page] = true;
  for (int64_t page = 0; page < count; ++page) {
    const Page& p = pages_[page];
    if (p.references != references[page]) return "a page's references are not its users";
    if (queued[page] != (p.references == 0))
      return "a page is in the queue if it has users, or not in it if none";
    if (indexed[page] != (p.serial != 0))
      return "a page outside the index has a serial, or one inside none";
  }
  if (in_queue != available_) return "available() is not the length of the queue";
  if (evictable != evictable_) return "evictable() is not the indexed pages of the queue";
  return "";
}

std::vector<PageId> PagePool::Queue() const {
  std::vector<PageId> queue;
  for (size_t i = 0; i < length_; ++i) {
    const PageId page = queue_[Wrap(first_ + i)];
    if (page != kNoPage) queue.push_back(page);
  }
  return queue;
}

}  // namespace attnlab::paged
