// Counts what a GPU does while launches run, with its hardware counters. Any program that launches
// kernels can use this library.
//
//   absl::StatusOr<std::unique_ptr<Counters>> counters = Counters::Open(/*ordinal=*/0, "traffic");
//   if (!counters.ok()) return counters.status();
//   while (!(*counters)->Done()) {
//     absl::StatusOr<Counters::Pass> pass = (*counters)->Begin();
//     if (!pass.ok()) return pass.status();
//     MyKernel<<<…>>>(…);  // one launch or several; the same in each pass
//     if (absl::Status s = pass->End(); !s.ok()) return s;
//   }
//   absl::StatusOr<std::vector<Value>> values = (*counters)->Read();
//   // (*values)[0]: hbm_bytes_read, B, 2147483648
//
// The first launch of a kernel in a process may load its code: run it once before counting.
//
// Counters belong to the whole GPU: they also count whatever else runs there meanwhile. Data that a
// pass finds in L2 is not read from HBM. When a pass ends, up to one L2 of what it wrote may still
// be in the cache. If each pass must start from the same state, set that state before Begin().
//
// At most one object per GPU, used by one thread.
#ifndef PROFILING_COUNTERS_H_
#define PROFILING_COUNTERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "profiling/value.h"

namespace attnlab::profiling {

// CUPTI's name for the chip of a GPU, by its CUDA ordinal: "GH100". Errors as Counters::Open().
absl::StatusOr<std::string> ChipOf(int ordinal);

class Counters {
 public:
  // Counts what runs between Begin() and End(). If a Pass is destroyed without End(), or its End()
  // fails, all counts are dropped and every pass has to run again. A Pass must not outlive its
  // Counters.
  class Pass {
   public:
    Pass(Pass&& other) noexcept : counters_(other.counters_) { other.counters_ = nullptr; }
    Pass& operator=(Pass&&) = delete;
    ~Pass();
    // Waits for the GPU. Returns the errors of launches, and of the kernels that they launched, as
    // kept by the CUDA runtime that attnlab links statically. A program that launches through
    // another one (a shared libcudart, or the driver) has to check its launches itself.
    absl::Status End();

   private:
    friend class Counters;
    explicit Pass(Counters* counters) : counters_(counters) {}
    Counters* counters_;
  };

  // Opens the counters of a GPU, by its CUDA ordinal, for the quantities of a set ("traffic", "all"
  // and others of quantities.h; "" for none) and for metrics by name; at least one in all. While it
  // works, it makes the GPU and its primary context current on this thread.
  //
  // Unavailable without a driver, a GPU or CUPTI, or where another profiler holds the counters;
  // PermissionDenied where the driver keeps them to administrators; NotFound for a chip that CUPTI
  // does not know, and for unknown sets and metrics; Unimplemented for a GPU that CUPTI cannot
  // profile. Each message says what to do.
  static absl::StatusOr<std::unique_ptr<Counters>> Open(
      int ordinal, absl::string_view set, const std::vector<std::string>& metrics = {});
  ~Counters();
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

  const std::string& chip() const;
  int64_t Passes() const;

  // Whether every pass has run.
  bool Done() const;

  // Begins a pass once the GPU is idle. If the runtime still holds an earlier error, returns that
  // error and begins none. FailedPrecondition if a pass has begun already, or all are done.
  absl::StatusOr<Pass> Begin();

  // The values, in the order of the quantities and then the metrics. After that, counting can start
  // again. FailedPrecondition before Done().
  absl::StatusOr<std::vector<Value>> Read();

 private:
  class Impl;  // hides CUPTI's headers
  explicit Counters(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace attnlab::profiling

#endif  // PROFILING_COUNTERS_H_
