#include "attention/cuda/launch.h"
#include "paged/block_table_patch.h"
#include "paged/launch.h"

namespace attnlab::paged {
namespace {

__global__ void PatchKernel(const __grid_constant__ TablePatch patch) {
  if (static_cast<int>(threadIdx.x) < patch.count) patch.Apply(threadIdx.x);
}

}  // namespace

cudaError_t LaunchPatch(const TablePatch& patch, cudaStream_t stream) {
  return device::Launch(PatchKernel, dim3(1), dim3(TablePatch::kMost), 0, stream, patch);
}

}  // namespace attnlab::paged
