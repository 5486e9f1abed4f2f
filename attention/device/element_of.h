// The Element (element.h) of a dtype, for the host.
#ifndef ATTENTION_DEVICE_ELEMENT_OF_H_
#define ATTENTION_DEVICE_ELEMENT_OF_H_

#include "attention/core/dtype.h"
#include "attention/device/element.h"

namespace attnlab::device {

// `dtype` must be fp32, fp16 or bf16: CheckDtypeAndPage() (core/supports.h) declines all others.
constexpr Element ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return Element::kFloat16;
    case DType::kBFloat16:
      return Element::kBFloat16;
    default:
      return Element::kFloat32;
  }
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_ELEMENT_OF_H_
