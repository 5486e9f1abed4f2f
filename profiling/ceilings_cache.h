// Caches the ceilings of a GPU in a file of the user's, so that they are measured once per GPU and
// driver.
#ifndef PROFILING_CEILINGS_CACHE_H_
#define PROFILING_CEILINGS_CACHE_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "profiling/ceilings.h"

namespace attnlab::profiling {

// What the cached ceilings depend on: ceilings with another key are not used.
struct CeilingsKey {
  std::string gpu;   // "NVIDIA H200"
  std::string uuid;  // "GPU-…", as nvidia-smi shows it
  std::string driver, cuda_runtime;
};

// The key of a GPU, by its CUDA ordinal.
absl::StatusOr<CeilingsKey> CeilingsKeyOf(int ordinal);

struct KeptCeilings {
  Ceilings ceilings;
  bool measured = false;  // in this run, not read from the cache
  std::string remark;     // for the user: what was wrong with the cache, or ""
};

// Returns the ceilings that the directory has for the key. If it has none, or if `anew`, calls
// `measure` and replaces the file atomically. Processes that do so at the same time leave the
// result of one of them. A damaged file, or one with implausible figures, is ignored. Implausible
// measurements are not written. A file that cannot be written is not an error: `remark` says so.
// Errors are those of `measure`.
absl::StatusOr<KeptCeilings> KeepCeilings(const std::string& directory, const CeilingsKey& key,
                                          bool anew,
                                          absl::FunctionRef<absl::StatusOr<Ceilings>()> measure);

}  // namespace attnlab::profiling

#endif  // PROFILING_CEILINGS_CACHE_H_
