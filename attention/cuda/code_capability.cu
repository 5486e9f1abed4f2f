#include "attention/cuda/code_capability.h"

namespace attnlab::device {
namespace {

__global__ void Nothing() {}

}  // namespace

cudaError_t CodeCapability(int* capability) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, Nothing);
  // Machine code and PTX both record the capability that they were compiled from.
  if (error == cudaSuccess) *capability = attributes.ptxVersion;
  return error;
}

}  // namespace attnlab::device
