#include "tools/command/version.h"

#include <set>

#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "attention/core/kernel.h"
#include "attention/core/registry.h"
#include "attention/cuda/backend.h"
#include "tools/command/command.h"
#include "tools/lib/arguments.h"

namespace attnlab::command {
namespace {

constexpr char kBuiltFrom[] =
#if __has_include("tools/command/commit.inc")
#include "tools/command/commit.inc"
#else
    ""
#endif
    ;

std::set<int> Capabilities() {
  std::set<int> capabilities;
  for (const Kernel* kernel : Registry::Global().All()) {
    const std::vector<int>& built = kernel->traits().compute_capabilities;
    capabilities.insert(built.begin(), built.end());
  }
  return capabilities;
}

}  // namespace

std::string Commit() {
  const std::string commit = CommitOfEnvironment();
  return commit.empty() ? kBuiltFrom : commit;
}

Json AttnlabJson(const std::string& commit) {
  const absl::StatusOr<cuda_backend::Versions> versions = cuda_backend::GetVersions();
  return {{"version", kVersion},
          {"commit", commit.empty() ? Json(nullptr) : Json(commit)},
          {"cuda", versions.ok() ? Json(versions->cuda_runtime) : Json(nullptr)},
          {"capabilities", Capabilities()}};
}

int Version(const Arguments& arguments, const Streams& streams) {
  Formats formats;
  ArgumentParser parser("attnlab version",
                        "Prints which attnlab this is and what it was built for.");
  AddJsonFlag(&parser, &formats);
  parser.AddSection("Examples", "attnlab version\nattnlab --version\nattnlab version --json");
  int code = kOk;
  if (ParsedToEnd(&parser, "version", arguments, streams, &code)) return code;
  absl::StatusOr<ResultFiles> files = ResultFiles::Create(formats);
  if (!files.ok()) return Fail(streams, "version", files.status());
  const Json json = AttnlabJson();
  if (formats.Tables()) {
    const std::string commit = Commit();
    const std::set<int> capabilities = Capabilities();
    streams.out << "attnlab " << kVersion << "\n"
                << "commit     " << (commit.empty() ? "not known" : commit) << "\n"
                << "CUDA       "
                << (json["cuda"].is_null() ? "without CUDA" : json["cuda"].get<std::string>())
                << "\n"
                << "built for  CPU"
                << (capabilities.empty() ? "" : ", sm_" + absl::StrJoin(capabilities, ", sm_"))
                << "\n";
  }
  const absl::Status s = files->Write(json, {}, streams);
  return s.ok() ? kOk : Fail(streams, "version", s);
}

}  // namespace attnlab::command
