// What every kernel is held to, as functions: conformance_main.cc makes a test of each check on
// each problem for each kernel, and mutation_test.cc shows that wrong kernels do not get through.
//
//   for (const Check& check : Checks()) {
//     absl::Status s = check.run({kernel, device}, a_case);  // OK, Unimplemented, or what is wrong
//   }
#ifndef ATTENTION_TESTING_CONFORMANCE_H_
#define ATTENTION_TESTING_CONFORMANCE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attention/kernel.h"
#include "attention/testing/problems.h"
#include "attention/testing/subject.h"

namespace attnlab::testing {

// Which kernels a check is for.
enum class Where {
  kAnywhere,
  kWithIntermediates,  // that give S and P
  kOnGpu,
  kOnGpuUnwatched,  // and not under a tool that makes a GPU do one thing after the other
};

struct Check {
  std::string name;
  // Of the cases that it makes sense for, it is run on every `stride`th.
  bool (*applies)(const Case& c) = nullptr;
  int stride = 1;
  // OK; Unimplemented when the kernel's Supports() declines the problem; Internal with what is
  // wrong otherwise, and with the command that shows it again where `attnlab verify` can.
  absl::Status (*run)(const Subject& subject, const Case& c) = nullptr;
  Where where = Where::kAnywhere;
};

// It is a check for kernels like this one.
bool AppliesTo(const Check& check, const Kernel& kernel);

// matches_oracle               O and LSE within the tolerance, all of it written and nothing else,
//                              and the same bits in a second run
// zero_q_gives_mean_of_v       O is the mean of the V that a row sees, LSE the log of how many
// constant_v_gives_v           O is 1 where V is, if a row sees a key
// hidden_keys_have_no_influence  other K and V, or NaN, in the future (and, with a window, in the
//                              past) leave the bits of the rows that do not see them
// nan_reaches_rows_that_see_it  and makes all of their O, and LSE, NaN
// sequences_are_independent    NaN in one sequence leaves the bits of all others
// lse_is_optional              O has the same bits without LSE
// lens_modes_agree             a fixed problem is as right as packed and as padded sequences
// config_overrides             the kernel's examples of configurations, and small numbers for each
// of
//                              its keys as far as Supports() takes them, are as right; unknown keys
//                              and values that make no sense are InvalidArgument
// traffic_model                ExpectedTraffic() counts no less work than there is
// gives_its_scores             S and P, of kernels that give them, are right, and O has the bits
// that
//                              it has without them
//
// On a GPU, from the second call of Forward() on:
//
// can_be_captured              a CUDA graph of it gives the bits of a plain call; once its inputs
// have
//                              changed in place, those of a plain call with the new ones
// allocates_nothing            it takes nothing from the memory pool, captured or not
// runs_on_the_callers_stream   it returns while the stream is held up, does nothing until that goes
//                              on, and has done all when the stream has
const std::vector<Check>& Checks();

// How many of the cases the kernel supports on that device.
int CountSupported(const Subject& subject, const std::vector<Case>& cases);

}  // namespace attnlab::testing

#endif  // ATTENTION_TESTING_CONFORMANCE_H_
