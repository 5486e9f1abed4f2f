// Which device code runs. On a GPU for which there is no machine code, the driver compiles the
// newest PTX that it can, and that PTX may be for an older GPU. The host must choose only code
// paths that this PTX has.
#ifndef ATTENTION_CUDA_CODE_CAPABILITY_H_
#define ATTENTION_CUDA_CODE_CAPABILITY_H_

#include "cuda_runtime.h"

namespace attnlab::device {

// The compute capability, ten times NVIDIA's number, that this library's code for the current
// device was compiled for. All CUDA libraries of a program are compiled for the same capabilities.
cudaError_t CodeCapability(int* capability);

}  // namespace attnlab::device

#endif  // ATTENTION_CUDA_CODE_CAPABILITY_H_
