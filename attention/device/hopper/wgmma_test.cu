// On a Hopper GPU: TMA, mbarrier and wgmma together, as kernels use them. Small integers make all
// sums exact, so results are compared bit by bit.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "attention/core/dtype.h"
#include "attention/cuda/launch.h"
#include "attention/cuda/managed_array.h"
#include "attention/device/fragments.cuh"
#include "attention/device/hopper/mbarrier.cuh"
#include "attention/device/hopper/tensor_map.h"
#include "attention/device/hopper/tma.cuh"
#include "attention/device/hopper/warpgroup.cuh"
#include "attention/device/hopper/wgmma.cuh"
#include "attention/device/mma.cuh"
#include "cuda_runtime.h"
#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

struct Maps {
  CUtensorMap q, k, v;
};

// S = Q Kᵀ and O = S V for 64 queries and kKeys keys of one head.
template <typename T, int kDim, int kDimV, int kKeys>
struct Chain {
  static constexpr int kBlocks = (kDim + 63) / 64, kBlocksV = (kDimV + 63) / 64;
  static constexpr int kQBytes = 64 * kBlocks * 128, kKBytes = kKeys * kBlocks * 128,
                       kVBytes = kKeys * kBlocksV * 128;
  static constexpr int kShared = kQBytes + kKBytes + kVBytes;
};

template <typename T, int kDim, int kDimV, int kKeys>
__global__ void __launch_bounds__(128) Multiply(const __grid_constant__ Maps maps, TileOrigin q_at,
                                                TileOrigin kv_at, float* s_out, float* o_out) {
  using Tiles = Chain<T, kDim, kDimV, kKeys>;
  extern __shared__ __align__(1024) char shared[];
  __shared__ Barrier barrier;
  char *const q = shared, *const k = q + Tiles::kQBytes, *const v = k + Tiles::kKBytes;
  if (threadIdx.x == 0) {
    barrier.Init(1);
    cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
    barrier.ArriveAndExpect(Tiles::kShared);
    LoadTile<Tiles::kBlocks>(maps.q, q_at, q, 64, barrier.Word());
    LoadTile<Tiles::kBlocks>(maps.k, kv_at, k, kKeys, barrier.Word());
    LoadTile<Tiles::kBlocksV>(maps.v, kv_at, v, kKeys, barrier.Word());
  }
  __syncthreads();
  barrier.Wait(0);

  wgmma::Accumulators<kKeys> s;
  const wgmma::SumAlongRows rows_of_q(SharedAddress(q), 64), rows_of_k(SharedAddress(k), kKeys);
  wgmma::Fence();
  for (int i = 0; i < kDim / 16; ++i) {
    wgmma::MultiplyRows<T>(s, rows_of_q.Step(i), rows_of_k.Step(i), i > 0);
  }
  wgmma::Commit();
  wgmma::Wait<0>();
  wgmma::Keep(s.x);

  uint32_t p[kKeys / 16][4];
  for (int i = 0; i < kKeys / 16; ++i) {
    for (int j = 0; j < 4; ++j) {
      p[i][j] = PackPair<T>(s.x[8 * i + 2 * j], s.x[8 * i + 2 * j + 1]);
    }
  }
  wgmma::Accumulators<kDimV> o;
  const wgmma::SumAlongColumns columns_of_v(SharedAddress(v), kKeys);
  wgmma::Fence();
  for (int i = 0; i < kKeys / 16; ++i) {
    wgmma::MultiplyColumns<T>(o, p[i], columns_of_v.Step(i), i > 0);
  }
  wgmma::Commit();
  wgmma::Wait<0>();
  wgmma::Keep(o.x);

  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int r = 0; r < 2; ++r) {
    const int row = warp * 16 + r * 8 + lane / 4;
    const auto column = [&](int i) { return i / 2 * 8 + lane % 4 * 2 + i % 2; };
    for (int i = 0; i < kKeys / 4; ++i) s_out[row * kKeys + column(i)] = s.At(r, i);
    for (int i = 0; i < kDimV / 4; ++i) o_out[row * kDimV + column(i)] = o.At(r, i);
  }
}

// [tokens][heads][dim] with rows of `stride` elements.
struct Host {
  int tokens, heads, dim, stride;
  ManagedArray<__nv_bfloat16> data{static_cast<size_t>(tokens) * heads * stride};

  Host(int tokens, int heads, int dim, int stride, int seed)
      : tokens(tokens), heads(heads), dim(dim), stride(stride) {
    std::mt19937 random(seed);
    for (__nv_bfloat16& x : data) x = __float2bfloat16(static_cast<int>(random() % 3) - 1);
  }
  ConstTensorView View() {
    ConstTensorView view;
    view.data = data.data();
    view.dtype = DType::kBFloat16;
    view.device = Device::Cuda(0);
    view.shape = {1, tokens, heads, dim};
    view.strides = {int64_t{tokens} * heads * stride, int64_t{heads} * stride, stride, 1};
    return view;
  }
  // 0 beyond the tensor.
  float At(int token, int head, int i) {
    if (token >= tokens || i >= dim) return 0;
    return __bfloat162float(data[(static_cast<size_t>(token) * heads + head) * stride + i]);
  }
};

bool HasHopper() {
  int major = 0, minor = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) == cudaSuccess &&
         major == 9 && minor == 0;
}

// Query token `q_token` of pack `q_head` on, and keys from `kv_token` on.
template <int kDim, int kDimV, int kKeys>
void Check(Host& q, Host& k, Host& v, int pack, TileOrigin q_at, TileOrigin kv_at) {
  if (!HasHopper()) GTEST_SKIP() << "needs compute capability 9.0";
  Maps maps;
  const auto q_map = MakeTensorMap("q", q.View(), 64, pack);
  const auto k_map = MakeTensorMap("k", k.View(), kKeys, 1);
  const auto v_map = MakeTensorMap("v", v.View(), kKeys, 1);
  ASSERT_TRUE(q_map.ok() && k_map.ok() && v_map.ok())
      << q_map.status() << k_map.status() << v_map.status();
  maps.q = *q_map, maps.k = *k_map, maps.v = *v_map;
  ManagedArray<float> s(64 * kKeys), o(64 * kDimV);
  using Tiles = Chain<__nv_bfloat16, kDim, kDimV, kKeys>;
  ASSERT_EQ(Launch(Multiply<__nv_bfloat16, kDim, kDimV, kKeys>, dim3(1), dim3(128), Tiles::kShared,
                   nullptr, maps, q_at, kv_at, s.data(), o.data()),
            cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int row = 0; row < 64; ++row) {
    std::vector<float> o_row(kDimV, 0.0f);
    for (int key = 0; key < kKeys; ++key) {
      float sum = 0;
      for (int i = 0; i < kDim; ++i) {
        sum += q.At(q_at.token + row / pack, q_at.head * pack + row % pack, i) *
               k.At(kv_at.token + key, kv_at.head, i);
      }
      ASSERT_EQ(s[row * kKeys + key], sum) << "row " << row << ", key " << key;
      for (int i = 0; i < kDimV; ++i) {
        o_row[i] += sum * v.At(kv_at.token + key, kv_at.head, i);
      }
    }
    for (int i = 0; i < kDimV; ++i) {
      ASSERT_EQ(o[row * kDimV + i], o_row[i]) << "row " << row << ", column " << i;
    }
  }
}

TEST(WgmmaTest, MultipliesWhatTmaHasLoaded) {
  Host q(64, 2, 128, 128, 1), k(128, 1, 128, 128, 2), v(128, 1, 128, 128, 3);
  Check<128, 128, 128>(q, k, v, 1, {0, 1, 0}, {0, 0, 0});
}

TEST(WgmmaTest, ColumnsAndRowsBeyondTheTensorAreZero) {
  Host q(70, 1, 72, 80, 1), k(100, 2, 72, 72, 2), v(100, 2, 84, 88, 3);
  Check<96, 96, 112>(q, k, v, 1, {16, 0, 0}, {30, 1, 0});
}

TEST(WgmmaTest, HeadsThatShareATile) {
  Host q(20, 8, 64, 64, 1), k(80, 2, 64, 64, 2), v(80, 2, 64, 64, 3);
  Check<64, 64, 80>(q, k, v, 4, {3, 1, 0}, {0, 1, 0});
}

TEST(WgmmaTest, LargestTiles) {
  Host q(64, 1, 256, 256, 1), k(192, 1, 256, 256, 2), v(192, 1, 192, 192, 3);
  Check<256, 192, 80>(q, k, v, 1, {0, 0, 0}, {5, 0, 0});
}

// S of 64 queries and 64 keys, computed by wgmma with Q in registers and in shared memory, and by
// mma.sync. Counts the sums that are not the same, bit for bit.
template <typename T, int kDim>
__global__ void __launch_bounds__(128) CountDifferences(const T* q_in, const T* k_in, int* count) {
  constexpr int kBytes = 64 * kDim * sizeof(T);
  extern __shared__ __align__(1024) char shared[];
  // The address of 8 columns of a row: blocks of 64 columns in the 128-byte swizzle.
  const auto place = [](int row, int chunk) {
    return chunk / 8 * 64 * 128 + row * 128 + (chunk % 8 ^ row % 8) * 16;
  };
  for (int i = static_cast<int>(threadIdx.x); i < 64 * kDim / 8; i += 128) {
    const int to = place(i / (kDim / 8), i % (kDim / 8));
    *reinterpret_cast<uint4*>(shared + to) = reinterpret_cast<const uint4*>(q_in)[i];
    *reinterpret_cast<uint4*>(shared + kBytes + to) = reinterpret_cast<const uint4*>(k_in)[i];
  }
  FenceSharedStores();
  __syncthreads();

  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const uint32_t q = SharedAddress(shared), k = q + kBytes;
  AFragment a[kDim / 16];
  for (int i = 0; i < kDim / 16; ++i) {
    LoadMatrices(a[i].x, q + place(warp * 16 + lane % 16, 2 * i + lane / 16));
  }
  wgmma::Accumulators<64> from_registers, from_shared;
  const wgmma::SumAlongRows rows_of_q(q, 64), rows_of_k(k, 64);
  wgmma::Fence();
  for (int i = 0; i < kDim / 16; ++i) {
    wgmma::MultiplyRows<T>(from_registers, a[i].x, rows_of_k.Step(i), i > 0);
    wgmma::MultiplyRows<T>(from_shared, rows_of_q.Step(i), rows_of_k.Step(i), i > 0);
  }
  wgmma::Commit();
  wgmma::Wait<0>();
  wgmma::Keep(from_registers.x);
  wgmma::Keep(from_shared.x);
  int differences = 0;
  for (int n = 0; n < 4; ++n) {
    AccumulatorFragment d[2] = {};
    for (int i = 0; i < kDim / 16; ++i) {
      uint32_t b[4];
      LoadMatrices(b, k + place(16 * n + lane / 16 * 8 + lane % 8, 2 * i + lane / 8 % 2));
      for (int half = 0; half < 2; ++half) Mma<T>(d[half], a[i], {{b[2 * half], b[2 * half + 1]}});
    }
    for (int j = 0; j < 8; ++j) {
      const float x = d[j / 4].x[j % 4];
      differences += from_registers.x[8 * n + j] != x;
      differences += from_shared.x[8 * n + j] != x;
    }
  }
  atomicAdd(count, differences);
}

template <typename T, int kDim>
void ExpectSameSums() {
  std::mt19937 random(kDim);
  std::normal_distribution<float> normal;
  ManagedArray<T> q(64 * kDim), k(64 * kDim);
  // Terms of a sum differ by many powers of two, so that how it is rounded shows.
  for (T& x : q) x = T(std::ldexp(normal(random), static_cast<int>(random() % 13) - 6));
  for (T& x : k) x = T(std::ldexp(normal(random), static_cast<int>(random() % 13) - 6));
  ManagedArray<int> count(1);
  count[0] = 0;
  ASSERT_EQ(Launch(CountDifferences<T, kDim>, dim3(1), dim3(128), 2 * 64 * kDim * sizeof(T),
                   nullptr, q.data(), k.data(), count.data()),
            cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(count[0], 0) << "of " << 2 * 64 * 64;
}

TEST(WgmmaTest, SumsAreThoseOfMmaSync) {
  if (!HasHopper()) GTEST_SKIP() << "needs compute capability 9.0";
  ExpectSameSums<__nv_bfloat16, 128>();
  ExpectSameSums<__half, 64>();
}

// A Bᵀ of 64 rows each, A in registers and in shared memory. A is fp8_e4m3.
template <typename B, int kDim>
__global__ void __launch_bounds__(128)
    MultiplyFp8(const __nv_fp8_e4m3* a_in, const B* b_in, float* from_registers_out,
                float* from_shared_out) {
  constexpr int kBytes = 64 * kDim;
  extern __shared__ __align__(1024) char shared[];
  const auto place = [](int row, int chunk) {
    return chunk / 8 * 64 * 128 + row * 128 + (chunk % 8 ^ row % 8) * 16;
  };
  for (int i = static_cast<int>(threadIdx.x); i < kBytes / 16; i += 128) {
    const int to = place(i / (kDim / 16), i % (kDim / 16));
    *reinterpret_cast<uint4*>(shared + to) = reinterpret_cast<const uint4*>(a_in)[i];
    *reinterpret_cast<uint4*>(shared + kBytes + to) = reinterpret_cast<const uint4*>(b_in)[i];
  }
  FenceSharedStores();
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const uint32_t a = SharedAddress(shared), b = a + kBytes;
  wgmma::Accumulators<64> from_registers, from_shared;
  const wgmma::SumAlongRows rows_of_a(a, 64), rows_of_b(b, 64);
  uint32_t fragments[kDim / 32][4];
  for (int i = 0; i < kDim / 32; ++i) {
    LoadMatrices(fragments[i], a + place(warp * 16 + lane % 16, 2 * i + lane / 16));
  }
  wgmma::Fence();
  for (int i = 0; i < kDim / 32; ++i) {
    wgmma::MultiplyRows<B>(from_registers, fragments[i], rows_of_b.Step(i), i > 0);
    wgmma::MultiplyRows<B>(from_shared, rows_of_a.Step(i), rows_of_b.Step(i), i > 0);
  }
  wgmma::Commit();
  wgmma::Wait<0>();
  wgmma::Keep(from_registers.x);
  wgmma::Keep(from_shared.x);
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 16; ++i) {
      const int at = (warp * 16 + r * 8 + lane / 4) * 64 + i / 2 * 8 + lane % 4 * 2 + i % 2;
      from_registers_out[at] = from_registers.At(r, i);
      from_shared_out[at] = from_shared.At(r, i);
    }
  }
}

template <typename B, int kDim>
void CheckFp8() {
  std::mt19937 random(kDim);
  ManagedArray<__nv_fp8_e4m3> a(64 * kDim);
  ManagedArray<B> b(64 * kDim);
  for (__nv_fp8_e4m3& x : a) x = __nv_fp8_e4m3(static_cast<float>(random() % 17) - 8);
  for (B& x : b) x = B(static_cast<float>(random() % 9) - 4);  // e5m2 has these, too
  ManagedArray<float> from_registers(64 * 64), from_shared(64 * 64);
  ASSERT_EQ(Launch(MultiplyFp8<B, kDim>, dim3(1), dim3(128), 2 * 64 * kDim, nullptr, a.data(),
                   b.data(), from_registers.data(), from_shared.data()),
            cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < 64; ++column) {
      float sum = 0;
      for (int i = 0; i < kDim; ++i) {
        sum += static_cast<float>(a[row * kDim + i]) * static_cast<float>(b[column * kDim + i]);
      }
      ASSERT_EQ(from_registers[row * 64 + column], sum) << row << " " << column;
      ASSERT_EQ(from_shared[row * 64 + column], sum) << row << " " << column;
    }
  }
}

TEST(WgmmaTest, MultipliesFp8) {
  if (!HasHopper()) GTEST_SKIP() << "needs compute capability 9.0";
  CheckFp8<__nv_fp8_e4m3, 128>();
  CheckFp8<__nv_fp8_e4m3, 256>();
  CheckFp8<__nv_fp8_e5m2, 128>();
}

TEST(TensorMapTest, SaysWhatTmaCannotExpress) {
  Host q(4, 2, 12, 12, 1);
  ConstTensorView view = q.View();
  EXPECT_EQ(CheckTensorMap("q", view).message(),
            "q: head stride of 24 bytes; TMA requires a positive multiple of 16 below 2^40");
  view.shape[2] = 1;  // then the stride of heads has no meaning
  EXPECT_TRUE(CheckTensorMap("q", view).ok());
  view.strides[1] = 0;
  EXPECT_EQ(CheckTensorMap("q", view).message(),
            "q: token stride of 0 bytes; TMA requires a positive multiple of 16 below 2^40");
  view = q.View();
  view.data = static_cast<const char*>(view.data) + 2;
  EXPECT_EQ(CheckTensorMap("q", view).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace attnlab::device
