#include "profiling/cupti.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attnlab::profiling {
namespace {

// What the loader is asked for: file names or paths, in this order.
std::vector<std::string> Candidates() {
  if (const char* named = std::getenv("ATTNLAB_CUPTI"); named != nullptr && *named != '\0') {
    return {named};
  }
  const std::string name = absl::StrCat("libcupti.so.", CUDA_VERSION / 1000);
  std::vector<std::string> candidates = {name};
  const auto add = [&](const std::string& root) {
    for (const char* directory : {"/lib64/", "/lib/", "/extras/CUPTI/lib64/"}) {
      std::error_code ignored;
      const std::string path = absl::StrCat(root, directory, name);
      if (std::filesystem::exists(path, ignored)) candidates.push_back(path);
    }
  };
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* root = std::getenv(variable);
    if (root != nullptr && *root != '\0') add(root);
  }
  add("/usr/local/cuda");
  return candidates;
}

std::string LoaderError() {
  const char* error = dlerror();
  return error == nullptr ? "" : error;
}

// CUPTI opens libnvperf_host.so by its bare name, which the loader has to know by then.
absl::Status LoadPerformanceLibrary(const std::string& cupti) {
  const std::string beside =
      (std::filesystem::path(cupti).parent_path() / "libnvperf_host.so").string();
  if (dlopen(beside.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return absl::OkStatus();
  const std::string first = LoaderError();
  if (dlopen("libnvperf_host.so", RTLD_NOW | RTLD_GLOBAL) != nullptr) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("CUPTI (", cupti, ") wants libnvperf_host.so: ", first));
}

absl::StatusOr<Cupti> Load() {
  void* library = nullptr;
  std::vector<std::string> errors;
  for (const std::string& candidate : Candidates()) {
    library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    errors.push_back(LoaderError());
  }
  if (library == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "no CUPTI, the profiling library of the CUDA toolkit: ", absl::StrJoin(errors, "; "),
        "; CUDA_HOME=DIR says where a toolkit is, ATTNLAB_CUPTI=FILE where the library is"));
  }
  Cupti cupti;
#define ATTNLAB_CUPTI_LOOK_UP(name)                                                               \
  cupti.name = reinterpret_cast<decltype(cupti.name)>(dlsym(library, #name));                     \
  if (cupti.name == nullptr) {                                                                    \
    return absl::UnavailableError(absl::StrCat("CUPTI is too old: ", LoaderError(), "; version ", \
                                               CUPTI_API_VERSION, " is wanted"));                 \
  }
  ATTNLAB_CUPTI_FUNCTIONS(ATTNLAB_CUPTI_LOOK_UP)
#undef ATTNLAB_CUPTI_LOOK_UP
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(cupti.cuptiGetVersion), &info) != 0) {
    cupti.path = info.dli_fname;
  }
  if (absl::Status s = LoadPerformanceLibrary(cupti.path); !s.ok()) return s;
  return cupti;
}

absl::StatusCode CodeOf(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return absl::StatusCode::kPermissionDenied;
    case CUPTI_ERROR_HARDWARE_BUSY:
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      return absl::StatusCode::kUnavailable;
    case CUPTI_ERROR_NOT_SUPPORTED:
    case CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
      return absl::StatusCode::kUnimplemented;
    case CUPTI_ERROR_OUT_OF_MEMORY:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kInternal;
  }
}

// What a user can do about it.
absl::string_view Remedy(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kPermissionDenied:
      return ". The driver keeps counters to administrators: run as root or with CAP_SYS_ADMIN (in "
             "a container --cap-add=SYS_ADMIN), or load the driver with "
             "NVreg_RestrictProfilingToAdminUsers=0";
    case absl::StatusCode::kUnavailable:
      return ". Another profiler (ncu, nsys, DCGM) may hold the counters";
    default:
      return "";
  }
}

}  // namespace

absl::Status Cupti::Check(CUptiResult result, absl::string_view call) const {
  if (result == CUPTI_SUCCESS) return absl::OkStatus();
  const char *name = nullptr, *text = nullptr;
  if (cuptiGetResultString(result, &name) != CUPTI_SUCCESS || name == nullptr) name = "unknown";
  if (cuptiGetErrorMessage(result, &text) != CUPTI_SUCCESS || text == nullptr) text = "";
  const absl::StatusCode code = CodeOf(result);
  return absl::Status(
      code, absl::StrCat(call, ": ", name, *text == '\0' ? "" : ", ", text, Remedy(code)));
}

absl::StatusOr<const Cupti*> LoadCupti() {
  static const auto* const kCupti = new absl::StatusOr<Cupti>(Load());
  if (!kCupti->ok()) return kCupti->status();
  return &**kCupti;
}

}  // namespace attnlab::profiling
