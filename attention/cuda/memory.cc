#include "attention/cuda/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "attention/cuda/backend.h"

namespace attnlab {

absl::StatusOr<int64_t> FreeMemory(Device device) {
  if (device.kind == DeviceKind::kCuda) return cuda_backend::FreeMemory(device.ordinal);
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    absl::string_view text = line;
    int64_t kib = 0;
    if (absl::ConsumePrefix(&text, "MemAvailable:") && absl::ConsumeSuffix(&text, "kB") &&
        absl::SimpleAtoi(text, &kib)) {
      return kib * 1024;
    }
  }
  return absl::NotFoundError("memory: /proc/meminfo does not say what is free");
}

absl::StatusOr<Buffer> Buffer::Allocate(Device device, int64_t bytes) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("bytes: ", bytes, " is negative"));
  }
  if (bytes > INT64_MAX - kMemoryAlignment) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  }
  const int64_t rounded = std::max(kMemoryAlignment, AlignedBytes(bytes));
  Buffer buffer;
  buffer.device_ = device;
  buffer.bytes_ = bytes;
  if (device.kind == DeviceKind::kCuda) {
    // CUDA aligns the memory. The size is exact, so that memcheck sees accesses beyond it.
    absl::StatusOr<void*> data =
        cuda_backend::Allocate(device.ordinal, std::max<int64_t>(1, bytes));
    if (!data.ok()) return data.status();
    buffer.data_ = *data;
  } else {
    buffer.data_ = std::aligned_alloc(kMemoryAlignment, rounded);
    if (buffer.data_ == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
    }
  }
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (device_.kind == DeviceKind::kCuda) {
    // A destructor cannot report a failed free; the next call to the device repeats the error.
    cuda_backend::Free(device_.ordinal, data_).IgnoreError();
  } else {
    std::free(data_);
  }
}

absl::Status Buffer::CheckRange(int64_t bytes, int64_t offset) const {
  if (bytes < 0 || offset < 0 || offset > bytes_ || bytes > bytes_ - offset) {
    return absl::OutOfRangeError(absl::StrCat("bytes [", offset, ", ", offset, " + ", bytes,
                                              ") lie outside a buffer of ", bytes_));
  }
  return absl::OkStatus();
}

absl::Status Buffer::CopyFromHost(const void* from, int64_t bytes, int64_t offset) {
  if (absl::Status s = CheckRange(bytes, offset); !s.ok() || bytes == 0) return s;
  void* to = static_cast<char*>(data_) + offset;
  if (device_.kind == DeviceKind::kCuda) {
    return cuda_backend::CopyToDevice(device_.ordinal, to, from, bytes);
  }
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status Buffer::CopyToHost(void* to, int64_t bytes, int64_t offset) const {
  if (absl::Status s = CheckRange(bytes, offset); !s.ok() || bytes == 0) return s;
  const void* from = static_cast<const char*>(data_) + offset;
  if (device_.kind == DeviceKind::kCuda) {
    return cuda_backend::CopyToHost(device_.ordinal, to, from, bytes);
  }
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status Buffer::Fill(uint8_t value) {
  if (bytes_ == 0) return absl::OkStatus();
  if (device_.kind == DeviceKind::kCuda) {
    return cuda_backend::Fill(device_.ordinal, data_, value, bytes_);
  }
  std::memset(data_, value, bytes_);
  return absl::OkStatus();
}

}  // namespace attnlab
