#include "attention/fa1/forward.cuh"

namespace attnlab::fa1 {

template cudaError_t ForwardOfDim<256>(const device::Arguments&, const device::CudaCoreTile&,
                                       device::Element, cudaStream_t);

}  // namespace attnlab::fa1
