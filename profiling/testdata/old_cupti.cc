// What a program sees of a CUPTI that is older than it wants: cupti_test loads it.
#include <cstdint>

extern "C" int cuptiGetVersion(uint32_t* version) {
  *version = 12;
  return 0;
}
