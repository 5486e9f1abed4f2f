// Wide accesses: a copy moves the same bytes with 4 or with 16 bytes per thread. The wide copy
// needs a quarter of the instructions, and of the requests in flight.
#include "attention/cuda/launch.h"
#include "profiling/microbench/device_array.h"
#include "profiling/microbench/lesson.h"

namespace attnlab::profiling {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBytes = int64_t{1} << 28;

template <typename T>
__global__ void CopyElements(const T* from, T* to) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  to[i] = from[i];
}

std::string CheckCopy(const DeviceArray<float>& from, const DeviceArray<float>& to) {
  cudaError_t error = cudaSuccess;
  const auto a = from.ToHost(&error), b = to.ToHost(&error);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return a == b ? "" : "the copy differs from the source";
}

template <typename T>
Variant CopyOf(const char* name, const DeviceArray<float>& from, const DeviceArray<float>& to,
               const Gpu& gpu) {
  constexpr int64_t kElements = kBytes / sizeof(T);
  Variant variant;
  variant.name = name;
  variant.launch = [=](cudaStream_t stream) {
    return device::Launch(CopyElements<T>, static_cast<unsigned>(kElements / kThreads), kThreads, 0,
                          stream, reinterpret_cast<const T*>(from.data()),
                          reinterpret_cast<T*>(to.data()));
  };
  variant.expected = {
      About("smsp__inst_executed_op_global_ld.sum", static_cast<double>(kElements) / 32),
      About("l2_sectors_read", static_cast<double>(kBytes) / 32),
      About("l2_sectors_written", static_cast<double>(kBytes) / 32),
      About("hbm_bytes_read", kBytes, 0.01, 1 << 20),
      About("hbm_bytes_written", kBytes, 0.01, static_cast<double>(gpu.l2_bytes)),
  };
  variant.check = [=] { return CheckCopy(from, to); };
  return variant;
}

}  // namespace

cudaError_t MakeWideAccesses(const Gpu& gpu, Lesson* lesson) {
  cudaError_t error = cudaSuccess;
  constexpr int64_t kFloats = kBytes / sizeof(float);
  const auto from = DeviceArray<float>::MakeRandom(kFloats, NumberType::kFloat, /*seed=*/2, &error);
  const auto narrow = DeviceArray<float>::Make(kFloats, &error);
  const auto wide = DeviceArray<float>::Make(kFloats, &error);
  lesson->variants = {CopyOf<float>("4 bytes a thread", from, narrow, gpu),
                      CopyOf<float4>("16 bytes a thread", from, wide, gpu)};
  return error;
}

}  // namespace attnlab::profiling
