// Ceilings of a GPU, kept between runs: measured once a GPU and driver, in a file of the user's.
#ifndef PROFILING_CEILINGS_CACHE_H_
#define PROFILING_CEILINGS_CACHE_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "profiling/ceilings.h"

namespace attnlab::profiling {

// What ceilings are of: others are not to be had from the cache.
struct CeilingsKey {
  std::string gpu;   // "NVIDIA H200"
  std::string uuid;  // "GPU-…", as nvidia-smi shows it
  std::string driver, cuda_runtime;
};

// Of a GPU by its CUDA ordinal.
absl::StatusOr<CeilingsKey> CeilingsKeyOf(int ordinal);

struct KeptCeilings {
  Ceilings ceilings;
  bool measured = false;  // now, not in a run before
  std::string remark;     // what was wrong with the cache, if something was: for the user
};

// Those that the directory has for the key. Otherwise, or if wanted anew, `measure` measures, and
// the file in the directory is replaced, all of it at once: processes that do so together leave
// what one of them measured. A file that is damaged or has figures that no GPU has is not believed,
// figures like that which were measured are not kept, and a file that cannot be written is no
// error: the remark says so. Errors are those of `measure`.
absl::StatusOr<KeptCeilings> KeepCeilings(const std::string& directory, const CeilingsKey& key,
                                          bool anew,
                                          absl::FunctionRef<absl::StatusOr<Ceilings>()> measure);

}  // namespace attnlab::profiling

#endif  // PROFILING_CEILINGS_CACHE_H_
