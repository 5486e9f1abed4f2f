#include "tools/lib/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace attnlab {
namespace {

bool IsDumb() {
  const char* term = getenv("TERM");
  return term == nullptr || term[0] == '\0' || strcmp(term, "dumb") == 0;
}

// The first `columns` code points.
std::string Cut(absl::string_view text, int64_t columns) {
  size_t end = 0;
  for (int64_t seen = 0; end < text.size(); ++end) {
    if ((text[end] & 0xC0) != 0x80 && seen++ == columns) break;
  }
  return std::string(text.substr(0, end));
}

}  // namespace

bool ColoursWanted(int fd) {
  const char* no_color = getenv("NO_COLOR");
  return isatty(fd) != 0 && !IsDumb() && (no_color == nullptr || no_color[0] == '\0');
}

std::string Coloured(absl::string_view text, Colour colour) {
  static constexpr absl::string_view kCodes[] = {"", "32", "31", "33", "1"};  // as Colour
  if (colour == Colour::kNone) return std::string(text);
  const absl::string_view code = kCodes[static_cast<int>(colour)];
  return absl::StrCat("\033[", code, "m", text, "\033[0m");
}

int64_t DisplayWidth(absl::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

Progress::Progress(std::FILE* file, int64_t total, std::chrono::milliseconds patience)
    : file_(file),
      total_(total),
      patience_(patience),
      active_(isatty(fileno(file)) != 0 && !IsDumb()) {}

Progress::~Progress() {
  Clear();
  if (!watch_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  watch_.join();
}

void Progress::Watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!over_) {
    const int64_t step = steps_;
    const auto next = [this, step] { return over_ || steps_ != step; };
    if (changed_.wait_for(lock, patience_, next)) continue;
    const double seconds = std::chrono::duration<double>(patience_).count();
    std::fprintf(file_, "attnlab: %g s so far, %s\n", seconds, step_.c_str());
    std::fflush(file_);
    changed_.wait(lock, next);
  }
}

std::string Progress::Line(int64_t done, int64_t total, absl::string_view what, int64_t columns) {
  constexpr int64_t kBar = 20;
  const int64_t filled = total > 0 ? std::min(kBar, done * kBar / total) : kBar;
  std::string bar(filled, '=');
  if (filled < kBar) bar.push_back('>');
  bar.resize(kBar, ' ');
  return Cut(absl::StrCat("[", bar, "] ", done, "/", total, " ", what), columns);
}

void Progress::Show(int64_t done, absl::string_view what) {
  if (!active_) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      step_ = absl::StrCat(done, "/", total_, " ", what);
      ++steps_;
    }
    changed_.notify_one();
    if (!watch_.joinable()) watch_ = std::thread([this] { Watch(); });
    return;
  }
  winsize size = {};
  const bool known = ioctl(fileno(file_), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  // One column less: a cursor behind the last one would wrap.
  const int64_t columns = known ? size.ws_col - 1 : 79;
  std::fprintf(file_, "\r\033[K%s", Line(done, total_, what, columns).c_str());
  std::fflush(file_);
  shown_ = true;
}

void Progress::Clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", file_);
  std::fflush(file_);
  shown_ = false;
}

}  // namespace attnlab
