#include "attention/warp_specialized/portable.cuh"
#include "attention/warp_specialized/portable_fp32.cuh"

namespace attnlab::warp_specialized {

template cudaError_t LaunchPortable<Portable256>(const PortableCall&);
template cudaError_t LaunchPortable<Portable256Small>(const PortableCall&);
template cudaError_t LaunchPortableFp32<256>(const PortableCall&);

}  // namespace attnlab::warp_specialized
