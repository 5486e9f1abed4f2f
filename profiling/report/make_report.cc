// make_report IN.json OUT.html: does what `attnlab profile --from=IN.json --html=OUT.html` does,
// for tests on machines without a CUDA toolkit.
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "profiling/report/report_file.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: make_report IN.json OUT.html\n");
    return 2;
  }
  const auto profile = attnlab::profiling::ReadProfile(argv[1]);
  const absl::Status s =
      profile.ok() ? attnlab::profiling::WriteHtmlReport(*profile, argv[2]) : profile.status();
  if (s.ok()) return 0;
  std::fprintf(stderr, "make_report: %s\n", std::string(s.message()).c_str());
  return 2;
}
