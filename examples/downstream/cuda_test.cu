// A kernel compiled with attnlab's rules from another workspace. With a GPU it must compute;
// without one, the runtime must report an error.
#include <cuda_runtime.h>

#include <cstdio>

__global__ void AddOne(int* p) { *p += 1; }

int main(int argc, char**) {
  const bool need_gpu = argc > 1;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no GPU: linked and started");
    return need_gpu ? 1 : 0;
  }
  int* p = nullptr;
  int value = 41;
  if (cudaMalloc(&p, sizeof(int)) != cudaSuccess) return 1;
  cudaMemcpy(p, &value, sizeof(int), cudaMemcpyHostToDevice);
  AddOne<<<1, 1>>>(p);
  cudaMemcpy(&value, p, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(p);
  return value == 42 ? 0 : 1;
}
