// Bank conflicts: shared memory has 32 banks of 4 bytes. A warp's access takes as many cycles
// (wavefronts) as the busiest bank has different addresses. Each block transposes a tile of 32 x 32
// floats: it writes rows and reads columns. If rows have 32 floats, a column lies in one bank. With
// one float of padding per row, or with swizzled columns, it lies in 32.
#include "attention/cuda/launch.h"
#include "profiling/microbench/device_array.h"
#include "profiling/microbench/lesson.h"

namespace attnlab::profiling {
namespace {

constexpr int kTile = 32;
constexpr int kRows = 8;  // of threads; each thread has four rows of the tile
constexpr int kSize = 4096;

enum class Layout { kPlain, kPadded, kSwizzled };

template <Layout kLayout>
__device__ int PlaceOf(int row, int column) {
  if (kLayout == Layout::kPadded) return row * (kTile + 1) + column;
  if (kLayout == Layout::kSwizzled) return row * kTile + (column ^ row);
  return row * kTile + column;
}

template <Layout kLayout>
__global__ void Transpose(const float* from, float* to) {
  __shared__ float tile[kTile * (kTile + 1)];
  const int x = threadIdx.x, y = threadIdx.y;
  const int column = kTile * static_cast<int>(blockIdx.x),
            row = kTile * static_cast<int>(blockIdx.y);
#pragma unroll
  for (int i = y; i < kTile; i += kRows) {
    tile[PlaceOf<kLayout>(i, x)] = from[(row + i) * kSize + column + x];
  }
  __syncthreads();
#pragma unroll
  for (int i = y; i < kTile; i += kRows) {
    to[(column + i) * kSize + row + x] = tile[PlaceOf<kLayout>(x, i)];
  }
}

std::string CheckTransposed(const DeviceArray<float>& from, const DeviceArray<float>& to) {
  cudaError_t error = cudaSuccess;
  const auto a = from.ToHost(&error), b = to.ToHost(&error);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  for (size_t i = 0; i < kSize; ++i) {
    for (size_t j = 0; j < kSize; ++j) {
      if (a[i * kSize + j] != b[j * kSize + i]) return "the transposed matrix is wrong";
    }
  }
  return "";
}

template <Layout kLayout>
Variant Transposition(const char* name, const DeviceArray<float>& from, double conflicts_a_read,
                      cudaError_t* error) {
  const auto to = DeviceArray<float>::Make(kSize * kSize, error);
  Variant variant;
  variant.name = name;
  variant.launch = [=](cudaStream_t stream) {
    return device::Launch(Transpose<kLayout>, dim3(kSize / kTile, kSize / kTile),
                          dim3(kTile, kRows), 0, stream, from.data(), to.data());
  };
  // A warp writes once and reads once per 32 floats. Each warp that starts adds two wavefronts, and
  // sometimes two accesses meet in the pipe, which counts as a conflict.
  constexpr double kAccesses = kSize * kSize / 32.0;
  constexpr double kWarps = kAccesses * kRows / kTile;
  variant.expected = {
      About("shared_bank_conflicts", kAccesses * conflicts_a_read, 0.02, 0.15 * kAccesses),
      About("shared_wavefronts", kAccesses * (2 + conflicts_a_read) + 2 * kWarps, 0.02,
            0.15 * kAccesses),
  };
  variant.check = [=] { return CheckTransposed(from, to); };
  return variant;
}

}  // namespace

cudaError_t MakeBankConflicts(const Gpu&, Lesson* lesson) {
  cudaError_t error = cudaSuccess;
  const auto from =
      DeviceArray<float>::MakeRandom(kSize * kSize, NumberType::kFloat, /*seed=*/3, &error);
  lesson->variants = {Transposition<Layout::kPlain>("columns in one bank", from, 31, &error),
                      Transposition<Layout::kPadded>("padded rows", from, 0, &error),
                      Transposition<Layout::kSwizzled>("swizzled columns", from, 0, &error)};
  return error;
}

}  // namespace attnlab::profiling
