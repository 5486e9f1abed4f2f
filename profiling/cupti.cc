#include "profiling/cupti.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attnlab::profiling {
namespace {

std::string LoaderError() {
  const char* error = dlerror();
  return error == nullptr ? "" : error;
}

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A place to look for CUPTI.
struct Place {
  std::string what;                // a description for the user
  std::vector<std::string> files;  // arguments of dlopen: paths, or a bare name
};

Place Toolkit(absl::string_view variable, const std::string& root, const std::string& name) {
  if (root.empty()) return {absl::StrCat(variable, " is not set"), {}};
  Place place = {variable.empty() ? root : absl::StrCat(variable, "=", root), {}};
  for (const char* directory : {"/lib64/", "/lib/", "/extras/CUPTI/lib64/"}) {
    const std::string path = absl::StrCat(root, directory, name);
    if (Exists(path)) place.files.push_back(path);
  }
  if (place.files.empty()) absl::StrAppend(&place.what, " has none");
  return place;
}

std::vector<Place> InOrder(const CuptiPlaces& places) {
  if (!places.attnlab_cupti.empty()) {
    return {{absl::StrCat("ATTNLAB_CUPTI=", places.attnlab_cupti), {places.attnlab_cupti}}};
  }
  // The user's choice comes before the loader's. A machine may have several toolkits, and the
  // loader may know another one than the programs were built with.
  return {Toolkit("CUDA_HOME", places.cuda_home, places.name),
          Toolkit("CUDA_PATH", places.cuda_path, places.name),
          Place{"the loader (LD_LIBRARY_PATH, ld.so.conf)", {places.name}},
          Toolkit("", places.usual, places.name)};
}

// CUPTI opens libnvperf_host.so by its bare name, so it must be loaded by then.
absl::Status LoadPerformanceLibrary(const std::string& cupti) {
  const std::string beside =
      (std::filesystem::path(cupti).parent_path() / "libnvperf_host.so").string();
  if (dlopen(beside.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return absl::OkStatus();
  const std::string first = Exists(beside) ? LoaderError() : absl::StrCat("there is no ", beside);
  if (dlopen("libnvperf_host.so", RTLD_NOW | RTLD_GLOBAL) != nullptr) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "needs libnvperf_host.so: ", first,
      ", and the loader finds none. Both come with the toolkit: keep them together, or "
      "add the directory of libnvperf_host.so to LD_LIBRARY_PATH"));
}

struct Closer {
  void operator()(void* library) const { dlclose(library); }
};

// The error says why the file cannot be used; the caller adds its name.
absl::StatusOr<Cupti> LoadFile(const std::string& file) {
  // Close a library that is not used: otherwise the loader returns it for the next path with the
  // same name.
  std::unique_ptr<void, Closer> opened(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL));
  void* const library = opened.get();
  if (library == nullptr) {
    const std::string error = LoaderError();
    const bool is_path = absl::StrContains(file, '/');
    if (is_path && !Exists(file)) return absl::UnavailableError("there is no such file");
    // For an unknown bare name, the loader's own message is longer than it is useful.
    if (!is_path && absl::StartsWith(error, absl::StrCat(file, ": cannot open shared object"))) {
      return absl::UnavailableError("the loader finds no library of that name");
    }
    return absl::UnavailableError(error);
  }
  Cupti cupti;
  const auto version =
      reinterpret_cast<decltype(cupti.cuptiGetVersion)>(dlsym(library, "cuptiGetVersion"));
  if (version == nullptr) return absl::UnavailableError("is a library, but not CUPTI");
#define ATTNLAB_CUPTI_LOOK_UP(name)                                                          \
  cupti.name = reinterpret_cast<decltype(cupti.name)>(dlsym(library, #name));                \
  if (cupti.name == nullptr) {                                                               \
    uint32_t number = 0;                                                                     \
    version(&number);                                                                        \
    return absl::UnavailableError(absl::StrCat("CUPTI is too old: its version is ", number,  \
                                               " and has no " #name "; ", CUPTI_API_VERSION, \
                                               " is needed"));                               \
  }
  ATTNLAB_CUPTI_FUNCTIONS(ATTNLAB_CUPTI_LOOK_UP)
#undef ATTNLAB_CUPTI_LOOK_UP
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(cupti.cuptiGetVersion), &info) != 0) {
    cupti.path = info.dli_fname;
  }
  if (absl::Status s = LoadPerformanceLibrary(cupti.path); !s.ok()) return s;
  opened.release();  // never unloaded
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

// What the user can do about it.
absl::string_view Remedy(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kPermissionDenied:
      return ". The driver restricts counters to administrators: run as root or with CAP_SYS_ADMIN "
             "(in "
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
  // For some results CUPTI's text is only the name again.
  const bool says_more = *text != '\0' && absl::string_view(text) != name;
  const absl::StatusCode code = CodeOf(result);
  return absl::Status(code, absl::StrCat(call, ": ", name, says_more ? ", " : "",
                                         says_more ? text : "", Remedy(code)));
}

CuptiPlaces PlacesOfEnvironment() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  CuptiPlaces places;
  places.attnlab_cupti = variable("ATTNLAB_CUPTI");
  places.cuda_home = variable("CUDA_HOME");
  places.cuda_path = variable("CUDA_PATH");
  return places;
}

absl::StatusOr<Cupti> LoadCuptiFrom(const CuptiPlaces& places) {
  std::vector<std::string> reasons;
  for (const Place& place : InOrder(places)) {
    if (place.files.empty()) reasons.push_back(place.what);
    for (const std::string& file : place.files) {
      absl::StatusOr<Cupti> cupti = LoadFile(file);
      if (cupti.ok()) return cupti;
      const std::string what = absl::StrContains(place.what, file) || !absl::StrContains(file, '/')
                                   ? place.what
                                   : absl::StrCat(place.what, " has ", file);
      reasons.push_back(absl::StrCat(what, ": ", cupti.status().message()));
    }
  }
  return absl::UnavailableError(
      absl::StrCat("no CUPTI (", places.name,
                   "), the profiling library of the CUDA toolkit: ", absl::StrJoin(reasons, "; "),
                   ". Set CUDA_HOME=DIR to a toolkit, or ATTNLAB_CUPTI=FILE to the library"));
}

absl::StatusOr<const Cupti*> LoadCupti() {
  static const auto* const kCupti = new absl::StatusOr<Cupti>(LoadCuptiFrom(PlacesOfEnvironment()));
  if (!kCupti->ok()) return kCupti->status();
  return &**kCupti;
}

}  // namespace attnlab::profiling
