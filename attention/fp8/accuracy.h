// How far attention in each dtype is from attention in double precision, over numbers of which few are
// much larger than the others: N(0, 1) + N(0, 100) · Bernoulli(0.001), as in the FlashAttention-3 paper
// (Shah et al., 2024, section 4.3). Models have such outliers, and they are what fp8 is worst at.
//
//   for (const Accuracy& a : MeasureAccuracy(problem, Device::Cpu()).value()) std::cout << a.name << a.rmse;
#ifndef ATTENTION_FP8_ACCURACY_H_
#define ATTENTION_FP8_ACCURACY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/core/device.h"
#include "attention/core/dtype.h"
#include "attention/core/problem.h"

namespace attnlab::fp8 {

struct Accuracy {
  std::string name;    // "fp16", "fp8, a scale per tensor, Hadamard", …
  std::string kernel;  // the default one
  double rmse = 0;     // of the elements of O that were compared
  double largest = 0;  // error of one of them
};

// fp16, bf16, and fp8 (quantize.h) with scales per tensor, per head and per block of 128 and 64 rows,
// each without and with a Hadamard matrix. Q, K and V are made from the same fp32 numbers, and the oracle
// has these. Of the problem, b, heads, lengths, dims, mask, scale and softcap are used; its dtype is not. Of
// more than 2048 rows, as many are compared, evenly spread.
//
// `begins` is called before each of kAccuracySteps steps, with what it is. InvalidArgument if the problem has
// several dtypes, scales of blocks, pages, or lengths that vary; Unimplemented if no kernel there takes it in
// fp8; ResourceExhausted without memory.
constexpr int kAccuracySteps = 11;
absl::StatusOr<std::vector<Accuracy>> MeasureAccuracy(
    const AttentionProblem& problem, Device device, uint64_t seed = 0,
    const std::function<void(absl::string_view)>& begins = [](absl::string_view) {});

// A needle in a haystack: of so many queries, the part that find their own among so many random keys. Its
// score is 12.5, so that it weighs about as much as all others together. It is found if O has at least a
// quarter of its value. `dtype`: of Q, K and V; fp8_e4m3 with a scale per 128 rows and a Hadamard matrix.
absl::StatusOr<double> FindNeedles(DType dtype, int64_t queries, int64_t keys, Device device,
                                   uint64_t seed = 0);

}  // namespace attnlab::fp8

#endif  // ATTENTION_FP8_ACCURACY_H_
