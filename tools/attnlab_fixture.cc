#include "tools/attnlab_fixture.h"

#include <dirent.h>
#include <stdlib.h>

#include "absl/strings/str_cat.h"

namespace attnlab {

ProcessResult Attnlab(const Words& words, const ProcessOptions& options) {
  return RunProcess(Runfile("tools/attnlab"), words, options);
}

ProcessResult TestAttnlab(const Words& words, const ProcessOptions& options) {
  return RunProcess(Runfile("tools/attnlab_with_test_kernels"), words, options);
}

bool HasNoGpu() {
  return TestAttnlab({"run", "--problem=hq=1,sq=1,d=1", "--device=cuda:0"}).exit_code == 3;
}

std::string Data(const std::string& name) { return Runfile("tools/testdata/" + name + ".npy"); }

nlohmann::json ParseJson(const std::string& text) {
  nlohmann::json parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(parsed.is_discarded()) << text;
  return parsed;
}

AttnlabTest::AttnlabTest() {
  std::string name = absl::StrCat(testing::TempDir(), "/attnlab test XXXXXX");
  directory_ = mkdtemp(&name[0]);
}

std::string AttnlabTest::Path(absl::string_view name) const {
  return absl::StrCat(directory_, "/", name);
}

Words AttnlabTest::Names() const {
  Words names;
  DIR* dir = opendir(directory_.c_str());
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  closedir(dir);
  return names;
}

Words AttnlabTest::Causal(const Words& more) {
  Words words = {"run", "--q=" + Data("causal_q"), "--k=" + Data("causal_k"),
                 "--v=" + Data("causal_v"), "--mask=causal"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace attnlab
