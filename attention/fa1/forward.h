// FA1's kernel: one thread block per (sequence, head), which walks the query tiles.
#ifndef ATTENTION_FA1_FORWARD_H_
#define ATTENTION_FA1_FORWARD_H_

#include "attention/device/arguments.h"
#include "attention/device/cuda_core_table.h"
#include "attention/device/element.h"
#include "cuda_runtime.h"

namespace attnlab::fa1 {

// Enqueues the kernel. `tile` is a row of the table for the arguments' head dims. `element` is the
// type of Q, K, V and O.
cudaError_t Forward(const device::Arguments& arguments, const device::CudaCoreTile& tile,
                    device::Element element, cudaStream_t stream);

// The same for tiles of one head dim, in separate sources so that they compile in parallel.
template <int kDim>
cudaError_t ForwardOfDim(const device::Arguments& arguments, const device::CudaCoreTile& tile,
                         device::Element element, cudaStream_t stream);

}  // namespace attnlab::fa1

#endif  // ATTENTION_FA1_FORWARD_H_
