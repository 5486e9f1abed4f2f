// One call of FA2: launches the kernel that was chosen for it.
#ifndef ATTENTION_FA2_CALL_H_
#define ATTENTION_FA2_CALL_H_

#include "attention/device/arguments.h"
#include "attention/device/element.h"
#include "attention/fa2/options.h"
#include "cuda_runtime.h"

namespace attnlab::fa2 {

// Enqueues the call on the current device. `options` must be those of the problem.
cudaError_t Run(const device::Arguments& arguments, device::Element element, const Options& options,
                cudaStream_t stream);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_CALL_H_
