// The exponential of the softmax, in base 2: one instruction.
#ifndef ATTENTION_DEVICE_EXP2_CUH_
#define ATTENTION_DEVICE_EXP2_CUH_

namespace attnlab::device {

// 2 to the x, 0 where that is below 2^-126.
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_EXP2_CUH_
