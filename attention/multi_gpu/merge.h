// The device code of executor_gpu.cc: rows are copied, and parts of O are merged by the rule of
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

// The sum of the parts so far, of each query and head: state, and O before the division. [b, rows, heads].
struct DeviceSum {
  device::OnlineSoftmax* states = nullptr;
  float* o = nullptr;  // [b, rows, heads, dv]
  int64_t b = 0, rows = 0, heads = 0, dv = 0;
};

// Each starts a kernel on the stream, on the current device.
// No key seen yet.
cudaError_t StartReset(const DeviceSum& sum, cudaStream_t stream);
// Adds `rows` rows of a part, from row `first` of the sum on. `lse` is fp32, with one dim.
cudaError_t StartAdd(const DeviceSum& sum, int64_t first, int64_t rows, device::Element element,
                     const DeviceRows& o, const DeviceRows& lse, cudaStream_t stream);
// lse.data may be null.
cudaError_t StartStore(const DeviceSum& sum, device::Element element, const DeviceRows& o,
                       const DeviceRows& lse, cudaStream_t stream);
// Copies [b, rows, heads, dim].
cudaError_t StartCopy(int64_t b, int64_t rows, int64_t heads, int64_t dim, device::Element element,
                      const DeviceRows& from, const DeviceRows& to, cudaStream_t stream);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_MERGE_H_
