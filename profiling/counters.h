// Counts what a GPU does while launches run, with its own counters: a library of its own, for any
// program that launches kernels.
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
// The first launch of a kernel in a process may load its code: run it once before it is counted.
//
// Counters belong to the whole GPU: whatever else runs there meanwhile is counted, too. Data that a
// pass finds in L2 is not read from HBM, and up to an L2 of what it wrote may be there still when
// it ends: who wants each pass to begin alike makes it so before Begin().
//
// One object for a GPU at a time, and one thread.
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

// What CUPTI calls the chip of a GPU, by its CUDA ordinal: "GH100". Errors as Counters::Open().
absl::StatusOr<std::string> ChipOf(int ordinal);

class Counters {
 public:
  // What runs between Begin() and End() is counted. After a Pass that goes away without End(), or
  // whose End() is an error, nothing is kept: all passes are to be run again. A Pass does not
  // outlive its Counters.
  class Pass {
   public:
    Pass(Pass&& other) noexcept : counters_(other.counters_) { other.counters_ = nullptr; }
    Pass& operator=(Pass&&) = delete;
    ~Pass();
    // Waits for the GPU. An error that launches, or what they launched, left is one of End(): those
    // that the CUDA runtime keeps, of which attnlab links its own. A program that launches through
    // another (a shared libcudart, the driver) looks at its launches itself.
    absl::Status End();

   private:
    friend class Counters;
    explicit Pass(Counters* counters) : counters_(counters) {}
    Counters* counters_;
  };

  // The quantities of a set ("traffic", "all" and others of quantities.h; "" for none) and then
  // metrics by name, at least one in all, of a GPU by its CUDA ordinal. Makes the GPU current on
  // this thread while it works, and its primary context.
  //
  // Unavailable without a driver, a GPU or CUPTI, or where another profiler holds the counters;
  // PermissionDenied where the driver keeps them to administrators; NotFound for a chip that CUPTI
  // does not know, and for sets and metrics that there are not; Unimplemented for a
  // GPU that it cannot profile. Each message says what to do.
  static absl::StatusOr<std::unique_ptr<Counters>> Open(
      int ordinal, absl::string_view set, const std::vector<std::string>& metrics = {});
  ~Counters();
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

  const std::string& chip() const;
  int64_t Passes() const;

  // Whether every pass has been run.
  bool Done() const;

  // Begins a pass when the GPU has done what it had to do; an error that the runtime has kept from
  // before is returned, and none begins. FailedPrecondition where one has begun
  // already, or all are done.
  absl::StatusOr<Pass> Begin();

  // What was counted, quantity by quantity, or metric by metric; and all can be counted again.
  // FailedPrecondition before Done().
  absl::StatusOr<std::vector<Value>> Read();

 private:
  class Impl;  // what CUPTI's headers are for
  explicit Counters(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace attnlab::profiling

#endif  // PROFILING_COUNTERS_H_
