// The GPU's copies and merges against those of the CPU.
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <list>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/memory.h"
#include "attention/multi_gpu/executor.h"
#include "gtest/gtest.h"

namespace attnlab::multi_gpu {
namespace {

constexpr int64_t kB = 2, kHeads = 3;

// The same tensor on both, with gaps between rows if there are `gaps`: [b, rows, heads + gaps, dim + gaps].
struct Twins {
  std::vector<char> host;
  Buffer memory;
  TensorView on_host, on_gpu;

  Twins(DType dtype, int64_t rows, int64_t dim, int64_t gaps)
      : host(kB * rows * (kHeads + gaps) * (dim + gaps) * SizeOf(dtype) + 1),
        memory(Buffer::Allocate(Device::Cuda(0), static_cast<int64_t>(host.size())).value()) {
    on_host = BshdView(static_cast<void*>(host.data()), dtype, Device::Cpu(), kB, rows,
                       kHeads + gaps, dim + gaps);
    on_host.shape[2] = kHeads, on_host.shape[3] = dim;
    on_gpu = on_host;
    on_gpu.data = memory.data(), on_gpu.device = Device::Cuda(0);
    Upload();
  }
  int64_t Elements() const {
    return (static_cast<int64_t>(host.size()) - 1) / SizeOf(on_host.dtype);
  }
  void Upload() {
    EXPECT_TRUE(memory.CopyFromHost(host.data(), static_cast<int64_t>(host.size())).ok());
  }
  std::vector<char> Download() const {
    std::vector<char> bytes(host.size());
    EXPECT_TRUE(memory.CopyToHost(bytes.data(), static_cast<int64_t>(bytes.size())).ok());
    return bytes;
  }
  template <typename Value>
  void Fill(Value value) {
    for (int64_t i = 0; i < Elements(); ++i) {
      StoreElement(host.data(), on_host.dtype, i, value());
    }
    Upload();
  }
};

TEST(ExecutorGpuTest, CopiesAsTheCpuDoes) {
  std::mt19937 random(1);
  auto cpu = MakeExecutor(Device::Cpu(), nullptr), gpu = MakeExecutor(Device::Cuda(0), nullptr);
  ASSERT_TRUE(cpu.ok() && gpu.ok()) << gpu.status();
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const int64_t dim : {1, 5, 64, 128}) {
      for (const int64_t gaps : {0, 1, 8}) {
        SCOPED_TRACE(absl::StrCat(Name(dtype), " dim ", dim, " gaps ", gaps));
        Twins from(dtype, 37, dim, gaps), to(dtype, 40, dim, 0);
        from.Fill([&] { return std::normal_distribution<float>()(random); });
        ASSERT_TRUE((*cpu)->Copy(from.on_host, to.on_host).ok());
        ASSERT_TRUE((*gpu)->Copy(from.on_gpu, to.on_gpu).ok());
        ASSERT_TRUE(cuda_backend::Synchronize(0).ok());
        EXPECT_TRUE(to.host == to.Download());
      }
    }
  }
}

// A first part of all rows that lies where O is stored, and a second one of some.
TEST(ExecutorGpuTest, AddsToWhatIsInItsPlace) {
  constexpr int64_t kRows = 50, kFirst = 20, kSome = 20, kDv = 128;
  for (const bool has_second : {false, true}) {
    std::mt19937 random(3);
    const auto normal = [&] { return std::normal_distribution<float>()(random); };
    Twins o(DType::kBFloat16, kRows, kDv, 0), lse(DType::kFloat32, kRows, 1, 0);
    Twins second(DType::kBFloat16, kSome, kDv, 0), second_lse(DType::kFloat32, kSome, 1, 0);
    for (Twins* t : {&o, &lse, &second, &second_lse}) t->Fill(normal);
    const std::vector<char> before = o.host;
    for (const bool on_gpu : {false, true}) {
      const auto view = [&](const Twins& t) { return on_gpu ? t.on_gpu : t.on_host; };
      auto executor = MakeExecutor(on_gpu ? Device::Cuda(0) : Device::Cpu(), nullptr);
      ASSERT_TRUE(executor.ok()) << executor.status();
      ASSERT_TRUE((*executor)->Reset(kB, kRows, kHeads, kDv, has_second ? 2 : 1).ok());
      ASSERT_TRUE((*executor)->Add(view(o), view(lse), 0).ok());
      if (has_second) {
        ASSERT_TRUE((*executor)->Add(view(second), view(second_lse), kFirst).ok());
      }
      ASSERT_TRUE((*executor)->Store(view(o), view(lse)).ok());
    }
    ASSERT_TRUE(cuda_backend::Synchronize(0).ok());
    const std::vector<char> o_bytes = o.Download(), lse_bytes = lse.Download();
    EXPECT_EQ(o.host == before, !has_second);
    for (int64_t i = 0; i < o.Elements(); ++i) {
      const float expected = LoadElement(o.host.data(), DType::kBFloat16, i);
      ASSERT_NEAR(LoadElement(o_bytes.data(), DType::kBFloat16, i), expected,
                  2 * Epsilon(DType::kBFloat16) * std::abs(expected) + 1e-5);
    }
    for (int64_t i = 0; i < lse.Elements(); ++i) {
      ASSERT_NEAR(LoadElement(lse_bytes.data(), DType::kFloat32, i),
                  LoadElement(lse.host.data(), DType::kFloat32, i), 1e-4);
    }
  }
}

// The last two parts are merged into O, those before by twos into a sum.
class MergeTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Parts, MergeTest, ::testing::Range(0, 8));

TEST_P(MergeTest, AsTheCpuDoes) {
  constexpr int64_t kRows = 50;
  const float none = -std::numeric_limits<float>::infinity();
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const int64_t dv : {1, 24, 128, 200}) {
      SCOPED_TRACE(absl::StrCat(Name(dtype), " dv ", dv));
      std::mt19937 random(2);
      auto cpu = MakeExecutor(Device::Cpu(), nullptr), gpu = MakeExecutor(Device::Cuda(0), nullptr);
      ASSERT_TRUE(cpu.ok() && gpu.ok()) << gpu.status();
      ASSERT_TRUE((*cpu)->Reset(kB, kRows, kHeads, dv, GetParam()).ok());
      ASSERT_TRUE((*gpu)->Reset(kB, kRows, kHeads, dv, GetParam()).ok());
      // Parts of some rows; the last rows see no key.
      constexpr int64_t kFirst[] = {0, 0, 20, 7, 20, 1, 0};
      std::list<Twins> parts;
      for (int i = 0; i < GetParam(); ++i) {
        Twins& o = parts.emplace_back(dtype, 20, dv, kFirst[i] % 2);
        Twins& lse = parts.emplace_back(DType::kFloat32, 20, 1, 0);
        o.Fill([&] { return std::normal_distribution<float>()(random); });
        lse.Fill([&] {
          if (random() % 64 == 0) return std::nanf("");
          return random() % 4 == 0 ? none : std::normal_distribution<float>(3, 20)(random);
        });
        ASSERT_TRUE((*cpu)->Add(o.on_host, lse.on_host, kFirst[i]).ok());
        ASSERT_TRUE((*gpu)->Add(o.on_gpu, lse.on_gpu, kFirst[i]).ok());
        // The part before may change now, unless it is one of the last two.
        if (i == 0 || i + 1 == GetParam()) continue;
        for (auto before = std::prev(parts.end(), 4); before != std::prev(parts.end(), 2);
             ++before) {
          ASSERT_TRUE(before->memory.Fill(0xFF).ok());
        }
      }
      Twins o(dtype, kRows, dv, 3), lse(DType::kFloat32, kRows, 1, 0);
      ASSERT_TRUE((*cpu)->Store(o.on_host, lse.on_host).ok());
      ASSERT_TRUE((*gpu)->Store(o.on_gpu, lse.on_gpu).ok());
      ASSERT_TRUE(cuda_backend::Synchronize(0).ok());
      const std::vector<char> o_bytes = o.Download(), lse_bytes = lse.Download();
      // Exponentials of the GPU are not to the last bit.
      for (int64_t i = 0; i < o.Elements(); ++i) {
        const float expected = LoadElement(o.host.data(), dtype, i);
        const float got = LoadElement(o_bytes.data(), dtype, i);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(got));
        } else {
          ASSERT_NEAR(got, expected, 2 * Epsilon(dtype) * std::abs(expected) + 1e-5);
        }
      }
      for (int64_t i = 0; i < lse.Elements(); ++i) {
        const float expected = LoadElement(lse.host.data(), DType::kFloat32, i),
                    got = LoadElement(lse_bytes.data(), DType::kFloat32, i);
        if (expected == none) {
          ASSERT_EQ(got, none);
        } else if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(got));
        } else {
          ASSERT_NEAR(got, expected, 1e-4);
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnlab::multi_gpu
