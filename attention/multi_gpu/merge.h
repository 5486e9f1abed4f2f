// The device code of gpu_executor.cc: rows are copied, and parts of O are merged by the rule of
// device/online_softmax.h. The same parts in the same order give the same bits.
#ifndef ATTENTION_MULTI_GPU_MERGE_H_
#define ATTENTION_MULTI_GPU_MERGE_H_

#include <cstdint>

#include "attention/device/element.h"
#include "attention/device/online_softmax.h"
#include "cuda_runtime_api.h"

namespace attnlab::multi_gpu {

// A tensor [b, rows, heads, dim] in device memory whose dims are neighbours. Strides in elements.
struct DeviceRows {
  void* data = nullptr;
  int64_t batch = 0, row = 0, head = 0;  // strides
};

// O of some rows, from row `first` of the whole on, divided by its sum, and its LSE in fp32.
struct DevicePart {
  DeviceRows o, lse;
  int64_t first = 0, rows = 0;
};

// What is merged in one pass over O: the sum of earlier parts, if there is one, and some more parts.
struct Merging {
  static constexpr int kMost = 2;

  int64_t b = 0, rows = 0, heads = 0, dv = 0;
  // Of each query and head: the state, and O before the division. [b, rows, heads], [b, rows, heads, dv].
  device::OnlineSoftmax* states = nullptr;
  float* sum = nullptr;
  bool has_sum = false;
  DevicePart parts[kMost];
  int count = 0;
};

// Each starts a kernel on the stream, on the current device. All parts have `element`.
// Into the sum. If there is one already, rows that no part has are not touched.
cudaError_t StartMerge(const Merging& merging, device::Element element, cudaStream_t stream);
// Into O, divided, and LSE, unless its data is null. The first of all parts may lie there already.
cudaError_t StartStore(const Merging& merging, device::Element element, const DeviceRows& o,
                       const DeviceRows& lse, cudaStream_t stream);
// Copies [b, rows, heads, dim].
cudaError_t StartCopy(int64_t b, int64_t rows, int64_t heads, int64_t dim, device::Element element,
                      const DeviceRows& from, const DeviceRows& to, cudaStream_t stream);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_MERGE_H_
