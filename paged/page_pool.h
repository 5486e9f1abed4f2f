// The pages of a cache: who uses them, which hold which tokens, and which is reused next.
//
// A page has a reference per sequence that uses it. A page without references is in the queue, from
// whose front pages are taken. A page that is full may be in the index, which finds it by its tokens
// and all tokens before it. It stays there while it waits in the queue, until it is taken: that is
// its eviction. Pages outside the index go to the front of the queue, the others to the back, so
// that the least recently used prefix is evicted first.
//
// The index is exact. The hash of a page covers all tokens up to its last one, so that the hashes of
// a whole prompt are known before the first lookup. But a hash decides nothing: a page is found only
// if its tokens are the same, and if the page before it is the one that was found before it. The
// `serial` of a page says which that is. It is never used twice, so that a page whose predecessor
// was evicted is found no more.
//
// Not for users: page_manager.h is. One thread at a time; const functions from any number.
#ifndef PAGED_PAGE_POOL_H_
#define PAGED_PAGE_POOL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"

namespace attnlab::paged {

using PageId = int32_t;
inline constexpr PageId kNoPage = -1;

// All tokens before a page: their hash, and the page that ends with them.
struct Prefix {
  uint64_t hash = 0;
  uint64_t before = 0;  // the serial of that page; of an empty prefix the salt
  bool empty = true;
};

class PagePool {
 public:
  // Throws bad_alloc. `hash_mask` clears bits of hashes: tests make them collide.
  PagePool(int64_t pages, int64_t page_tokens, uint64_t hash_mask);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // Pages without references: of them, those in the index are evictable, and the rest is free.
  int64_t available() const { return available_; }
  int64_t evictable() const { return evictable_; }
  int64_t evictions() const { return evictions_; }

  // Takes pages from the front of the queue. Each has one reference, and is not in the index. There
  // must be as many available.
  void Take(absl::Span<PageId> taken);
  void Share(PageId page);    // adds a reference
  void Release(PageId page);  // drops one
  int32_t References(PageId page) const { return pages_[page].references; }
  void Prefetch(PageId page) const { __builtin_prefetch(&pages_[page], 1); }

  int32_t* Tokens(PageId page) { return tokens_.data() + page * page_tokens_; }
  const int32_t* Tokens(PageId page) const { return tokens_.data() + page * page_tokens_; }

  // Prefixes with different salts share nothing.
  static Prefix Empty(uint64_t salt) { return {salt, salt, true}; }
  // The prefix that ends with a page of the index.
  Prefix After(PageId page) const { return {pages_[page].hash, pages_[page].serial, false}; }

  bool Indexed(PageId page) const { return pages_[page].serial != 0; }

  // Each step of a lookup misses the caches, so this many pages take each step together.
  static constexpr int64_t kTogether = 32;

  // For at most kTogether full pages that follow a prefix: `same` is the page of the index with the
  // same tokens, or the page itself, which is then in the index.
  void FindOrIndex(Prefix prefix, absl::Span<const PageId> pages, PageId* same);

  // Reads early what FindOrIndex() needs of a prefix and the page after it.
  void PrefetchIndex(const Prefix& prefix, PageId page) const {
    index_.prefetch(ByHash{HashAfter(prefix.hash, Tokens(page))});
  }

  // The pages of the index that hold `count` full pages of tokens, as far as there are any.
  // `tokens_of(i)` points to the tokens of the i-th.
  template <typename TokensOf>
  std::vector<PageId> Match(uint64_t salt, int64_t count, const TokensOf& tokens_of) const;

  // "" or what is wrong. `references` is what each page should have. For tests: takes time
  // proportional to the number of pages.
  const char* Inconsistency(const std::vector<int32_t>& references) const;
  // The order in which pages would be taken, for tests.
  std::vector<PageId> Queue() const;

 private:
  struct Page {
    uint64_t hash = 0;    // in the index: of all tokens up to its last
    uint64_t serial = 0;  // in the index: which; 0 outside of it
    uint64_t before = 0;  // Prefix::before. The lowest bit of `serial` is Prefix::empty.
    int32_t references = 0;
    uint32_t place = 0;  // of queue_; of a page without references
  };

  // The index is looked up by all that a page is, or by the hash alone, which prepares for that.
  struct Key {
    Prefix prefix;
    uint64_t hash;  // after the tokens
    const int32_t* tokens;
  };
  struct ByHash {
    uint64_t hash;
  };
  struct Hash {
    using is_transparent = void;
    const PagePool* pool;
    size_t operator()(PageId page) const { return pool->pages_[page].hash; }
    size_t operator()(const Key& key) const { return key.hash; }
    size_t operator()(ByHash key) const { return key.hash; }
  };
  struct Equal {
    using is_transparent = void;
    const PagePool* pool;
    bool operator()(PageId a, PageId b) const { return a == b; }
    bool operator()(PageId page, const Key& key) const { return pool->Holds(page, key); }
    bool operator()(PageId page, ByHash key) const { return pool->pages_[page].hash == key.hash; }
  };

  uint64_t HashAfter(uint64_t hash, const int32_t* tokens) const;
  bool Holds(PageId page, const Key& key) const;
  template <typename K>
  PageId Find(const K& key) const {
    const auto found = index_.find(key);
    return found == index_.end() ? kNoPage : *found;
  }
  void RemoveFromIndex(PageId page);
  size_t Wrap(size_t place) const { return place < queue_.size() ? place : place - queue_.size(); }
  void EnqueueFirst(PageId page);
  void EnqueueLast(PageId page);
  void PutAt(size_t place, PageId page);
  void Dequeue(PageId page);
  PageId DequeueFirst();
  void CloseGaps();  // at most once in as many calls as there are pages, 5 ns for each of them

  const int64_t page_tokens_;
  const uint64_t hash_mask_;
  std::vector<Page> pages_;
  std::vector<int32_t> tokens_;
  absl::flat_hash_set<PageId, Hash, Equal> index_;
  // A ring, twice as long as all pages. A page that leaves from the middle leaves a gap (kNoPage). A list
  // would have none; but each of its pages must be read before the next one is known.
  std::vector<PageId> queue_;
  size_t first_ = 0, length_ = 0;  // gaps included
  int64_t available_ = 0, evictable_ = 0, evictions_ = 0;
  uint64_t serials_ = 0;
};

template <typename TokensOf>
std::vector<PageId> PagePool::Match(uint64_t salt, int64_t count, const TokensOf& tokens_of) const {
  uint64_t hashes[kTogether];
  PageId candidates[kTogether];
  std::vector<PageId> found;
  Prefix prefix = Empty(salt);
  uint64_t hash = prefix.hash;
  for (int64_t begin = 0; begin < count; begin += kTogether) {
    const int64_t together = std::min(kTogether, count - begin);
    for (int64_t i = 0; i < together; ++i) {
      hashes[i] = hash = HashAfter(hash, tokens_of(begin + i));
      index_.prefetch(ByHash{hash});
    }
    for (int64_t i = 0; i < together; ++i) {
      candidates[i] = Find(ByHash{hashes[i]});
      if (candidates[i] == kNoPage) break;  // the next loop ends there, too
      __builtin_prefetch(Tokens(candidates[i]));
    }
    for (int64_t i = 0; i < together; ++i) {
      PageId page = candidates[i];
      const Key key = {prefix, hashes[i], tokens_of(begin + i)};
      if (page != kNoPage && !Holds(page, key)) page = Find(key);  // the hashes collide
      if (page == kNoPage) return found;
      found.push_back(page);
      prefix = After(page);
    }
  }
  return found;
}

}  // namespace attnlab::paged

#endif  // PAGED_PAGE_POOL_H_
