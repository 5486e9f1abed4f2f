// Functions of few instructions and registers, with an error of about one part in 2^21: those of
// the special-function unit, and tanh on top of them.
#ifndef ATTENTION_DEVICE_SPECIAL_FUNCTIONS_CUH_
#define ATTENTION_DEVICE_SPECIAL_FUNCTIONS_CUH_

#include <cmath>

namespace attnlab::device {

// 2^x; 0 if that is below 2^-126.
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x; 0 if that is below 2^-126, infinity if x is below it.
__device__ inline float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// tanh(x), within four units in the last place. tanhf() is more precise, and right where there are
// registers for it. But it branches between two forms, and kernels that are out of registers spill
// for that. This is one quotient of polynomials, fitted to the least relative error on [0, 9].
// Beyond 9, tanh is 1 except for the last bit.
__device__ inline float Tanh(float x) {
  const float near = fabsf(x) > 9 ? copysignf(9.0f, x) : x;  // keeps NaN
  const float y = near * near;
  float p = fmaf(1.3355326622e-8f, y, 2.0609624698e-5f),
        q = fmaf(7.7768493156e-7f, y, 3.2856912003e-4f);
  p = fmaf(p, y, 3.4956235904e-3f), q = fmaf(q, y, 2.5877119973e-2f);
  p = fmaf(p, y, 0.13381056488f), q = fmaf(q, y, 0.46714371443f);
  p = fmaf(p, y, 1.0f), q = fmaf(q, y, 1.0f);
  return near * p * Reciprocal(q);
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_SPECIAL_FUNCTIONS_CUH_
