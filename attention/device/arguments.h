// What a device kernel knows of a call: the problem and its tensors as plain numbers.
// arguments_of.h makes it on the host.
#ifndef ATTENTION_DEVICE_ARGUMENTS_H_
#define ATTENTION_DEVICE_ARGUMENTS_H_

#include <cstdint>

#include "attention/core/mask.h"
#include "attention/device/divisor.h"
#include "attention/device/host_device.h"
#include "attention/device/pages.h"
#include "attention/device/sequences.h"

namespace attnlab::device {

// A tensor with one contiguous row per (batch, token, head). Strides are in elements. The batches
// of a paged K or V are its pages.
struct Rows {
  void* data = nullptr;  // Q, K and V are only read
  int64_t batch_stride = 0, token_stride = 0, head_stride = 0;
  // Whether all rows begin at multiples of 16 bytes and are whole multiples of 16 bytes.
  bool whole_chunks = false;

  ATTNLAB_HOST_DEVICE int64_t Offset(int64_t batch, int64_t token, int64_t head) const {
    return batch * batch_stride + token * token_stride + head * head_stride;
  }
};

struct Arguments {
  Rows q, k, v, o;
  Rows lse;  // fp32, one element per row; null data: not wanted
  Sequences q_sequences, kv_sequences;
  Pages pages;  // of K and V
  Mask mask;
  int64_t b = 1;
  int32_t hq = 1;
  Divisor group;  // query heads per KV head
  int32_t d = 0, dv = 0;
  float scale = 1;
  float softcap = 0;           // 0: none
  float scale_by_softcap = 0;  // scale / softcap; 0 without a softcap
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_ARGUMENTS_H_
