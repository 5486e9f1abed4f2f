// The class of a problem: problems of one class are tuned together, with its representative.
#ifndef ATTENTION_TUNE_PROBLEM_CLASS_H_
#define ATTENTION_TUNE_PROBLEM_CLASS_H_

#include "attention/core/problem.h"

namespace attnlab::tune {

// The representative of the problem's class: batch, KV heads, lengths and window are rounded to the
// nearest power of two, and the value of a scale or softcap does not matter. Head dims, dtypes,
// query heads per KV head and pages stay. It is a valid problem if `problem` is, and is its own
// representative.
AttentionProblem ClassOf(const AttentionProblem& problem);

}  // namespace attnlab::tune

#endif  // ATTENTION_TUNE_PROBLEM_CLASS_H_
