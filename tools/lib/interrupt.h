// Ctrl-C as a question that long work asks, so that what is done by then is not lost.
//
//   const Interrupt interrupt("attnlab bench: interrupted");
//   for (…) {
//     if (Interrupt::Pressed()) break;
//   }
#ifndef TOOLS_LIB_INTERRUPT_H_
#define TOOLS_LIB_INTERRUPT_H_

#include <signal.h>

#include <atomic>
#include <string>

#include "absl/strings/string_view.h"

namespace attnlab {

// While an object lives, the first Ctrl-C (SIGINT) is noted and acknowledged at once by a line on
// the standard error; the second ends the process. Where the process was started with SIGINT
// ignored, it stays ignored. One at a time.
class Interrupt {
 public:
  // `acknowledgement` is the line, without its end; none is printed where it is empty.
  explicit Interrupt(absl::string_view acknowledgement = "");
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Whether it was pressed since the last object was made.
  static bool Pressed() { return Flag(); }
  static const std::atomic<bool>& Flag();

 private:
  struct sigaction before_ = {};
};

}  // namespace attnlab

#endif  // TOOLS_LIB_INTERRUPT_H_
