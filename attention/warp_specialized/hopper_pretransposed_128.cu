#include "attention/warp_specialized/hopper.cuh"

namespace attnlab::warp_specialized {

template cudaError_t LaunchHopper<PretransposedHopper128>(const HopperCall&);

}  // namespace attnlab::warp_specialized
