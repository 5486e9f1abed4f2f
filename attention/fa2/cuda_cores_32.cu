#include "attention/fa2/cuda_cores.cuh"

namespace attnlab::fa2 {

template cudaError_t LaunchCudaCores<32>(const CudaCoreCall&);

}  // namespace attnlab::fa2
