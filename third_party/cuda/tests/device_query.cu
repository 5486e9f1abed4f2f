// Prints the GPUs of this machine, one per line; a program that consists of one .cu file.
#include <cuda_runtime.h>

#include <cstdio>

int main() {
  int devices = 0;
  if (cudaError_t error = cudaGetDeviceCount(&devices)) {
    std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int i = 0; i < devices; ++i) {
    cudaDeviceProp properties;
    if (cudaError_t error = cudaGetDeviceProperties(&properties, i)) {
      std::fprintf(stderr, "%d: %s\n", i, cudaGetErrorString(error));
      return 1;
    }
    std::printf("%d: %s, compute capability %d.%d\n", i, properties.name, properties.major,
                properties.minor);
  }
  return 0;
}
