#include "attention/oracle/bare_memory.h"

#include <atomic>

namespace attnlab::oracle {
namespace {

std::atomic<bool> use_bare{false};

}  // namespace

void UseBareMemory(bool bare) { use_bare = bare; }
bool BareMemory() { return use_bare; }

}  // namespace attnlab::oracle
