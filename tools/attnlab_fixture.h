// Runs the attnlab command for its tests: output, files and exit code.
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

// Paths of two commands: one with all kernels of this tree, one with the oracle and the kernels of
// test_kernels.cc, some of which are wrong on purpose.
ProcessResult Attnlab(const Words& words, const ProcessOptions& options = {});
ProcessResult TestAttnlab(const Words& words, const ProcessOptions& options = {});

// Whether attnlab finds no GPU.
bool HasNoGpu();

// The path of tools/testdata/NAME.npy.
std::string Data(const std::string& name);

// Parses what the command printed with --json; fails the test if it is not JSON.
nlohmann::json ParseJson(const std::string& text);

// A new directory for the test, with a blank in its name.
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
