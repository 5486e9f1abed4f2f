// Ctrl-C as a question that long work asks, so that what is done by then is not lost.
//
//   const Interrupt interrupt;
//   for (…) {
//     if (Interrupt::Pressed()) break;
//   }
#ifndef TOOLS_LIB_INTERRUPT_H_
#define TOOLS_LIB_INTERRUPT_H_

#include <signal.h>

namespace attnlab {

// While an object lives, the first Ctrl-C (SIGINT) is only noted; the second ends the process as
// ever. Where the process was started with SIGINT ignored, it stays ignored. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Whether it was pressed since the last object was made.
  static bool Pressed();

 private:
  struct sigaction before_ = {};
};

}  // namespace attnlab

#endif  // TOOLS_LIB_INTERRUPT_H_
