#include "attention/fa2/tensor_cores.cuh"

namespace attnlab::fa2 {

template cudaError_t LaunchTensorCores<256>(const TensorCoreCall&);

}  // namespace attnlab::fa2
