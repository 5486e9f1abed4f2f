#include "tools/lib/interrupt.h"

namespace attnlab {
namespace {

volatile sig_atomic_t g_pressed = 0;

void Note(int) { g_pressed = 1; }

}  // namespace

Interrupt::Interrupt() {
  g_pressed = 0;
  sigaction(SIGINT, nullptr, &before_);
  if (before_.sa_handler == SIG_IGN) return;
  struct sigaction noting = {};
  noting.sa_handler = Note;
  noting.sa_flags = SA_RESTART | SA_RESETHAND;  // the default again, after the first
  sigemptyset(&noting.sa_mask);
  sigaction(SIGINT, &noting, nullptr);
}

Interrupt::~Interrupt() { sigaction(SIGINT, &before_, nullptr); }

bool Interrupt::Pressed() { return g_pressed != 0; }

}  // namespace attnlab
