// What is different when a person looks at the output: colours and a progress bar. Neither
// appears in a pipe, a file or a log; there, a line says what takes long.
#ifndef TOOLS_LIB_TERMINAL_H_
#define TOOLS_LIB_TERMINAL_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
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

// One line on a terminal that is rewritten as work goes on and erased in the end:
//
//   [=========>          ] 5/11 cpu b=1,hq=32,…
//
// Where `file` is no terminal it has one line for each step that takes longer than `patience`, as
// soon as that has passed, and nothing for others:
//
//   attnlab: 5 s so far, 0/1 verifying reference: b=1,hq=32,…
class Progress {
 public:
  Progress(std::FILE* file, int64_t total,
           std::chrono::milliseconds patience = std::chrono::seconds(5));
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of the total are done, and `what` is being worked on.
  void Show(int64_t done, absl::string_view what);

  // Erases the line, so that other output can begin at its start.
  void Clear();

  // The line for a terminal of that many columns.
  static std::string Line(int64_t done, int64_t total, absl::string_view what, int64_t columns);

 private:
  void Watch();  // what the thread does

  std::FILE* file_;
  int64_t total_;
  std::chrono::milliseconds patience_;
  bool active_;
  bool shown_ = false;

  // Where `file` is no terminal: the step, and the thread that looks at the clock.
  std::thread watch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string step_;  // guarded by mutex_, as are those below
  int64_t steps_ = 0;
  bool over_ = false;
};

}  // namespace attnlab

#endif  // TOOLS_LIB_TERMINAL_H_
