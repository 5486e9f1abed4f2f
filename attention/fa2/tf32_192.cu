#include "attention/fa2/tf32.cuh"

namespace attnlab::fa2 {

template cudaError_t LaunchTf32<192>(const Tf32Call&);

}  // namespace attnlab::fa2
