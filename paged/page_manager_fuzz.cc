// Fuzzes PageManager: the input chooses a small pool and any operations, and the model
// (page_manager_model.h) checks each.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "paged/page_manager_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using attnlab::paged::PageManager;
  const uint8_t* const end = data + size;
  const auto next = [&](int64_t n) { return data == end ? 0 : int64_t{*data++} % n; };
  PageManager::Options options;
  options.pages = 1 + next(20);
  options.page = 1 + next(4);
  options.host_pages = next(20);
  options.sequences = 1 + next(6);
  options.most_tokens = 1 << 20;
  options.prefix_caching = next(4) > 0;
  if (next(2) == 0) options.hash_mask = 1;
  attnlab::paged::PageManagerModel model(options, next);
  while (data != end) {
    const std::string error = model.Step();
    if (!error.empty()) {
      std::fprintf(stderr, "%s\n", error.c_str());
      std::abort();
    }
  }
  return 0;
}
