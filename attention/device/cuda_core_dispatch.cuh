// Dispatches from a tile and an element type, chosen by the host, to the instantiated kernel.
#ifndef ATTENTION_DEVICE_CUDA_CORE_DISPATCH_CUH_
#define ATTENTION_DEVICE_CUDA_CORE_DISPATCH_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <type_traits>

#include "attention/device/cuda_core_table.h"
#include "attention/device/element.h"

namespace attnlab::device {

// Passes a type as a value.
template <typename T>
struct TypeOf {
  using Type = T;
};

// Launches for T if it is one of the types that are instantiated for this shape.
template <typename T, class Shape, typename Launch, typename... Elements>
cudaError_t LaunchIfOneOf(const Launch& launch) {
  if constexpr ((std::is_same_v<T, Elements> || ...) &&
                (std::is_same_v<T, float> || IsDimOf16Bits(Shape::kDim))) {
    return launch(Shape(), TypeOf<T>());
  } else {
    return cudaErrorInvalidValue;
  }
}

template <class Shape, typename... Elements, typename Launch>
cudaError_t ForElement(Element element, const Launch& launch) {
  switch (element) {
    case Element::kFloat32:
      return LaunchIfOneOf<float, Shape, Launch, Elements...>(launch);
    case Element::kFloat16:
      return LaunchIfOneOf<__half, Shape, Launch, Elements...>(launch);
    case Element::kBFloat16:
      return LaunchIfOneOf<__nv_bfloat16, Shape, Launch, Elements...>(launch);
  }
  return cudaErrorInvalidValue;
}

// Calls launch(Shape(), TypeOf<T>()) with the tile's shape, which has head dim kDim, and the
// element's type, one of Elements. kMedium: whether there are medium tiles too, which are fp32
// only.
//
//   ForCudaCoreTile<64, false, float, __half>(tile, element, [&](auto shape, auto type) {
//     using Shape = decltype(shape);
//     using T = typename decltype(type)::Type;
//     return Launch(MyKernel<Shape, T>, …);
//   });
//
// Returns cudaErrorInvalidValue for anything else.
template <int kDim, bool kMedium, typename... Elements, typename Launch>
cudaError_t ForCudaCoreTile(const CudaCoreTile& tile, Element element, const Launch& launch) {
  using Large = typename CudaCoreShapes<kDim>::Large;
  using Medium = std::conditional_t<kMedium, typename CudaCoreShapes<kDim>::Medium, Large>;
  using Small = typename CudaCoreShapes<kDim>::Small;
  if (tile.dim != kDim) return cudaErrorInvalidValue;
  if (tile.rows == Large::kRows && tile.keys == Large::kKeys) {
    return ForElement<Large, Elements...>(element, launch);
  }
  if (tile.rows == Medium::kRows && tile.keys == Medium::kKeys) {
    return ForElement<Medium, float>(element, launch);
  }
  if (tile.rows == Small::kRows && tile.keys == Small::kKeys) {
    return ForElement<Small, Elements...>(element, launch);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_DISPATCH_CUH_
