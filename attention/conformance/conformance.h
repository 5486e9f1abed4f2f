// What every kernel is held to, as functions: conformance_main.cc makes a test of each check on
// each problem for each kernel, and mutation_test.cc shows that wrong kernels do not get through.
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
  kWithIntermediates,  // that give S and P
  kOnGpu,
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
  // Whether it is for tools that watch the program (bare_memory.h): it launches what no other check
  // does, and a GPU that does one thing after the other does not matter to it.
  bool watched = false;
};

// It is a check for kernels like this one, and for bare memory if that is in use.
bool AppliesTo(const Check& check, const Kernel& kernel);

// matches_oracle               O and LSE within the tolerance, all of it written and nothing else,
//                              and the same bits in a second run
// zero_q_gives_mean_of_v       O is the mean of the V that a row sees, LSE the log of how many
// constant_v_gives_v           O is 1 where V is, if a row sees a key
// hidden_keys_have_no_influence  other K and V in the future (and, with a window, in the past)
//                              leave the bits of the rows that do not see them
// nan_reaches_rows_that_see_it  NaN in a key makes all of their O, and LSE, NaN
// sequences_are_independent    NaN in one sequence leaves the bits of all others
// lse_is_optional              O has the same bits without LSE
// lens_modes_agree             a fixed problem is as right as packed and as padded sequences
// config_overrides             the kernel's examples of configurations, and small numbers for each of
//                              its keys that Supports() takes, are as right: all of them on
//                              TileCases(), one in turn on every fourth of the others; unknown keys
//                              and values that make no sense are InvalidArgument
// traffic_model                ExpectedTraffic() counts no less work than there is
// gives_its_scores             S and P, of kernels that give them, are right, and O has the same
//                              bits as without them
//
// On a GPU, from the second call of Forward() on:
//
// can_be_captured              a CUDA graph of it gives the bits of a plain call, also after its
//                              inputs have changed in place
// allocates_nothing            it takes nothing from the memory pool, captured or not
// runs_on_the_callers_stream   it returns while the stream is held up, does nothing until that goes
//                              on, and has done all when the stream has
const std::vector<Check>& Checks();

// Which of the cases the check is run on, as indices.
std::vector<size_t> CasesOf(const Check& check, const std::vector<Case>& cases);

// How many of the cases the kernel supports on that device.
int CountSupported(const Subject& subject, const std::vector<Case>& cases);

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_CONFORMANCE_H_
