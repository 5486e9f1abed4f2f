// Which build of the code this is.
#ifndef ATTENTION_TUNE_BUILD_ID_H_
#define ATTENTION_TUNE_BUILD_ID_H_

#include <string>

#include "absl/status/statusor.h"

namespace attnlab::tune {

// The linker's build id of the program or shared library that this code is part of, in hex: another
// one after any change. Unimplemented if the linker wrote none.
absl::StatusOr<std::string> BuildId();

}  // namespace attnlab::tune

#endif  // ATTENTION_TUNE_BUILD_ID_H_
