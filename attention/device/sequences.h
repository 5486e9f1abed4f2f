// Where the tokens of each sequence lie: the device's version of SequenceOf() in core/tensors.h.
//
// The host cannot validate lengths in device memory without waiting for the device. So they are
// clamped here: whatever they say, no token lies outside the tensors and no sequence is longer than
// the problem allows.
#ifndef ATTENTION_DEVICE_SEQUENCES_H_
#define ATTENTION_DEVICE_SEQUENCES_H_

#include <cstdint>

#include "attention/device/host_device.h"

namespace attnlab::device {

// Rows [begin, begin + length) of batch `batch` of a tensor.
struct Span {
  int64_t batch = 0;
  int64_t begin = 0;
  int64_t length = 0;
};

// One side of a problem, the queries or the keys.
struct Sequences {
  const int32_t* offsets = nullptr;  // lens = packed: b + 1 of them
  const int32_t* lengths = nullptr;  // lens = padded: b of them; null: all are `longest`
  int64_t longest = 0;               // sq or skv
  int64_t tokens = 0;                // lens = packed: rows of the tensor

  // All have `longest` tokens, so no memory is read.
  ATTNLAB_HOST_DEVICE bool AllLongest() const { return offsets == nullptr && lengths == nullptr; }

  ATTNLAB_HOST_DEVICE Span operator[](int64_t i) const {
    if (offsets != nullptr) {
      const int64_t begin = Clamp(offsets[i], tokens);
      const int64_t end = Clamp(offsets[i + 1], tokens);
      return {0, begin, Clamp(end - begin, longest)};
    }
    return {i, 0, lengths == nullptr ? longest : Clamp(lengths[i], longest)};
  }

 private:
  ATTNLAB_HOST_DEVICE static int64_t Clamp(int64_t x, int64_t most) {
    return x < 0 ? 0 : (x > most ? most : x);
  }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_SEQUENCES_H_
