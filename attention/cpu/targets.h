// The instruction sets that this family is compiled for. Include it before any header of Highway,
// and in every file, so that all files have the same table of targets.
//
// On x86-64 they are AVX-512 (32 registers of 16 floats), AVX2, SSE4, SSSE3 and, if the compiler's
// baseline has none of them, plain C++. The choice is made when the program runs. Instruction sets
// whose vector length is unknown to the compiler are left out: the matrix products keep arrays of
// vectors in registers, which need a size.
#ifndef ATTENTION_CPU_TARGETS_H_
#define ATTENTION_CPU_TARGETS_H_

#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_WASM_EMU256)

#endif  // ATTENTION_CPU_TARGETS_H_
