// Checks that several kernels' Prepare() share.
#ifndef ATTENTION_CORE_SUPPORTS_H_
#define ATTENTION_CORE_SUPPORTS_H_

#include <cstdint>
#include <initializer_list>

#include "absl/status/status.h"
#include "attention/core/problem.h"

namespace attnlab {

// Forms of K and V that a kernel may take besides the plain one.
enum class KvForm {
  kFp8,    // fp8_e4m3 under fp16 or bf16 queries
  kFp8Q,   // fp8_e4m3 under queries of the same, with any odtype and scaleblock
  kE5m2V,  // with kFp8Q, V of fp8_e5m2
  kPaged,  // page != 0
};

// For kernels whose Q, K, V and O share one dtype, an Element (element.h), and whose K and V have a
// constant stride between tokens. Unimplemented for other dtypes, for K, V or O of another dtype
// than Q, and for paged K and V, except for the forms that the kernel takes:
//
//   CheckDtypeAndPage(problem, {KvForm::kFp8, KvForm::kPaged})
//
// The problem must be valid.
absl::Status CheckDtypeAndPage(const AttentionProblem& problem,
                               std::initializer_list<KvForm> takes = {});

// The most keys that a row sees.
int64_t MostKeys(const AttentionProblem& problem);

// The most keys of a row that tensor cores are given. They truncate what they add to an accumulator
// instead of rounding it. If V has one sign, that makes O smaller with each key: on an H200 by at
// most 2.4 roundings to the dtype for this many keys, and in proportion for more
// (docs/fa2_measurements.md). Code for 7.5 multiplies with m16n8k8, which takes twice as many
// products, so it gets half as many keys.
inline constexpr int64_t kMostFp16Keys = int64_t{1} << 17;
inline constexpr int64_t kMostBf16Keys = int64_t{1} << 20;

// For kernels that multiply fp16 and bf16 on tensor cores with code of this compute capability.
// Unimplemented if a row sees more keys than these.
absl::Status CheckTensorCoreKeys(const AttentionProblem& problem, int code_capability);

}  // namespace attnlab

#endif  // ATTENTION_CORE_SUPPORTS_H_
