// The launches, as the source that is compiled for the GPU offers them.
#ifndef PAGED_SHARED_PREFIX_LAUNCH_H_
#define PAGED_SHARED_PREFIX_LAUNCH_H_

#include "attention/device/element.h"
#include "cuda_runtime.h"
#include "paged/shared_prefix/rows.h"

namespace attnlab::paged {

cudaError_t LaunchPrefixInputs(const PrefixInputs& inputs, device::Element element,
                               cudaStream_t stream);
cudaError_t LaunchPrefixMerge(const PrefixMerge& merge, device::Element element,
                              cudaStream_t stream);

}  // namespace attnlab::paged

#endif  // PAGED_SHARED_PREFIX_LAUNCH_H_
