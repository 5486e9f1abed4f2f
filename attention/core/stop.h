// Ends long work on the CPU early, as after Ctrl-C.
//
//   std::atomic<bool> interrupted = false;
//   StopWhen(&interrupted);
//   absl::Status s = Forward(plan, tensors);  // Cancelled soon after `interrupted` becomes true
#ifndef ATTENTION_CORE_STOP_H_
#define ATTENTION_CORE_STOP_H_

#include <atomic>

namespace attnlab {

// From now on Stopping() is *flag, on all threads of the process; null, as at the start: false.
void StopWhen(const std::atomic<bool>* flag);

// True when the work should end. ParallelFor() then hands out no more indices and kernels of the
// CPU look at no more keys: outputs are unfinished, and whoever returns a Status returns Cancelled.
bool Stopping();

}  // namespace attnlab

#endif  // ATTENTION_CORE_STOP_H_
