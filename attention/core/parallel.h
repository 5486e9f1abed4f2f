// Parallel loops on CPU threads.
#ifndef ATTENTION_CORE_PARALLEL_H_
#define ATTENTION_CORE_PARALLEL_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace attnlab {

// Calls fn(index, worker) once for every index in [0, count), on up to `threads` threads (the
// caller's among them), and returns when all are done. `worker` is in [0, threads). Calls that run
// at the same time have different workers, so `worker` may select a thread's scratch. Indices are
// handed out in order, one at a time, to whichever worker is free, so put the long ones first.
// fn must not throw.
//
// However many threads are asked for, at most 4 per processor start, or 8 if that is more. Once
// Stopping() (stop.h) is true, it returns without calling fn for the rest.
//
// It uses OpenMP, which keeps its threads between calls. The thread pool belongs to the process,
// and other OpenMP code in it uses the same one. GCC's pool does not survive fork(): a child of a
// process that has called this must not call it before exec().
void ParallelFor(int64_t count, int threads, absl::FunctionRef<void(int64_t, int)> fn);

// The most threads that one ParallelFor() has used since the last call of this function, 0 for
// none: a benchmark asks so that it knows how many processors a kernel wanted.
int TakeMostThreads();

}  // namespace attnlab

#endif  // ATTENTION_CORE_PARALLEL_H_
