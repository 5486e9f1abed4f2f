#include "attention/fa1/forward.h"

namespace attnlab::fa1 {

cudaError_t Forward(const device::Arguments& a, const device::CudaCoreTile& tile,
                    device::Element element, cudaStream_t stream) {
  switch (tile.dim) {
    case 32:
      return ForwardOfDim<32>(a, tile, element, stream);
    case 64:
      return ForwardOfDim<64>(a, tile, element, stream);
    case 96:
      return ForwardOfDim<96>(a, tile, element, stream);
    case 128:
      return ForwardOfDim<128>(a, tile, element, stream);
    case 192:
      return ForwardOfDim<192>(a, tile, element, stream);
    case 256:
      return ForwardOfDim<256>(a, tile, element, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::fa1
