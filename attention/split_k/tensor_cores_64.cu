#include "attention/split_k/tensor_cores.cuh"

namespace attnlab::split_k {

template cudaError_t LaunchTensorCores<64>(const SplitCall&);

}  // namespace attnlab::split_k
