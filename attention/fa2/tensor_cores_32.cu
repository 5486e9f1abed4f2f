#include "attention/fa2/tensor_cores.cuh"

namespace attnlab::fa2 {

template cudaError_t LaunchTensorCores<32>(const TensorCoreCall&);

}  // namespace attnlab::fa2
