// The command as a process, for its tests: what it prints, what it writes, and what it ends with.
#ifndef TOOLS_ATTNLAB_FIXTURE_H_
#define TOOLS_ATTNLAB_FIXTURE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/lib/process.h"

namespace attnlab {

using Words = std::vector<std::string>;

// The command with all kernels of this tree, and one with the oracle and the kernels of
// test_kernels.cc, some of them wrong on purpose.
ProcessResult Attnlab(const Words& words, const ProcessOptions& options = {});
ProcessResult TestAttnlab(const Words& words, const ProcessOptions& options = {});

// Whether attnlab finds no GPU.
bool HasNoGpu();

// The path of tools/testdata/NAME.npy.
std::string Data(const std::string& name);

// What the command printed with --json; a failure of the test where it is none.
nlohmann::json ParseJson(const std::string& text);

// A directory of the test's own, with a blank in its name.
class AttnlabTest : public testing::Test {
 protected:
  AttnlabTest();

  const std::string& directory() const { return directory_; }
  std::string Path(absl::string_view name) const;
  Words Names() const;  // of the files in the directory

  // Flags for the inputs of tools/testdata/causal_*.npy.
  static Words Causal(const Words& more = {});

 private:
  std::string directory_;
};

}  // namespace attnlab

#endif  // TOOLS_ATTNLAB_FIXTURE_H_
