// Which device code runs: on a GPU for which there is no machine code the driver compiles the
// newest PTX that it can, and that may be older than the GPU. Code paths that are chosen by the
// host must be in it.
#ifndef ATTENTION_CUDA_CODE_CAPABILITY_H_
#define ATTENTION_CUDA_CODE_CAPABILITY_H_

#include "cuda_runtime.h"

namespace attnlab::device {

// The compute capability that this library's code for the current device was compiled for, ten
// times NVIDIA's number. All of a program's CUDA libraries are compiled for the same ones.
cudaError_t CodeCapability(int* capability);

}  // namespace attnlab::device

#endif  // ATTENTION_CUDA_CODE_CAPABILITY_H_
