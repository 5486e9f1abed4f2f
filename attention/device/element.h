// The element types that device code computes with: those of core/dtype.h, without its Abseil.
#ifndef ATTENTION_DEVICE_ELEMENT_H_
#define ATTENTION_DEVICE_ELEMENT_H_

namespace attnlab::device {

enum class Element { kFloat32, kFloat16, kBFloat16 };

constexpr int SizeOf(Element element) { return element == Element::kFloat32 ? 4 : 2; }

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_ELEMENT_H_
