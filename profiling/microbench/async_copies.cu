// Asynchronous copies: each block loads a chunk of 16 KiB into shared memory and writes it
// elsewhere. A plain load goes through registers: one instruction loads, another one stores.
// cp.async (8.0) does both in one instruction, and the thread continues at once. A bulk copy by the
// Tensor Memory Accelerator (9.0) is one instruction of one thread for the whole chunk. Memory and
// L2 see no difference.
#include <cstdint>

#include "attention/cuda/launch.h"
#include "attention/device/cp_async.cuh"
#include "profiling/microbench/device_array.h"
#include "profiling/microbench/lesson.h"

namespace attnlab::profiling {
namespace {

constexpr int kThreads = 128;
constexpr int kChunkBytes = 16 << 10;
constexpr int kChunkUnits = kChunkBytes / 16;
constexpr int64_t kBytes = int64_t{1} << 28;
constexpr int64_t kChunks = kBytes / kChunkBytes;

enum class Way { kRegisters, kCpAsync, kBulk };

template <Way kWay>
__global__ void CopyChunks(const uint4* from, uint4* to) {
  __shared__ alignas(128) uint4 chunk[kChunkUnits];
  const int64_t begin = int64_t{blockIdx.x} * kChunkUnits;
  if constexpr (kWay == Way::kRegisters) {
#pragma unroll 8
    for (int i = threadIdx.x; i < kChunkUnits; i += kThreads) chunk[i] = from[begin + i];
  } else if constexpr (kWay == Way::kCpAsync) {
#pragma unroll 8
    for (int i = threadIdx.x; i < kChunkUnits; i += kThreads) {
      device::CopyAsync<16>(chunk + i, from + begin + i);
    }
    device::CopyAsyncCommit();
    device::CopyAsyncWait<0>();
  } else {
#if __CUDA_ARCH__ >= 900
    __shared__ alignas(8) uint64_t arrived;
    const uint32_t barrier = static_cast<uint32_t>(__cvta_generic_to_shared(&arrived));
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                   "n"(kChunkBytes)
                   : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
          "[%3];" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(chunk))),
          "l"(from + begin), "n"(kChunkBytes), "r"(barrier)
          : "memory");
    }
    __syncthreads();  // the barrier is initialised
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "wait: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
        "@!done bra wait;\n"
        "}" ::"r"(barrier)
        : "memory");
#endif
  }
  __syncthreads();
  // Each thread writes what another thread has loaded.
#pragma unroll 8
  for (int i = threadIdx.x; i < kChunkUnits; i += kThreads) {
    const int other = i ^ 1;
    to[begin + other] = chunk[other];
  }
}

std::string CheckCopy(const DeviceArray<float>& from, const DeviceArray<float>& to) {
  cudaError_t error = cudaSuccess;
  const auto a = from.ToHost(&error), b = to.ToHost(&error);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return a == b ? "" : "the copy differs from the source";
}

template <Way kWay>
Variant VariantOf(const char* name, const DeviceArray<float>& from, const Gpu& gpu,
                  cudaError_t* error) {
  const auto to = DeviceArray<float>::Make(kBytes / 4, error);
  Variant variant;
  variant.name = name;
  variant.launch = [=](cudaStream_t stream) {
    return device::Launch(CopyChunks<kWay>, kChunks, kThreads, 0, stream,
                          reinterpret_cast<const uint4*>(from.data()),
                          reinterpret_cast<uint4*>(to.data()));
  };
  constexpr double kInstructions = kBytes / 16.0 / 32;  // of warps, 16 bytes per thread
  const bool cp_async = kWay == Way::kCpAsync && gpu.compute_capability >= 80;
  const bool registers = kWay != Way::kBulk && !cp_async;
  variant.expected = {About("smsp__inst_executed_op_global_ld.sum", registers ? kInstructions : 0),
                      About("smsp__inst_executed_op_ldgsts.sum", cp_async ? kInstructions : 0),
                      About("hbm_bytes_read", kBytes, 0.01, 1 << 20),
                      About("hbm_bytes_written", kBytes, 0.01, static_cast<double>(gpu.l2_bytes))};
  if (gpu.compute_capability >= 90) {
    variant.expected.push_back(About("tma_bytes_read", kWay == Way::kBulk ? kBytes : 0));
  }
  variant.check = [=] { return CheckCopy(from, to); };
  return variant;
}

}  // namespace

cudaError_t MakeAsyncCopies(const Gpu& gpu, Lesson* lesson) {
  cudaError_t error = cudaSuccess;
  const auto from =
      DeviceArray<float>::MakeRandom(kBytes / 4, NumberType::kFloat, /*seed=*/10, &error);
  lesson->variants = {VariantOf<Way::kRegisters>("through registers", from, gpu, &error),
                      VariantOf<Way::kCpAsync>("cp.async", from, gpu, &error)};
  if (gpu.compute_capability >= 90) {
    lesson->variants.push_back(VariantOf<Way::kBulk>("bulk copy (TMA)", from, gpu, &error));
  }
  return error;
}

}  // namespace attnlab::profiling
