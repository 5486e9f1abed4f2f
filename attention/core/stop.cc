#include "attention/core/stop.h"

namespace attnlab {
namespace {

std::atomic<const std::atomic<bool>*> g_flag = nullptr;

}  // namespace

void StopWhen(const std::atomic<bool>* flag) { g_flag = flag; }

bool Stopping() {
  const std::atomic<bool>* const flag = g_flag.load(std::memory_order_relaxed);
  return flag != nullptr && flag->load(std::memory_order_relaxed);
}

}  // namespace attnlab
