#include "attention/split_k/cuda_cores.cuh"

namespace attnlab::split_k {

template cudaError_t LaunchCudaCores<128>(const SplitCall&);

}  // namespace attnlab::split_k
