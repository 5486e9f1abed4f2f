// What is different when a person looks at the output: colours and a progress bar. Neither appears
// in a pipe, a file or a log; there, a line now and then says how far the work is.
#ifndef TOOLS_LIB_TERMINAL_H_
#define TOOLS_LIB_TERMINAL_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"

namespace attnlab {

enum class Colour { kNone, kGreen, kRed, kYellow, kBold };

// Whether to colour what goes to `fd`: it is a terminal, TERM is set and not "dumb", and
// NO_COLOR (https://no-color.org) is unset or empty.
bool ColoursWanted(int fd);

// `text` between the escape sequences of the colour; unchanged for kNone.
std::string Coloured(absl::string_view text, Colour colour);

// Columns of UTF-8 text, each code point counted as one.
int64_t DisplayWidth(absl::string_view text);

// "45 s", "3 min 20 s", "2 h 5 min": two units at most, for people who wait.
std::string Duration(double seconds);

// Says how far long work is. On a terminal one line, which changes twice a second and is erased in
// the end:
//
//   [=========>          ] 5/11, 12 s, about 15 s left: timing cpu: b=1,hq=32,…
//
// Elsewhere a line once the work has taken 2 s, and every 10 s from then on:
//
//   attnlab: 5/11, 12 s, about 15 s left: timing cpu: b=1,hq=32,…
class Progress {
 public:
  struct Times {  // of the lines that go elsewhere
    std::chrono::milliseconds first = std::chrono::seconds(2), next = std::chrono::seconds(10);
  };
  Progress(std::FILE* file, int64_t total) : Progress(file, total, Times()) {}
  Progress(std::FILE* file, int64_t total, Times times);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of the total are done, and `what` is being worked on. `left` is how many seconds the rest
  // takes; where it is not given, the rest is taken to go as what is done.
  void Show(int64_t done, absl::string_view what, std::optional<double> left = std::nullopt);

  // Erases the line, so that other output can begin at its start. It comes back at the next Show().
  void Clear();

  // "5/11, 12 s, about 15 s left: cpu". No time left is said where none is known.
  static std::string Line(int64_t done, int64_t total, double seconds, std::optional<double> left,
                          absl::string_view what);

 private:
  using Clock = std::chrono::steady_clock;

  void Watch();  // what the thread does
  void Print();  // these two with mutex_ held
  void Erase();

  std::FILE* const file_;
  const int64_t total_;
  const Times times_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();

  std::mutex mutex_;  // guards what is below
  std::condition_variable changed_;
  int64_t done_ = 0;
  std::string what_;
  std::optional<double> left_;  // at shown_at_
  Clock::time_point shown_at_;
  bool shown_ = false;    // Show() was called after the last Clear()
  bool on_line_ = false;  // the terminal's line has text
  bool over_ = false;
  std::thread watch_;  // last: it uses the others
};

}  // namespace attnlab

#endif  // TOOLS_LIB_TERMINAL_H_
