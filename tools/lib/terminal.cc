#include "tools/lib/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
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

std::string Duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::lround(std::clamp(seconds, 0.0, 1e15)));
  const int64_t minutes = whole / 60, hours = minutes / 60;
  if (minutes == 0) return absl::StrCat(whole, " s");
  if (hours == 0) {
    // Nobody counts the seconds of a long wait.
    return minutes < 10 && whole % 60 != 0 ? absl::StrCat(minutes, " min ", whole % 60, " s")
                                           : absl::StrCat(minutes, " min");
  }
  return hours < 10 && minutes % 60 != 0 ? absl::StrCat(hours, " h ", minutes % 60, " min")
                                         : absl::StrCat(hours, " h");
}

Progress::Progress(std::FILE* file, int64_t total, Times times)
    : file_(file),
      total_(total),
      times_(times),
      terminal_(isatty(fileno(file)) != 0 && !IsDumb()),
      watch_([this] { Watch(); }) {}

Progress::~Progress() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Erase();
    over_ = true;
  }
  changed_.notify_one();
  watch_.join();
}

void Progress::Show(int64_t done, absl::string_view what, std::optional<double> left) {
  const std::lock_guard<std::mutex> lock(mutex_);
  done_ = done;
  what_ = std::string(what);
  shown_at_ = Clock::now();
  shown_ = true;
  left_ = left;
  if (!left.has_value() && done > 0) {
    const double seconds = std::chrono::duration<double>(shown_at_ - start_).count();
    left_ = seconds * static_cast<double>(total_ - done) / static_cast<double>(done);
  }
  if (terminal_) Print();
}

void Progress::Clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Erase();
  shown_ = false;
}

void Progress::Watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  Clock::time_point next = start_ + times_.first;
  while (!over_) {
    if (terminal_) next = Clock::now() + std::chrono::milliseconds(500);
    if (changed_.wait_until(lock, next, [this] { return over_; })) return;
    if (shown_) Print();
    next += times_.next;
  }
}

std::string Progress::Line(int64_t done, int64_t total, double seconds, std::optional<double> left,
                           absl::string_view what) {
  return absl::StrCat(done, "/", total, ", ", Duration(seconds),
                      left.has_value() ? absl::StrCat(", about ", Duration(*left), " left") : "",
                      ": ", what);
}

void Progress::Print() {
  const Clock::time_point now = Clock::now();
  std::optional<double> left = left_;
  if (left.has_value()) *left -= std::chrono::duration<double>(now - shown_at_).count();
  if (left.has_value() && *left < 0.5) left.reset();  // it takes longer than was thought
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string line = Line(done_, total_, seconds, left, what_);
  if (!terminal_) {
    std::fprintf(file_, "attnlab: %s\n", line.c_str());
    std::fflush(file_);
    return;
  }
  constexpr int64_t kBar = 20;
  const int64_t filled = total_ > 0 ? std::min(kBar, done_ * kBar / total_) : kBar;
  std::string bar(filled, '=');
  if (filled < kBar) bar.push_back('>');
  bar.resize(kBar, ' ');
  winsize size = {};
  const bool known = ioctl(fileno(file_), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  // One column less: a cursor behind the last one would wrap.
  const int64_t columns = known ? size.ws_col - 1 : 79;
  const std::string text = Cut(absl::StrCat("[", bar, "] ", line), columns);
  std::fprintf(file_, "\r\033[K%s", text.c_str());
  std::fflush(file_);
  on_line_ = true;
}

void Progress::Erase() {
  if (!on_line_) return;
  std::fputs("\r\033[K", file_);
  std::fflush(file_);
  on_line_ = false;
}

}  // namespace attnlab
