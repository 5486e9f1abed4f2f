#include "attention/testing/bare_memory.h"

#include <atomic>

namespace attnlab::testing {
namespace {

std::atomic<bool> use_bare{false};

}  // namespace

void UseBareMemory(bool bare) { use_bare = bare; }
bool BareMemory() { return use_bare; }

}  // namespace attnlab::testing
