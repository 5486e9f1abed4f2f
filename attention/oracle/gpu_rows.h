// The device code behind gpu.h: one block computes one row of attention. It is not a kernel of the
// registry. Launch observers do not see its launches, so a test that counts a kernel's launches
// does not count these.
#ifndef ATTENTION_ORACLE_GPU_ROWS_H_
#define ATTENTION_ORACLE_GPU_ROWS_H_

#include <cstdint>

#include "attention/device/element.h"
#include "cuda_runtime_api.h"

namespace attnlab::oracle {

// Offsets of a row's query and of the first key that it sees, in elements of q, k and v. With pages,
// `k` and `v` are offsets of the head in a page, and the keys begin at `first` of the sequence whose
// row of the page table begins at `table`.
struct GpuRow {
  int64_t q = 0, k = 0, v = 0;
  int64_t keys = 0;
  int64_t first = 0, table = 0;
  float k_scale = 1, v_scale = 1;  // of its sequence and KV head
};

// All pointers are to device memory.
struct GpuRows {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  device::Element element = device::Element::kFloat32;
  bool fp8_cache = false;              // K and V are fp8_e4m3
  int64_t k_stride = 0, v_stride = 0;  // elements from one key to the next
  const int32_t* page_table = nullptr;
  int64_t page = 0;                              // 0: not paged
  int64_t k_page_stride = 0, v_page_stride = 0;  // elements from one page to the next
  int64_t d = 0, dv = 0;
  float scale = 1, softcap = 0;
  bool tf32 = false;  // for the straightforward rows

  const GpuRow* rows = nullptr;
  int64_t count = 0;
  int blocks = 1;
  int64_t scratch_stride = 0;        // at least the number of keys of any row
  double* scratch = nullptr;         // [blocks][scratch_stride]
  double* exact = nullptr;           // [count][dv + 3]: O, LSE, spread, score
  float* straightforward = nullptr;  // [count][dv + 1]: O, LSE
};

// Starts the exact and the straightforward kernel on the default stream.
cudaError_t StartGpuRows(const GpuRows& rows);

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_GPU_ROWS_H_
