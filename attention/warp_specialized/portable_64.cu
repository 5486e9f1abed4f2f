#include "attention/warp_specialized/portable.cuh"
#include "attention/warp_specialized/portable_fp32.cuh"

namespace attnlab::warp_specialized {

template cudaError_t LaunchPortable<Portable64>(const PortableCall&);
template cudaError_t LaunchPortable<Portable64Small>(const PortableCall&);
template cudaError_t LaunchPortableFp32<64>(const PortableCall&);

}  // namespace attnlab::warp_specialized
