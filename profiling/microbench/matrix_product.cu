// A matrix product, C = A Bᵀ, like Q Kᵀ: rows of A times rows of B. In the naive kernel each thread
// reads a row of each, and the 32 rows of B that a warp reads at a time lie far apart. In the tiled
// kernel a block loads 32 x 32 of each into shared memory and reads them 32 times from there. A
// warp reads 32 rows of B's tile, four numbers per thread, and these all start in one bank until
// the rows are padded. On tensor cores, a warp multiplies fragments of 16 x 16.
#include <cuda_fp16.h>
#include <mma.h>

#include <cmath>
#include <string>

#include "attention/cuda/launch.h"
#include "profiling/microbench/device_array.h"
#include "profiling/microbench/lesson.h"

namespace attnlab::profiling {
namespace {

constexpr int kSize = 2048;
constexpr int kTile = 32;
constexpr int kFragment = 16;
constexpr int kWarpsOfBlock = 8;  // for tensor cores; each warp computes 32 x 32 of C

__global__ void Naive(const float* a, const float* b, float* c) {
  const int column = static_cast<int>(blockIdx.x) * kTile + threadIdx.x;
  const int row = static_cast<int>(blockIdx.y) * kTile + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < kSize; ++k) sum = fmaf(a[row * kSize + k], b[column * kSize + k], sum);
  c[row * kSize + column] = sum;
}

template <int kPadding>
__global__ void Tiled(const float* a, const float* b, float* c) {
  __shared__ float tile_a[kTile][kTile + kPadding], tile_b[kTile][kTile + kPadding];
  const int x = threadIdx.x, y = threadIdx.y;
  const int column = static_cast<int>(blockIdx.x) * kTile;
  const int row = static_cast<int>(blockIdx.y) * kTile;
  float sum = 0;
  for (int k = 0; k < kSize; k += kTile) {
    tile_a[y][x] = a[(row + y) * kSize + k + x];
    tile_b[y][x] = b[(column + y) * kSize + k + x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; ++i) sum = fmaf(tile_a[y][i], tile_b[x][i], sum);
    __syncthreads();
  }
  c[(row + y) * kSize + column + x] = sum;
}

__global__ void OnTensorCores(const __half* a, const __half* b, float* c) {
  using namespace nvcuda;  // NOLINT: the one namespace of wmma
  constexpr int kSide = kTile / kFragment;
  const int warp = static_cast<int>(blockIdx.x) * kWarpsOfBlock + threadIdx.x / 32;
  const int row = warp / (kSize / kTile) * kTile, column = warp % (kSize / kTile) * kTile;
  wmma::fragment<wmma::accumulator, kFragment, kFragment, kFragment, float> sums[kSide][kSide];
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) wmma::fill_fragment(sums[i][j], 0);
  }
  for (int k = 0; k < kSize; k += kFragment) {
    wmma::fragment<wmma::matrix_a, kFragment, kFragment, kFragment, __half, wmma::row_major>
        of_a[kSide];
    wmma::fragment<wmma::matrix_b, kFragment, kFragment, kFragment, __half, wmma::col_major>
        of_b[kSide];
    for (int i = 0; i < kSide; ++i) {
      wmma::load_matrix_sync(of_a[i], a + (row + i * kFragment) * kSize + k, kSize);
      wmma::load_matrix_sync(of_b[i], b + (column + i * kFragment) * kSize + k, kSize);
    }
    for (int i = 0; i < kSide; ++i) {
      for (int j = 0; j < kSide; ++j) wmma::mma_sync(sums[i][j], of_a[i], of_b[j], sums[i][j]);
    }
  }
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) {
      wmma::store_matrix_sync(c + (row + i * kFragment) * kSize + column + j * kFragment,
                              sums[i][j], kSize, wmma::mem_row_major);
    }
  }
}

__global__ void ToFloat(const __half* from, float* to) {
  const int i = static_cast<int>(blockIdx.x) * kTile + threadIdx.x;
  to[i] = __half2float(from[i]);
}

// The same numbers in fp16 and in fp32.
struct Factor {
  DeviceArray<__half> half;
  DeviceArray<float> single;
};

Factor MakeFactor(uint32_t seed, cudaError_t* error) {
  const auto half = DeviceArray<__half>::MakeRandom(kSize * kSize, NumberType::kHalf, seed, error);
  const auto single = DeviceArray<float>::Make(kSize * kSize, error);
  if (*error == cudaSuccess) {
    *error = device::Launch(ToFloat, kSize * kSize / kTile, kTile, 0, nullptr, half.data(),
                            single.data());
  }
  return {half, single};
}

std::string CheckProduct(const Factor& a, const Factor& b, const DeviceArray<float>& c) {
  cudaError_t error = cudaSuccess;
  for (const int64_t row : {0, 1, 777, kSize - 1}) {
    for (const int64_t column : {0, 31, 1024, kSize - 1}) {
      const auto of_a = a.single.ToHost(row * kSize, (row + 1) * kSize, &error);
      const auto of_b = b.single.ToHost(column * kSize, (column + 1) * kSize, &error);
      const auto of_c = c.ToHost(row * kSize + column, row * kSize + column + 1, &error);
      if (error != cudaSuccess) return cudaGetErrorString(error);
      double exact = 0;
      for (size_t k = 0; k < kSize; ++k) exact += double{of_a[k]} * of_b[k];
      if (!(std::abs(of_c[0] - exact) < 1e-2)) {
        return Concat("C[", row, "][", column, "]: ", of_c[0], ", not ", exact);
      }
    }
  }
  return "";
}

// Multiply-adds per thread, and per warp.
constexpr double kMultiplyAdds = static_cast<double>(kSize) * kSize * kSize;
constexpr double kOfWarps = kMultiplyAdds / 32;

Variant OnCudaCores(const char* name, void (*kernel)(const float*, const float*, float*),
                    const Factor& a, const Factor& b, std::vector<Expectation> expected,
                    cudaError_t* error) {
  const auto c = DeviceArray<float>::Make(kSize * kSize, error);
  Variant variant;
  variant.name = name;
  variant.launch = [=](cudaStream_t stream) {
    return device::Launch(kernel, dim3(kSize / kTile, kSize / kTile), dim3(kTile, kTile), 0, stream,
                          a.single.data(), b.single.data(), c.data());
  };
  expected.push_back(About("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", kMultiplyAdds));
  expected.push_back(About("tensor_flops_fp16", 0));
  variant.expected = std::move(expected);
  variant.check = [=] { return CheckProduct(a, b, c); };
  return variant;
}

Variant OnTensorCores(const Factor& a, const Factor& b, cudaError_t* error) {
  const auto c = DeviceArray<float>::Make(kSize * kSize, error);
  constexpr int kWarps = (kSize / kTile) * (kSize / kTile);
  Variant variant;
  variant.name = "tensor cores";
  variant.launch = [=](cudaStream_t stream) {
    return device::Launch(
        static_cast<void (*)(const __half*, const __half*, float*)>(OnTensorCores),
        kWarps / kWarpsOfBlock, 32 * kWarpsOfBlock, 0, stream, a.half.data(), b.half.data(),
        c.data());
  };
  variant.expected = {
      About("tensor_flops_fp16", 2 * kMultiplyAdds),
      {"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", 0, 0.01 * kMultiplyAdds}};
  variant.check = [=] { return CheckProduct(a, b, c); };
  return variant;
}

}  // namespace

cudaError_t MakeMatrixProduct(const Gpu&, Lesson* lesson) {
  cudaError_t error = cudaSuccess;
  const Factor a = MakeFactor(/*seed=*/11, &error), b = MakeFactor(/*seed=*/12, &error);
  // With tiles of 32, each number is loaded once by each of the 2048 / 32 blocks that need it.
  constexpr double kTileLoads = 2 * kOfWarps / kTile;
  const std::string loads = "smsp__inst_executed_op_global_ld.sum";
  // Each read of B's tile, 16 bytes per thread, takes 32 wavefronts instead of 4: 28 conflicts, or
  // 7 per multiply-add.
  lesson->variants = {
      OnCudaCores("naive", Naive, a, b,
                  {{loads, 1.2 * kOfWarps, 2.02 * kOfWarps}, {"shared_bank_conflicts", 0, 0}},
                  &error),
      OnCudaCores("tiled", Tiled<0>, a, b,
                  {About(loads, kTileLoads), About("shared_bank_conflicts", 7 * kOfWarps, 0.03)},
                  &error),
      OnCudaCores("tiled, padded", Tiled<1>, a, b,
                  {About(loads, kTileLoads), {"shared_bank_conflicts", 0, 0.05 * kOfWarps}},
                  &error),
      OnTensorCores(a, b, &error)};
  return error;
}

}  // namespace attnlab::profiling
