#include "attention/fa1/forward.h"

#include "attention/device/head_dim.h"

namespace attnlab::fa1 {

cudaError_t Forward(const device::Arguments& a, const device::CudaCoreTile& tile,
                    device::Element element, cudaStream_t stream) {
  return device::ForHeadDim(tile.dim, [&](auto dim) {
    return ForwardOfDim<decltype(dim)::kValue>(a, tile, element, stream);
  });
}

}  // namespace attnlab::fa1
