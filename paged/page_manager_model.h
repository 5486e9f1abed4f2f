// For tests: drives a PageManager with any operations, and checks it against a simple model.
//
// The model has the contents of all pages. What it writes for a token stands for K and V: a digest
// of the salt and of all tokens up to that one. A sequence whose pages hold anything but its own
// digests has been given another's cache.
#ifndef PAGED_PAGE_MANAGER_MODEL_H_
#define PAGED_PAGE_MANAGER_MODEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "paged/page_manager.h"

namespace attnlab::paged {

class PageManagerModel {
 public:
  // `next(n)` gives a number in [0, n): random, or from a fuzzer.
  using Next = std::function<int64_t(int64_t)>;
  PageManagerModel(const PageManager::Options& options, Next next);

  // One operation. "" or what is wrong.
  std::string Step();

  // How often each thing happened, to see that a test is not vacuous.
  const std::map<std::string, int64_t>& seen() const { return seen_; }
  const PageManager& manager() const { return *manager_; }

 private:
  struct Sequence {
    SequenceId id;
    uint64_t salt = 0;
    std::vector<int32_t> tokens;
    int64_t reclaimed = 0;  // pages
    int64_t committed = 0;  // tokens
    bool swapped = false;
  };
  using Digest = uint64_t;

  std::string Begin();
  std::string Append();
  std::string Commit();
  std::string Fork();
  std::string Truncate();
  std::string Reclaim();
  std::string Free();
  std::string Swap();
  std::string WrongCalls();

  size_t Any() { return static_cast<size_t>(next_(static_cast<int64_t>(sequences_.size()))); }
  // Some sequences that are swapped out, or not.
  std::vector<size_t> Some(bool swapped);
  std::vector<SequenceId> Ids(const std::vector<size_t>& some) const;
  std::vector<int32_t> Tokens(int64_t most);
  std::vector<Digest> Digests(const Sequence& s) const;
  std::string Do(const std::vector<PageCopy>& copies);
  std::string CheckSequences();
  // A call with too few pages must say so, and one with enough must not.
  std::string CheckExhaustion(const absl::Status& status, int64_t least, int64_t most,
                              int64_t available);

  const PageManager::Options options_;
  const Next next_;
  std::unique_ptr<PageManager> manager_;
  std::vector<Sequence> sequences_;
  std::vector<Digest> pages_, host_pages_;
  std::vector<std::vector<PageId>> table_;  // as TakeTableChanges() says
  std::map<std::string, int64_t> seen_;
};

}  // namespace attnlab::paged

#endif  // PAGED_PAGE_MANAGER_MODEL_H_
