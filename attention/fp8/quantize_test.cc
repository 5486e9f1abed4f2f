#include "attention/fp8/quantize.h"

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attention/core/dtype.h"
#include "attention/fp8/hadamard.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::fp8 {
namespace {

using ::testing::HasSubstr;

// Random tensors of a problem in fp32, and room for them in fp8.
struct Case {
  AttentionProblem p;
  std::vector<float> q, k, v;
  std::vector<Float8E4M3> q8, k8, v8;  // V's may be fp8_e5m2
  std::vector<float> q_scale, k_scale, v_scale;
  std::vector<int32_t> offsets;
  AttentionTensors from;
  Fp8Tensors to;
  QuantizeOptions options;

  explicit Case(const std::string& line) : p(AttentionProblem::Parse(line).value()) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const bool packed = p.lens == Lengths::kPacked;
    const int64_t b = packed ? 1 : p.b;
    const auto add = [&](DType dtype, int64_t longest, int64_t heads, int64_t dim,
                         std::vector<float>* wide, std::vector<Float8E4M3>* narrow,
                         std::vector<float>* scales, ConstTensorView* from_view,
                         TensorView* to_view, TensorView* scale_view) {
      const int64_t rows = packed ? p.b * longest : longest, blocks = p.ScaleBlocks(longest);
      wide->resize(b * rows * heads * dim);
      for (float& x : *wide) x = normal(random);
      narrow->resize(wide->size());
      scales->assign(p.b * blocks * heads, -1);
      *from_view = BshdView(static_cast<const void*>(wide->data()), DType::kFloat32, Device::Cpu(),
                            b, rows, heads, dim);
      *to_view =
          BshdView(static_cast<void*>(narrow->data()), dtype, Device::Cpu(), b, rows, heads, dim);
      *scale_view = BshdView(static_cast<void*>(scales->data()), DType::kFloat32, Device::Cpu(),
                             p.b, blocks, heads, 1);
    };
    add(p.dtype, p.sq, p.hq, p.d, &q, &q8, &q_scale, &from.q, &to.q, &to.q_scale);
    add(p.dtype, p.skv, p.hkv, p.d, &k, &k8, &k_scale, &from.k, &to.k, &to.k_scale);
    add(p.VDType(), p.skv, p.hkv, p.dv, &v, &v8, &v_scale, &from.v, &to.v, &to.v_scale);
    if (!packed) return;
    for (int64_t i = 0; i <= p.b; ++i) offsets.push_back(static_cast<int32_t>(i * p.sq));
    from.cu_seqlens_q = from.cu_seqlens_kv = {offsets.data(), p.b + 1};
  }
};

float At(const TensorView& view, int64_t b, int64_t s, int64_t h, int64_t i) {
  return LoadElement(view.data, view.dtype, view.Offset(b, s, h, i));
}

// The nearest of two neighbours is at most half their distance away.
void ExpectNear(float value, float expected, float scale, bool e5m2) {
  const float epsilon = e5m2 ? 0x1p-2f : 0x1p-3f, least = e5m2 ? 0x1p-16f : 0x1p-9f;
  const float spacing = std::max(std::abs(expected) / scale * epsilon, least) * scale;
  EXPECT_LE(std::abs(value - expected), spacing / 2 * 1.0001f) << expected;
}

TEST(QuantizeTest, ScalesAreOfWhatSharesThem) {
  for (const char* line : {"b=2,hq=4,hkv=2,sq=150,d=40,dtype=fp8_e4m3,scaleblock=64",
                           "b=2,hq=4,hkv=2,sq=150,d=40,dtype=fp8_e4m3,scaleblock=128",
                           "b=2,hq=2,sq=70,d=64,dv=32,dtype=fp8_e4m3",
                           "b=2,hq=2,sq=70,d=64,dv=32,dtype=fp8_e4m3,vdtype=fp8_e5m2",
                           "b=3,hq=2,sq=100,d=32,dtype=fp8_e4m3,scaleblock=64,lens=packed"}) {
    Case c(line);
    const absl::Status s = Quantize(c.p, c.from, c.to);
    ASSERT_TRUE(s.ok()) << s;
    const bool e5m2 = c.p.VDType() == DType::kFloat8E5M2;
    const int64_t block = c.p.scale_block == 0 ? c.p.sq : c.p.scale_block;
    for (int64_t b = 0; b < c.p.b; ++b) {
      const bool packed = c.p.lens == Lengths::kPacked;
      const int64_t batch = packed ? 0 : b, first = packed ? b * c.p.sq : 0;
      for (int64_t h = 0; h < c.p.hkv; ++h) {
        for (int64_t begin = 0; begin < c.p.sq; begin += block) {
          const float scale = At(c.to.v_scale, b, begin / block, h, 0);
          float largest = 0;
          for (int64_t r = begin; r < std::min(begin + block, c.p.sq); ++r) {
            for (int64_t i = 0; i < c.p.dv; ++i) {
              const float x = LoadElement(c.from.v.data, DType::kFloat32,
                                          c.from.v.Offset(batch, first + r, h, i));
              largest = std::max(largest, std::abs(x));
              ExpectNear(At(c.to.v, batch, first + r, h, i) * scale, x, scale, e5m2);
            }
          }
          EXPECT_FLOAT_EQ(scale, largest / (e5m2 ? 57344 : 448)) << line;
        }
      }
    }
  }
}

TEST(QuantizeTest, AStrideOfZeroGivesOneScale) {
  Case c("b=2,hq=4,hkv=2,sq=70,d=40,dtype=fp8_e4m3,scaleblock=64");
  for (TensorView* scales : {&c.to.q_scale, &c.to.k_scale, &c.to.v_scale}) {
    scales->strides = {0, 0, 0, 1};
  }
  c.q[1234] = -1000;
  ASSERT_TRUE(Quantize(c.p, c.from, c.to).ok());
  EXPECT_FLOAT_EQ(c.q_scale[0], 1000.0f / 448);
  EXPECT_EQ(c.q_scale[1], -1);
  EXPECT_EQ(static_cast<float>(c.q8[1234]), -448);
}

// The last query has the position of the last key, and queries before the first key have its angles. By
// halves, dims i and i + 2 are a pair.
TEST(QuantizeTest, RotatesFirst) {
  for (const auto& [interleaved, sq] :
       {std::pair(false, 5), {true, 5}, {false, 3}, {true, 3}, {false, 7}}) {
    const std::string line = "b=2,hq=4,hkv=2,skv=5,d=8,dtype=fp8_e4m3,sq=" + std::to_string(sq);
    Case c(line), turned(line);
    std::vector<float> angles;
    for (int position = 0; position < 5; ++position) {
      for (const double x : {0.3, 0.7}) angles.push_back(std::cos(position * x));
      for (const double x : {0.3, 0.7}) angles.push_back(std::sin(position * x));
    }
    for (const bool of_q : {true, false}) {
      std::vector<float>* const x = of_q ? &turned.q : &turned.k;
      for (int64_t row = 0; row < static_cast<int64_t>(x->size()) / 8; ++row) {
        const double position =
            of_q ? std::max<int64_t>(0, row / c.p.hq % sq + 5 - sq) : row / c.p.hkv % 5;
        for (int i = 0; i < 2; ++i) {
          float &a = (*x)[8 * row + (interleaved ? 2 * i : i)],
                &b = (*x)[8 * row + (interleaved ? 2 * i + 1 : i + 2)];
          const std::complex<double> pair =
              std::complex<double>(a, b) * std::polar(1.0, position * (i == 0 ? 0.3 : 0.7));
          a = static_cast<float>(pair.real()), b = static_cast<float>(pair.imag());
        }
      }
    }
    QuantizeOptions options;
    options.rotary.table = BshdView(static_cast<const void*>(angles.data()), DType::kFloat32,
                                    Device::Cpu(), 1, 5, 1, 4);
    options.rotary.interleaved = interleaved;
    ASSERT_TRUE(Quantize(c.p, c.from, c.to, options).ok());
    ASSERT_TRUE(Quantize(turned.p, turned.from, turned.to).ok());
    for (const auto& [found, expected] : {std::pair(&c.q8, &turned.q8), {&c.k8, &turned.k8}}) {
      for (size_t i = 0; i < found->size(); ++i) {
        const auto its = static_cast<float>((*expected)[i]);
        EXPECT_NEAR(static_cast<float>((*found)[i]), its, 0.13 * std::abs(its) + 0x1p-9) << sq;
      }
    }
    EXPECT_EQ(std::memcmp(c.v8.data(), turned.v8.data(), c.v8.size()), 0);
    options.rotary.table.shape[1] = 4;
    EXPECT_THAT(std::string(Quantize(c.p, c.from, c.to, options).message()),
                HasSubstr("rotary: 4 positions, but skv = 5"));
  }
}

TEST(QuantizeTest, ZerosAndNan) {
  Case c("b=1,hq=2,sq=130,d=8,dtype=fp8_e4m3,scaleblock=64");
  for (int64_t r = 0; r < 64; ++r) {
    for (int64_t i = 0; i < 8; ++i) c.q[c.from.q.Offset(0, r, 0, i)] = 0;
  }
  c.q[c.from.q.Offset(0, 70, 1, 3)] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(Quantize(c.p, c.from, c.to).ok());
  EXPECT_EQ(At(c.to.q_scale, 0, 0, 0, 0), 0x1p-64f);
  EXPECT_EQ(At(c.to.q, 0, 5, 0, 2), 0);
  EXPECT_TRUE(std::isnan(At(c.to.q_scale, 0, 1, 1, 0)));
  EXPECT_TRUE(std::isnan(At(c.to.q, 0, 64, 1, 0)));
  EXPECT_FALSE(std::isnan(At(c.to.q, 0, 63, 1, 0)));
  EXPECT_FALSE(std::isnan(At(c.to.q, 0, 128, 1, 0)));
}

float InFp32(float x) { return x; }

// Products are computed in fp16, which some of these do not fit.
TEST(QuantizeTest, ProductsOfAllSizes) {
  const int64_t d = 128;
  for (const float size : {1e-36f, 1e-12f, 1e-5f, 1e-2f, 1.0f, 1e3f, 1e5f, 1e35f}) {
    Case c("b=1,hq=2,sq=150,d=128,dtype=fp8_e4m3,scaleblock=64");
    for (float& x : c.q) x *= size;
    c.q[5 * d] = 200 * size;
    ASSERT_TRUE(Quantize(c.p, c.from, c.to, {/*hadamard=*/true, /*seed=*/7}).ok());
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t r = 0; r < 150; ++r) {
        const float* const row = c.q.data() + c.from.q.Offset(0, r, head, 0);
        std::vector<float> product(row, row + d);
        MultiplyByHadamard(product.data(), d, 7, InFp32);
        float largest = 0;
        for (float& x : product) largest = std::max(largest, std::abs(x *= HadamardFactor(d)));
        const float scale = At(c.to.q_scale, 0, r / 64, head, 0);
        for (int64_t i = 0; i < d; ++i) {
          const float spacing = std::max(std::abs(product[i]) / 8, 0x1p-9f * scale),
                      value = At(c.to.q, 0, r, head, i) * scale;
          ASSERT_LE(std::abs(value - product[i]), spacing / 2 + 0x1p-9f * largest)
              << size << ", row " << r << ", column " << i;
        }
      }
    }
  }
}

// A row that is much smaller than others of its block, and of which all elements are lost one by one in fp16.
TEST(QuantizeTest, SmallElementsAddUp) {
  Case c("b=1,hq=1,sq=2,d=256,dtype=fp8_e4m3,scaleblock=64");
  for (int64_t i = 0; i < 256; ++i)
    c.q[i] = 0, c.q[256 + i] = IsNegated(7, i) ? -0x1p-25f : 0x1p-25f;
  c.q[0] = 0x1p-4f;
  ASSERT_TRUE(Quantize(c.p, c.from, c.to, {/*hadamard=*/true, /*seed=*/7}).ok());
  EXPECT_NEAR(At(c.to.q, 0, 1, 0, 0) * At(c.to.q_scale, 0, 0, 0, 0), 0x1p-21f, 0x1p-24f);
}

// Products of rows, and their sizes, are kept; one large element comes to be in all.
TEST(HadamardTest, IsOrthogonalAndSpreads) {
  for (const int64_t d : {1, 8, 40, 64, 96, 128, 192, 256, 512}) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> a(d), b(d), one(d);
    double before = 0, after = 0;
    for (float& x : a) x = normal(random);
    for (float& x : b) x = normal(random);
    for (int64_t i = 0; i < d; ++i) before += a[i] * b[i];
    one[d / 2] = 3;
    for (std::vector<float>* row : {&a, &b, &one}) {
      MultiplyByHadamard(row->data(), d, 7, InFp32);
      for (float& x : *row) x *= HadamardFactor(d);
    }
    for (int64_t i = 0; i < d; ++i) after += a[i] * b[i];
    EXPECT_NEAR(before, after, 1e-5 * static_cast<double>(d)) << d;
    const int64_t block = HadamardBlock(d);
    for (int64_t i = 0; i < d; ++i) {
      const bool same = i / block == d / 2 / block;
      EXPECT_FLOAT_EQ(std::abs(one[i]), same ? 3 / std::sqrt(static_cast<float>(block)) : 0) << d;
    }
  }
}

TEST(HadamardTest, SeedsGiveOtherSigns) {
  int negated = 0, differ = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    negated += IsNegated(1, i);
    differ += IsNegated(1, i) != IsNegated(2, i);
  }
  EXPECT_NEAR(negated, 500, 80);
  EXPECT_NEAR(differ, 500, 80);
}

TEST(QuantizeTest, Errors) {
  const auto message = [](const std::string& line, const auto& change) {
    Case c(line);
    change(c);
    return std::string(Quantize(c.p, c.from, c.to, c.options).message());
  };
  const std::string good = "hq=2,sq=4,d=8,dtype=fp8_e4m3";
  const auto none = [](Case&) {};
  EXPECT_EQ(message(good, none), "");
  EXPECT_EQ(message("hq=2,sq=4,d=8,dtype=bf16", none), "dtype: bf16 is not fp8_e4m3");
  EXPECT_THAT(message(good, [](Case& c) { c.p.page = 16; }), HasSubstr("page: 16; pages are not"));
  EXPECT_THAT(message(good, [](Case& c) { c.from.q = c.to.q; }),
              HasSubstr("q: dtype is fp8_e4m3, must be fp32, fp16 or bf16"));
  EXPECT_THAT(message(good, [](Case& c) { c.from.k.shape[1] = 3; }),
              HasSubstr("k: shape is [1, 3, 2, 8], must be [1, 4, 2, 8]"));
  EXPECT_THAT(message(good, [](Case& c) { c.to.v_scale.data = nullptr; }),
              HasSubstr("scales: a data pointer is null"));
  EXPECT_THAT(message(good, [](Case& c) { c.to.v_scale.shape[1] = 2; }),
              HasSubstr("v_scale: shape is [1, 2, 2, 1], must be [1, 1, 2, 1]"));
  EXPECT_THAT(message(good + ",vdtype=fp8_e5m2", [](Case& c) { c.to.v.dtype = c.p.dtype; }),
              HasSubstr("v: dtype is fp8_e4m3, must be fp8_e5m2"));
  EXPECT_THAT(message(good, [](Case& c) { c.to.k.dtype = DType::kBFloat16; }),
              HasSubstr("k: dtype is bf16, must be fp8_e4m3"));
  // Offsets are checked against `from`, but rows are written to `to`.
  EXPECT_THAT(message(good + ",b=2,lens=packed", [](Case& c) { c.to.q.shape[1] = 4; }),
              HasSubstr("to.q: shape is [1, 4, 2, 8], must be [1, 8, 2, 8]"));
  EXPECT_THAT(message(good, [](Case& c) { c.to.k.device = Device::Cuda(0); }),
              HasSubstr("to.k: on cuda:0, but q is on cpu"));
  EXPECT_THAT(message(good, [](Case& c) { c.to.q.strides[2] = 0; }),
              HasSubstr("to.q: strides [64, 16, 0, 1] with shape [1, 4, 2, 8] may make elements"));
  EXPECT_EQ(message(good, [](Case& c) { c.to.v.data = c.q.data(); }),
            "to.v: shares its address with q");
  EXPECT_EQ(message(good, [](Case& c) { c.to.k.data = c.to.q.data; }),
            "to.k: shares its address with to.q");
  EXPECT_EQ(message(good, [](Case& c) { c.to.k_scale.data = c.to.q_scale.data; }),
            "k_scale: shares its address with q_scale");
  EXPECT_EQ(message("hq=2,sq=0,skv=4,d=8,dtype=fp8_e4m3,scaleblock=64",
                    [](Case& c) { c.to.q.data = c.to.q_scale.data = nullptr; }),
            "");
  EXPECT_EQ(message("hq=2,sq=4,skv=0,d=8,dtype=fp8_e4m3",
                    [](Case& c) {
                      c.options.rotary.table = BshdView(static_cast<const void*>(c.q.data()),
                                                        DType::kFloat32, Device::Cpu(), 1, 0, 1, 4);
                    }),
            "rotary: 0 positions, must be at least 1");
}

// Before anything is launched, so this needs no GPU.
TEST(QuantizeTest, ErrorsOnAGpu) {
  const auto message = [](const std::string& line, const auto& change) {
    Case c(line);
    for (ConstTensorView* view : {&c.from.q, &c.from.k, &c.from.v}) {
      view->device = Device::Cuda(0), view->dtype = DType::kBFloat16;
    }
    for (TensorView* view :
         {&c.to.q, &c.to.k, &c.to.v, &c.to.q_scale, &c.to.k_scale, &c.to.v_scale}) {
      view->device = Device::Cuda(0);
    }
    change(c);
    return std::string(Quantize(c.p, c.from, c.to).message());
  };
  const std::string good = "hq=2,sq=4,d=64,dtype=fp8_e4m3";
  EXPECT_EQ(
      message(good,
              [](Case& c) { c.from.q.dtype = c.from.k.dtype = c.from.v.dtype = DType::kFloat32; }),
      "q: dtype: fp32 is not one of fp16 and bf16, as on a GPU");
  EXPECT_EQ(message(good, [](Case& c) { c.from.k.strides[1] += 4; }),
            "k: a stride of 264 bytes; on a GPU, it must be a multiple of 16");
  EXPECT_EQ(message(good, [](Case& c) { c.to.v.strides[1] += 8; }),
            "to.v: a stride of 136 bytes; on a GPU, it must be a multiple of 16");
  EXPECT_EQ(message(good, [](Case& c) { c.to.q.data = c.q8.data() + 8; }),
            "to.q: its address is not a multiple of 16, as it must be on a GPU");
}

}  // namespace
}  // namespace attnlab::fp8
