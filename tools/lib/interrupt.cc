#include "tools/lib/interrupt.h"

#include <errno.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace attnlab {
namespace {

std::atomic<bool> g_pressed = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

std::string* const g_acknowledgement = new std::string;  // not written while a handler may read it

void Note(int) {
  g_pressed = true;
  const int error = errno;
  // Nothing to be done where it fails.
  if (write(STDERR_FILENO, g_acknowledgement->data(), g_acknowledgement->size()) < 0) errno = error;
}

}  // namespace

Interrupt::Interrupt(absl::string_view acknowledgement) {
  g_pressed = false;
  // On a terminal, behind "^C" and over a progress line.
  const char* const begin = isatty(STDERR_FILENO) != 0 ? "\r\033[K" : "";
  *g_acknowledgement = acknowledgement.empty() ? "" : absl::StrCat(begin, acknowledgement, "\n");
  sigaction(SIGINT, nullptr, &before_);
  if (before_.sa_handler == SIG_IGN) return;
  struct sigaction noting = {};
  noting.sa_handler = Note;
  noting.sa_flags = SA_RESTART | SA_RESETHAND;  // the default again, after the first
  sigemptyset(&noting.sa_mask);
  sigaction(SIGINT, &noting, nullptr);
}

Interrupt::~Interrupt() { sigaction(SIGINT, &before_, nullptr); }

const std::atomic<bool>& Interrupt::Flag() { return g_pressed; }

}  // namespace attnlab
