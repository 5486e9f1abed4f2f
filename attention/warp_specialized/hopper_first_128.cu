#include "attention/warp_specialized/hopper.cuh"

namespace attnlab::warp_specialized {

template cudaError_t LaunchHopper<FirstHopper128>(const HopperCall&);

}  // namespace attnlab::warp_specialized
