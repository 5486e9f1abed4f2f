// The device code behind gpu.h: rows of attention, a block each. Not a kernel of the registry: its
// launches are not seen by launch observers, so that a test that counts a kernel's launches does
// not count these.
#ifndef ATTENTION_ORACLE_GPU_ROWS_H_
#define ATTENTION_ORACLE_GPU_ROWS_H_

#include <cstdint>

#include "attention/device/element.h"
#include "cuda_runtime_api.h"

namespace attnlab::oracle {

// Where a row's query and the first key that it sees begin, in elements of q, k and v.
struct GpuRow {
  int64_t q = 0, k = 0, v = 0;
  int64_t keys = 0;
};

// All pointers are to device memory.
struct GpuRows {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  device::Element element = device::Element::kFloat32;
  int64_t k_stride = 0, v_stride = 0;  // elements from key to key
  int64_t d = 0, dv = 0;
  float scale = 1, softcap = 0;
  bool tf32 = false;  // of the straightforward rows

  const GpuRow* rows = nullptr;
  int64_t count = 0;
  int blocks = 1;
  int64_t scratch_stride = 0;        // at least the most keys of a row
  double* scratch = nullptr;         // [blocks][scratch_stride]
  double* exact = nullptr;           // [count][dv + 3]: O, LSE, spread, score
  float* straightforward = nullptr;  // [count][dv + 1]: O, LSE
};

// Starts both on the default stream.
cudaError_t StartGpuRows(const GpuRows& rows);

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_GPU_ROWS_H_
