// The checks that every kernel must pass, as functions. conformance_main.cc makes a test of each
// check on each problem for each kernel. mutation_test.cc shows that wrong kernels are rejected.
//
//   for (const Check& check : Checks()) {
//     absl::Status s = check.run({kernel, device}, a_case);  // OK, Unimplemented, or what is wrong
//   }
#ifndef ATTENTION_CONFORMANCE_CONFORMANCE_H_
#define ATTENTION_CONFORMANCE_CONFORMANCE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attention/conformance/problems.h"
#include "attention/conformance/subject.h"
#include "attention/core/kernel.h"

namespace attnlab::conformance {

// Which kernels a check is for.
enum class Where {
  kAnywhere,
  kWithIntermediates,  // kernels that give S and P
  kOnGpu,
};

struct Check {
  std::string name;
  // It runs on every `stride`th of the cases for which `applies` holds.
  bool (*applies)(const Case& c) = nullptr;
  int stride = 1;
  // OK. Unimplemented if the kernel's Supports() declines the problem. Otherwise Internal with what
  // is wrong, and with the command that reproduces it if `attnlab verify` can.
  absl::Status (*run)(const Subject& subject, const Case& c) = nullptr;
  Where where = Where::kAnywhere;
  // Whether tools that watch the program (bare_memory.h) run it: it launches what no other check
  // launches, and it still works on a GPU that does one thing after the other.
  bool watched = false;
};

// Whether the check is for kernels like this one, and for bare memory if that is in use.
bool AppliesTo(const Check& check, const Kernel& kernel);

// matches_oracle               O and LSE are within the tolerance, all rows in use and nothing else
//                              are written, and a second run gives the same bits
// zero_q_gives_mean_of_v       O is the mean of the V that a row sees, LSE the log of their number
// constant_v_gives_v           O is 1 if V is 1 and the row sees a key
// hidden_keys_have_no_influence  other K and V in the future (and, with a window, in the past) do
//                              not change the bits of rows that do not see them
// nan_reaches_rows_that_see_it  NaN in a key makes all O, and LSE, of these rows NaN
// sequences_are_independent    NaN in one sequence does not change the bits of any other
// lse_is_optional              O has the same bits without LSE
// lens_modes_agree             a fixed problem is also right as packed and as padded sequences
// config_overrides             the kernel's example configurations, and small numbers for each key
//                              that Supports() accepts, are also right: all of them on TileCases()
//                              (two in turn, with bare memory), one on every fourth other case.
//                              Unknown keys and values that make no sense are InvalidArgument
// traffic_model                ExpectedTraffic() counts at least the FLOPs and the bytes written of
//                              CompulsoryTraffic()
// gives_its_scores             S and P of a kernel that gives them are right, and O has the same
//                              bits as without them
//
// On a GPU, from the second call of Forward() on:
//
// can_be_captured              a CUDA graph of the call gives the bits of a plain call, also after
//                              its inputs have changed in place
// allocates_nothing            it takes nothing from the memory pool, captured or not
// runs_on_the_callers_stream   it returns while the stream is held up, does nothing until the
//                              stream continues, and has finished when the stream has
const std::vector<Check>& Checks();

// The indices of the cases that the check runs on.
std::vector<size_t> CasesOf(const Check& check, const std::vector<Case>& cases);

// The number of cases that the kernel supports on that device.
int CountSupported(const Subject& subject, const std::vector<Case>& cases);

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_CONFORMANCE_H_
