#include "attention/cuda/cpu_cache.h"

#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attnlab {
namespace {

// The first word of a file; "" if there is none.
std::string Word(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

// "32768K" -> bytes; 0 if the text is not a size.
int64_t ParseSize(absl::string_view text) {
  int64_t unit = 1;
  if (!text.empty()) {
    if (text.back() == 'K') unit = int64_t{1} << 10;
    if (text.back() == 'M') unit = int64_t{1} << 20;
    if (text.back() == 'G') unit = int64_t{1} << 30;
    if (unit > 1) text.remove_suffix(1);
  }
  int64_t count = 0, bytes = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 0) return 0;
  return __builtin_mul_overflow(count, unit, &bytes) ? 0 : bytes;
}

}  // namespace

int64_t LastLevelCacheBytes(const std::string& directory) {
  int highest = 0;
  int64_t bytes = 0;
  for (int i = 0;; ++i) {
    const std::string index = absl::StrCat(directory, "/index", i, "/");
    const std::string level_text = Word(index + "level");
    if (level_text.empty()) return bytes;
    int level = 0;
    const std::string type = Word(index + "type");
    const int64_t size = ParseSize(Word(index + "size"));
    if (!absl::SimpleAtoi(level_text, &level) || size == 0) continue;
    if (type != "Unified" && type != "Data") continue;
    if (level > highest) {
      highest = level;
      bytes = size;
    }
  }
}

}  // namespace attnlab
