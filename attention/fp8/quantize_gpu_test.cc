// On a GPU: Quantize() writes what it writes on the CPU, bit for bit, and nothing else.
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attention/core/dtype.h"
#include "attention/cuda/memory.h"
#include "attention/fp8/quantize.h"
#include "gtest/gtest.h"

namespace attnlab::fp8 {
namespace {

constexpr uint8_t kUntouched = 0x5A;

struct Case {
  const char* line;
  DType from = DType::kBFloat16;
  bool hadamard = true;
  bool per_tensor = false;
  int64_t rotary_dim = 0;
  bool interleaved = false;
  float size = 1, outlier = 60;  // of elements, and of one of them
  bool heads_first = false;      // [b, h, s, d] in memory, with gaps between rows
};

// Tensors on one device, from the same numbers on each.
class Side {
 public:
  Side(const Case& c, const AttentionProblem& p, Device device) : c_(c), p_(p), device_(device) {
    const bool packed = p.lens == Lengths::kPacked;
    const int64_t b = packed ? 1 : p.b;
    const auto rows = [&](int64_t longest) { return packed ? p.b * longest : longest; };
    Add(p.dtype, b, rows(p.sq), p.sq, p.hq, p.d, &from_.q, &to_.q, &to_.q_scale);
    Add(p.dtype, b, rows(p.skv), p.skv, p.hkv, p.d, &from_.k, &to_.k, &to_.k_scale);
    Add(p.VDType(), b, rows(p.skv), p.skv, p.hkv, p.dv, &from_.v, &to_.v, &to_.v_scale);
    if (c.rotary_dim != 0) {
      const int64_t positions = p.skv + 3, stride = c.rotary_dim + 4;
      std::vector<float> angles(positions * stride);
      for (float& x : angles) x = normal_(random_);
      options_.rotary.table =
          BshdView(static_cast<const void*>(Move(angles.data(), angles.size() * sizeof(float))),
                   DType::kFloat32, device, 1, positions, 1, c.rotary_dim);
      options_.rotary.table.strides[1] = stride;
      options_.rotary.interleaved = c.interleaved;
    }
    options_.hadamard = c.hadamard;
    options_.seed = 5;
    if (p.lens == Lengths::kFixed) return;
    // Lengths or offsets: some sequences are short, and one is empty.
    std::vector<int32_t> q, kv;
    for (int64_t i = 0; i < p.b; ++i) {
      kv.push_back(static_cast<int32_t>(i == 1 ? 0 : p.skv - 37 * i));
      q.push_back(std::min<int32_t>(kv.back(), static_cast<int32_t>(p.sq - 5 * i)));
    }
    if (packed) {
      for (std::vector<int32_t>* of : {&q, &kv}) {
        of->insert(of->begin(), 0);
        for (size_t i = 1; i < of->size(); ++i) (*of)[i] += (*of)[i - 1];
      }
    }
    const auto of = [&](const std::vector<int32_t>& x) {
      return absl::MakeConstSpan(
          static_cast<const int32_t*>(Move(x.data(), x.size() * sizeof(int32_t))), x.size());
    };
    if (packed) {
      from_.cu_seqlens_q = {of(q).data(), p.b + 1}, from_.cu_seqlens_kv = {of(kv).data(), p.b + 1};
    } else {
      from_.q_len = {of(q).data(), p.b}, from_.kv_len = {of(kv).data(), p.b};
    }
  }

  absl::Status Run() { return Quantize(p_, from_, to_, options_); }

  // All that was written, and what was there before.
  std::vector<std::vector<uint8_t>> Outputs() {
    std::vector<std::vector<uint8_t>> all;
    for (Buffer* buffer : outputs_) {
      all.emplace_back(buffer->bytes());
      EXPECT_TRUE(buffer->CopyToHost(all.back().data(), buffer->bytes()).ok());
    }
    return all;
  }

 private:
  void* Move(const void* data, int64_t bytes) {
    memory_.push_back(std::make_unique<Buffer>(Buffer::Allocate(device_, bytes).value()));
    EXPECT_TRUE(memory_.back()->CopyFromHost(data, bytes).ok());
    return memory_.back()->data();
  }
  void* Untouched(int64_t bytes) {
    memory_.push_back(std::make_unique<Buffer>(Buffer::Allocate(device_, bytes).value()));
    EXPECT_TRUE(memory_.back()->Fill(kUntouched).ok());
    outputs_.push_back(memory_.back().get());
    return memory_.back()->data();
  }
  void Add(DType dtype, int64_t b, int64_t rows, int64_t longest, int64_t heads, int64_t dim,
           ConstTensorView* wide, TensorView* narrow, TensorView* scales) {
    const int64_t stride = dim + (c_.heads_first ? 16 : 0), count = b * rows * heads * stride;
    std::vector<uint16_t> elements(count);
    for (size_t i = 0; i < elements.size(); ++i) {
      StoreElement(elements.data(), c_.from, static_cast<int64_t>(i), c_.size * normal_(random_));
    }
    if (!elements.empty()) StoreElement(elements.data(), c_.from, 3 * dim + 1, c_.outlier);
    *wide = BshdView(static_cast<const void*>(Move(elements.data(), count * 2)), c_.from, device_,
                     b, rows, heads, dim);
    *narrow = BshdView(Untouched(count), dtype, device_, b, rows, heads, dim);
    if (c_.heads_first) {
      wide->strides = narrow->strides = {heads * rows * stride, stride, rows * stride, 1};
    }
    const int64_t blocks = p_.ScaleBlocks(longest);
    *scales = BshdView(Untouched(p_.b * blocks * heads * int64_t{4}), DType::kFloat32, device_,
                       p_.b, blocks, heads, 1);
    if (c_.per_tensor) scales->strides = {0, 0, 0, 1};
  }

  const Case c_;
  const AttentionProblem p_;
  const Device device_;
  std::mt19937 random_{3};
  std::normal_distribution<float> normal_;
  std::vector<std::unique_ptr<Buffer>> memory_;
  std::vector<Buffer*> outputs_;
  AttentionTensors from_;
  Fp8Tensors to_;
  QuantizeOptions options_;
};

void ExpectThatTheyAgree(const Case& c) {
  const AttentionProblem p = AttentionProblem::Parse(c.line).value();
  Side cpu(c, p, Device::Cpu()), gpu(c, p, Device::Cuda(0));
  ASSERT_EQ(cpu.Run(), absl::OkStatus()) << c.line;
  ASSERT_EQ(gpu.Run(), absl::OkStatus()) << c.line;
  EXPECT_EQ(cpu.Outputs(), gpu.Outputs()) << c.line;
}

TEST(QuantizeOnGpuTest, WritesWhatTheCpuWrites) {
  for (const Case& c : {
           Case{"b=2,hq=4,hkv=2,sq=300,d=128,dtype=fp8_e4m3,scaleblock=128"},
           Case{"b=2,hq=3,hkv=1,sq=200,skv=333,d=64,dtype=fp8_e4m3,scaleblock=64", DType::kFloat16},
           Case{"b=1,hq=2,sq=130,d=96,dtype=fp8_e4m3,scaleblock=128"},
           Case{"b=1,hq=2,sq=130,d=192,dv=128,dtype=fp8_e4m3,scaleblock=64"},
           Case{"b=2,hq=2,sq=65,d=256,dtype=fp8_e4m3,scaleblock=128", DType::kFloat16},
           Case{"b=2,hq=2,sq=65,d=256,dtype=fp8_e4m3,scaleblock=128", DType::kBFloat16, false},
           Case{"b=2,hq=3,sq=190,d=128,dtype=fp8_e4m3"},
           Case{"b=2,hq=3,sq=190,d=64,dtype=fp8_e4m3,scaleblock=64", DType::kBFloat16, true, true},
           Case{"b=2,hq=3,sq=190,d=128,dv=64,dtype=fp8_e4m3,vdtype=fp8_e5m2"},
           Case{"b=2,hq=6,hkv=2,sq=70,skv=190,d=128,dtype=fp8_e4m3,vdtype=fp8_e5m2,scaleblock=128",
                DType::kBFloat16, true, false, 128},
           Case{"b=2,hq=6,hkv=2,sq=70,skv=190,d=128,dtype=fp8_e4m3,scaleblock=128",
                DType::kBFloat16, true, false, 128},
           Case{"b=2,hq=6,hkv=2,sq=70,skv=190,d=96,dtype=fp8_e4m3,scaleblock=64", DType::kBFloat16,
                true, false, 96},
           Case{"b=1,hq=9,hkv=3,sq=150,skv=190,d=192,dtype=fp8_e4m3,scaleblock=128",
                DType::kFloat16, true, false, 192},
           Case{"b=1,hq=2,hkv=1,sq=70,skv=90,d=256,dtype=fp8_e4m3,scaleblock=64", DType::kBFloat16,
                true, false, 256},
           Case{"b=2,hq=5,hkv=5,sq=70,skv=190,d=128,dtype=fp8_e4m3,scaleblock=64", DType::kFloat16,
                false, false, 64, true},
           Case{"b=3,hq=4,hkv=2,sq=200,skv=300,d=128,dtype=fp8_e4m3,scaleblock=128,lens=packed",
                DType::kBFloat16, true, false, 32},
           Case{"b=3,hq=4,hkv=2,sq=200,skv=300,d=64,dtype=fp8_e4m3,scaleblock=64,lens=padded",
                DType::kBFloat16, true, false, 64},
           // With angles of whole rows, and blocks that are not full.
           Case{"b=4,hq=6,hkv=2,sq=200,skv=330,d=256,dtype=fp8_e4m3,scaleblock=128,lens=padded",
                DType::kBFloat16, true, false, 256},
           Case{"b=3,hq=3,hkv=3,sq=200,skv=300,d=256,dtype=fp8_e4m3,vdtype=fp8_e5m2,"
                "scaleblock=128,lens=packed",
                DType::kFloat16, false, false, 256},
           // Queries before the first position: they have its angles.
           Case{"b=2,hq=2,sq=200,skv=141,d=64,dtype=fp8_e4m3,scaleblock=64", DType::kBFloat16, true,
                false, 64},
           Case{"b=1,hq=3,hkv=1,sq=300,skv=130,d=96,dtype=fp8_e4m3,scaleblock=128", DType::kFloat16,
                true, false, 96},
           Case{"b=2,hq=2,sq=200,skv=61,d=192,dtype=fp8_e4m3,scaleblock=128", DType::kBFloat16,
                false, false, 192},
           // Enough blocks for several heads per thread block, and groups of fewer.
           Case{"b=1,hq=9,hkv=1,sq=5700,d=256,dtype=fp8_e4m3,scaleblock=64"},
           Case{"b=1,hq=9,hkv=1,sq=5700,d=256,dtype=fp8_e4m3,scaleblock=64", DType::kBFloat16, true,
                false, 64},
           Case{"b=1,hq=9,hkv=1,sq=5700,d=256,dtype=fp8_e4m3,scaleblock=64", DType::kBFloat16, true,
                false, 256},
           Case{"b=1,hq=5,hkv=1,sq=11300,d=256,dtype=fp8_e4m3,scaleblock=128", DType::kBFloat16,
                true, false, 256},
           Case{"b=1,hq=17,hkv=1,sq=5700,d=192,dtype=fp8_e4m3,scaleblock=64", DType::kBFloat16,
                true, false, 192},
           Case{"b=1,hq=9,hkv=1,sq=11300,d=64,dtype=fp8_e4m3,scaleblock=64", DType::kFloat16, true,
                false, 64},
           Case{"b=1,hq=9,hkv=3,sq=11300,d=96,dtype=fp8_e4m3,scaleblock=64", DType::kBFloat16, true,
                false, 96},
           Case{"b=1,hq=9,hkv=1,sq=11300,d=128,dtype=fp8_e4m3,scaleblock=64", DType::kBFloat16,
                true, false, 128},
           Case{"b=1,hq=9,hkv=1,sq=11300,d=64,dtype=fp8_e4m3,scaleblock=64", DType::kBFloat16,
                false},
           Case{"b=1,hq=9,hkv=1,sq=5700,d=192,dtype=fp8_e4m3,scaleblock=64", DType::kBFloat16,
                false, false, 32, true},
           // Views with gaps.
           Case{"b=2,hq=6,hkv=2,sq=70,skv=190,d=96,dtype=fp8_e4m3,scaleblock=64", DType::kBFloat16,
                true, false, 96, false, 1, 60, /*heads_first=*/true},
           Case{"b=3,hq=4,hkv=2,sq=200,skv=300,d=128,dtype=fp8_e4m3,scaleblock=128,lens=packed",
                DType::kFloat16, true, false, 32, true, 1, 60, /*heads_first=*/true},
           // More sequences than a launch takes, and one block per head.
           Case{"b=21846,hq=1,sq=1,d=64,dtype=fp8_e4m3,scaleblock=64", DType::kBFloat16, false},
           Case{"b=2,hq=3,sq=60,d=64,dtype=fp8_e4m3"},
       }) {
    ExpectThatTheyAgree(c);
  }
}

// They are computed again, times a power of two, in all blocks or in one.
TEST(QuantizeOnGpuTest, ProductsThatDoNotFitFp16) {
  const DType bf16 = DType::kBFloat16;
  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  const char* const short_line = "b=2,hq=3,sq=130,d=128,dtype=fp8_e4m3,scaleblock=64";
  for (const Case& c : {
           Case{"b=2,hq=6,hkv=2,sq=200,d=256,dtype=fp8_e4m3,scaleblock=128", bf16, true, false, 256,
                false, 3e4f, 1e30f},
           Case{"b=2,hq=6,hkv=2,sq=300,d=128,dtype=fp8_e4m3,scaleblock=64", bf16, true, false, 0,
                false, 1e-3f, 3e38f},
           Case{"b=2,hq=6,hkv=2,sq=300,d=96,dtype=fp8_e4m3,scaleblock=64", bf16, true, true, 96,
                false, 1e-12f, 1},
           Case{"b=2,hq=6,hkv=2,sq=300,d=64,dtype=fp8_e4m3,scaleblock=64", DType::kFloat16, true,
                false, 32, true, 1e-6f, 6e4f},
           Case{"b=2,hq=6,hkv=2,sq=300,d=192,dtype=fp8_e4m3", bf16, false, true, 192, false, 1e10f,
                1},
           // Several heads per thread block.
           Case{"b=1,hq=9,hkv=1,sq=5700,d=256,dtype=fp8_e4m3,scaleblock=64", bf16, true, false, 256,
                false, 1, 1e30f},
           Case{"b=1,hq=9,hkv=1,sq=11300,d=128,dtype=fp8_e4m3,scaleblock=64", bf16, true, false, 0,
                false, 1, 1e30f},
           Case{short_line, bf16, true, false, 128, false, 0, 0},
           Case{short_line, bf16, true, false, 0, false, 1, inf},
           Case{short_line, bf16, true, false, 128, false, 1, nan},
       }) {
    ExpectThatTheyAgree(c);
  }
}

TEST(QuantizeOnGpuTest, SaysWhatItHasNoCodeFor) {
  const auto message = [](const Case& c) {
    Side side(c, AttentionProblem::Parse(c.line).value(), Device::Cuda(0));
    return std::string(side.Run().message());
  };
  EXPECT_EQ(message({"hq=2,sq=10,d=80,dtype=fp8_e4m3"}),
            "d: 80 is not one of 64, 96, 128, 192 and 256, for which a GPU has code");
  EXPECT_EQ(message({"hq=2,sq=10,d=64,dv=32,dtype=fp8_e4m3"}),
            "dv: 32 is not one of 64, 96, 128, 192 and 256, for which a GPU has code");
  EXPECT_EQ(message({"hq=2,sq=10,d=64,dtype=fp8_e4m3", DType::kBFloat16, true, false, 24}),
            "rotary: dim 24; on a GPU, it must be a multiple of 16");
}

}  // namespace
}  // namespace attnlab::fp8
