// Functions of the special-function unit: one instruction each, right to about one part in 2^22.
#ifndef ATTENTION_DEVICE_SPECIAL_FUNCTIONS_CUH_
#define ATTENTION_DEVICE_SPECIAL_FUNCTIONS_CUH_

namespace attnlab::device {

// 2 to the x, 0 where that is below 2^-126.
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x, 0 where that is below 2^-126, infinity where x is below it.
__device__ inline float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_SPECIAL_FUNCTIONS_CUH_
