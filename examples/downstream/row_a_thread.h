#ifndef ROW_A_THREAD_H_
#define ROW_A_THREAD_H_

#include "attention/device/arguments.h"
#include "cuda_runtime.h"

namespace downstream {

// Enqueues fp32 attention without softcap: one thread per row, `threads` threads per block.
cudaError_t RowAThread(const attnlab::device::Arguments& arguments, int threads,
                       cudaStream_t stream);

}  // namespace downstream

#endif  // ROW_A_THREAD_H_
