#include "attention/core/tensors.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

using ::testing::HasSubstr;

// b=2 hq=4 hkv=2 sq=3 skv=5 d=8 dv=6 in fp32. The buffers have room to spare.
class TensorsTest : public ::testing::Test {
 protected:
  TensorsTest()
      : q_(4096),
        k_(4096),
        v_(4096),
        o_(4096),
        lse_(4096),
        offsets_{0, 1, 3},
        kv_offsets_{0, 5, 5},
        q_len_{0, 3},
        kv_len_{5, 2} {
    problem_.b = 2;
    problem_.hq = 4;
    problem_.hkv = 2;
    problem_.sq = 3;
    problem_.skv = 5;
    problem_.d = 8;
    problem_.dv = 6;
    problem_.dtype = DType::kFloat32;
  }

  AttentionTensors Fixed() {
    AttentionTensors t;
    const Device cpu = Device::Cpu();
    t.q = BshdView(q_.data(), DType::kFloat32, cpu, 2, 3, 4, 8);
    t.k = BshdView(k_.data(), DType::kFloat32, cpu, 2, 5, 2, 8);
    t.v = BhsdView(v_.data(), DType::kFloat32, cpu, 2, 5, 2, 6);
    t.o = BhsdView(o_.data(), DType::kFloat32, cpu, 2, 3, 4, 6);
    t.lse = LseView(lse_.data(), cpu, 2, 3, 4);
    return t;
  }

  AttentionTensors Packed() {
    problem_.lens = Lengths::kPacked;
    AttentionTensors t;
    const Device cpu = Device::Cpu();
    t.q = BshdView(q_.data(), DType::kFloat32, cpu, 1, 3, 4, 8);
    t.k = BshdView(k_.data(), DType::kFloat32, cpu, 1, 5, 2, 8);
    t.v = BshdView(v_.data(), DType::kFloat32, cpu, 1, 5, 2, 6);
    t.o = BshdView(o_.data(), DType::kFloat32, cpu, 1, 3, 4, 6);
    t.cu_seqlens_q = {offsets_.data(), 3};
    t.cu_seqlens_kv = {kv_offsets_.data(), 3};
    return t;
  }

  AttentionTensors Padded() {
    AttentionTensors t = Fixed();
    problem_.lens = Lengths::kPadded;
    t.q_len = {q_len_.data(), 2};
    t.kv_len = {kv_len_.data(), 2};
    return t;
  }

  // K and V of 16-bit Q, as three pages of 4 tokens in fp8, with scales.
  AttentionTensors Paged() {
    problem_.page = 4;
    problem_.dtype = DType::kBFloat16;
    problem_.kv_dtype = DType::kFloat8E4M3;
    AttentionTensors t = Fixed();
    const Device cpu = Device::Cpu();
    t.q.dtype = t.o.dtype = DType::kBFloat16;
    t.k = BshdView(k_.data(), DType::kFloat8E4M3, cpu, 3, 4, 2, 8);
    t.v = BhsdView(v_.data(), DType::kFloat8E4M3, cpu, 3, 4, 2, 6);
    t.page_table = {pages_.data(), 2, 2, 3};
    t.k_scale = BshdView(scales_.data(), DType::kFloat32, cpu, 2, 1, 2, 1);
    t.v_scale = t.k_scale;
    t.v_scale.strides[0] = 0;  // all sequences share one set of scales
    return t;
  }

  void ExpectRejected(const AttentionTensors& t, const std::string& message) {
    const absl::Status s = ValidateTensors(problem_, t);
    EXPECT_FALSE(s.ok()) << message;
    EXPECT_THAT(std::string(s.message()), HasSubstr(message));
  }

  AttentionProblem problem_;
  std::vector<float> q_, k_, v_, o_, lse_;
  std::vector<int32_t> offsets_, kv_offsets_, q_len_, kv_len_;
  std::vector<int32_t> pages_ = {2, 0, -1, 1, 2};  // the -1 is in a gap between rows
  std::vector<float> scales_ = {1, 2, 3, 4};
};

TEST_F(TensorsTest, AcceptsWhatFits) {
  EXPECT_TRUE(ValidateTensors(problem_, Fixed()).ok()) << ValidateTensors(problem_, Fixed());
  AttentionTensors no_lse = Fixed();
  no_lse.lse = TensorView();
  EXPECT_TRUE(ValidateTensors(problem_, no_lse).ok());
  EXPECT_TRUE(ValidateTensors(problem_, Packed()).ok());
  EXPECT_TRUE(ValidateTensors(problem_, Padded()).ok());
}

TEST_F(TensorsTest, AcceptsPagesAndScales) {
  AttentionTensors t = Paged();
  EXPECT_TRUE(ValidateTensors(problem_, t).ok()) << ValidateTensors(problem_, t);
  const KeyPlace place = PlaceOf(problem_, t, SequenceOf(problem_, t, 1), 3);
  EXPECT_EQ(place.batch, 1);  // entry [1, 0]
  EXPECT_EQ(place.row, 3);
  // Entries beyond the length of a sequence are not read, so any value is valid.
  t.q_len = {q_len_.data(), 2};
  t.kv_len = {kv_len_.data(), 2};
  problem_.lens = Lengths::kPadded;
  pages_[4] = 99;
  EXPECT_TRUE(ValidateTensors(problem_, t).ok()) << ValidateTensors(problem_, t);
  // Packed queries, with the lengths of their sequences in the cache.
  t.q_len = {};
  problem_.lens = Lengths::kPacked;
  t.q = BshdView(q_.data(), DType::kBFloat16, Device::Cpu(), 1, 3, 4, 8);
  t.o = BshdView(o_.data(), DType::kBFloat16, Device::Cpu(), 1, 3, 4, 6);
  t.lse = TensorView();
  t.cu_seqlens_q = {offsets_.data(), 3};
  EXPECT_TRUE(ValidateTensors(problem_, t).ok()) << ValidateTensors(problem_, t);
  const Sequence s = SequenceOf(problem_, t, 1);
  EXPECT_EQ(s.q_begin, 1);
  EXPECT_EQ(s.kv_batch, 1);
  EXPECT_EQ(s.kv_begin, 0);
  EXPECT_EQ(s.kv_len, 2);
  t.cu_seqlens_kv = {kv_offsets_.data(), 3};
  ExpectRejected(t, "cu_seqlens_kv: is given, but lens=packed with page=4 uses cu_seqlens_q and");
}

TEST_F(TensorsTest, RejectsPagesAndScalesThatDoNotFit) {
  static constexpr float kZeros[4] = {};
  const struct {
    std::function<void(AttentionTensors&)> change;
    std::string message;
  } kBad[] = {
      {[](auto& t) { t.k.dtype = DType::kBFloat16; }, "k: dtype is bf16, must be fp8_e4m3"},
      {[](auto& t) { t.k.shape[1] = 5; }, "k: shape is [3, 5, 2, 8], must be [3, 4, 2, 8]"},
      {[](auto& t) { t.v.shape[0] = 2; }, "v: shape is [2, 4, 2, 6], must be [3, 4, 2, 6]"},
      {[](auto& t) { t.k.shape[0] = -1; }, "k: -1 pages are not in 0..2147483647"},
      {[](auto& t) { t.k.shape[0] = t.v.shape[0] = 2; },
       "page_table: entry [0, 0] is 2, not one of the 2 pages of k"},
      {[](auto& t) { t.page_table.columns = 1; },
       "page_table: shape is [2, 1], must be [2, 2 to 2147483647]"},
      {[](auto& t) { t.page_table.rows = 1; }, "page_table: shape is [1, 2], must be [2, 2 to"},
      {[](auto& t) { t.page_table.row_stride = 2; }, "page_table: entry [1, 0] is -1"},
      {[](auto& t) { t.page_table.row_stride = -2; }, "page_table: row stride -2 is not in 0.."},
      {[](auto& t) { t.page_table.data = nullptr; }, "page_table: the data pointer is null"},
      {[](auto& t) {
         t.page_table.data =
             reinterpret_cast<const int32_t*>(reinterpret_cast<uintptr_t>(t.page_table.data) + 1);
       },
       "is not a multiple of 4"},
      {[](auto& t) { t.q_scale = t.k_scale; },
       "q_scale: is given, but what it scales is bf16, not fp8"},
      {[](auto& t) { t.k_scale.shape[0] = 1; },
       "k_scale: shape is [1, 1, 2, 1], must be [2, 1, 2, 1]"},
      {[](auto& t) { t.v_scale.dtype = DType::kFloat16; }, "v_scale: dtype is fp16, must be fp32"},
      {[](auto& t) { t.v_scale.device = Device::Cuda(0); }, "v_scale: on cuda:0, but q is on cpu"},
      {[](auto& t) { t.v_scale.strides[2] = -1; }, "v_scale: strides [0, 2, -1, 1]"},
      {[](auto& t) { t.v_scale.data = kZeros; },
       "v_scale: entry [0, 0, 0, 0] is 0, must be positive"},
  };
  for (const auto& bad : kBad) {
    AttentionTensors t = Paged();
    bad.change(t);
    ExpectRejected(t, bad.message);
  }
  AttentionTensors t = Paged();
  problem_.page = 0;
  t.k = BshdView(k_.data(), DType::kFloat8E4M3, Device::Cpu(), 2, 5, 2, 8);
  t.v = BhsdView(v_.data(), DType::kFloat8E4M3, Device::Cpu(), 2, 5, 2, 6);
  ExpectRejected(t, "page_table: is given, but with page=0 K and V are not paged");
}

// A sequence without keys has no scales, and NaN among K makes its scale NaN.
TEST_F(TensorsTest, ScalesThatAreUsedArePositive) {
  AttentionTensors t = Paged();
  const std::vector<int32_t> kv_len = {5, 0};
  problem_.lens = Lengths::kPadded;
  t.kv_len = {kv_len.data(), 2};
  scales_ = {1, std::numeric_limits<float>::quiet_NaN(), 0, -1};
  EXPECT_TRUE(ValidateTensors(problem_, t).ok()) << ValidateTensors(problem_, t);
  scales_[1] = -2;
  ExpectRejected(t, "k_scale: entry [0, 0, 1, 0] is -2, must be positive");
}

TEST_F(TensorsTest, VMayHaveADtypeOfItsOwn) {
  AttentionTensors t = Paged();
  problem_.dtype = t.q.dtype = DType::kFloat8E4M3;
  problem_.v_dtype = DType::kFloat8E5M2;
  ExpectRejected(t, "v: dtype is fp8_e4m3, must be fp8_e5m2");
  t.v.dtype = DType::kFloat8E5M2;
  EXPECT_TRUE(ValidateTensors(problem_, t).ok()) << ValidateTensors(problem_, t);
}

TEST_F(TensorsTest, AcceptsPackedQkvAndBroadcastInputs) {
  problem_.hkv = 4;
  problem_.skv = 3;
  problem_.dv = 8;
  AttentionTensors t = Fixed();
  const QkvViews in = PackedQkvViews(q_.data(), DType::kFloat32, Device::Cpu(), 2, 3, 4, 8);
  t.q = in.q;
  t.k = in.k;
  t.v = in.v;
  t.o = BshdView(o_.data(), DType::kFloat32, Device::Cpu(), 2, 3, 4, 8);
  EXPECT_TRUE(ValidateTensors(problem_, t).ok()) << ValidateTensors(problem_, t);
  t.k.strides[0] = 0;  // one K for the whole batch
  EXPECT_TRUE(ValidateTensors(problem_, t).ok());
}

TEST_F(TensorsTest, AcceptsEmptyTensorsWithoutData) {
  problem_.sq = 0;
  AttentionTensors t = Fixed();
  t.q = BshdView(static_cast<const void*>(nullptr), DType::kFloat32, Device::Cpu(), 2, 0, 4, 8);
  t.o = BshdView(static_cast<void*>(nullptr), DType::kFloat32, Device::Cpu(), 2, 0, 4, 6);
  t.lse = TensorView();
  EXPECT_TRUE(ValidateTensors(problem_, t).ok()) << ValidateTensors(problem_, t);
}

TEST_F(TensorsTest, RejectsViewsThatDoNotFit) {
  const struct {
    std::function<void(AttentionTensors&)> change;
    std::string message;
  } kBad[] = {
      {[](auto& t) { t.q.shape[1] = 4; }, "q: shape is [2, 4, 4, 8], must be [2, 3, 4, 8]"},
      {[](auto& t) { t.k.shape[2] = 4; }, "k: shape is [2, 5, 4, 8], must be [2, 5, 2, 8]"},
      {[](auto& t) { t.v.shape[3] = 8; }, "v: shape is [2, 5, 2, 8], must be [2, 5, 2, 6]"},
      {[](auto& t) { t.o.shape[0] = 1; }, "o: shape is [1, 3, 4, 6], must be [2, 3, 4, 6]"},
      {[](auto& t) { t.lse.shape[3] = 2; }, "lse: shape is [2, 3, 4, 2], must be [2, 3, 4, 1]"},
      {[](auto& t) { t.k.dtype = DType::kFloat16; }, "k: dtype is fp16, must be fp32"},
      {[](auto& t) { t.lse.dtype = DType::kBFloat16; }, "lse: dtype is bf16, must be fp32"},
      {[](auto& t) { t.v.device = Device::Cuda(1); }, "v: on cuda:1, but q is on cpu"},
      {[](auto& t) { t.q.data = nullptr; }, "q: the data pointer is null"},
      {[](auto& t) { t.o.data = nullptr; }, "o: the data pointer is null"},
      {[](auto& t) { t.k.data = static_cast<const char*>(t.k.data) + 2; },
       "is not a multiple of the element size 4"},
      {[](auto& t) { t.q.strides[3] = 2; }, "q: stride 2 of the dim axis is not 1"},
      {[](auto& t) { t.v.strides[1] = -6; }, "v: strides [60, -6, 30, 1]: one is negative"},
      {[](auto& t) { t.q.strides[0] = int64_t{1} << 61; }, "reach beyond 2^60 bytes"},
      {[](auto& t) { t.o.strides[1] = 0; }, "make elements overlap"},
      {[](auto& t) { t.o.strides[1] = 5; }, "make elements overlap"},
      {[](auto& t) { t.q.device.ordinal = 1; }, "q: on CPU 1; there is only CPU 0"},
      {[](auto& t) { t.lse.data = t.o.data; }, "lse: shares its address with o"},
      {[](auto& t) { t.lse.strides[0] = 11; }, "lse: strides [11, 1, 3, 1]"},
      {[](auto& t) { t.o.data = const_cast<void*>(t.q.data); },
       "o: shares its address with the input q"},
      {[](auto& t) { t.lse.data = const_cast<void*>(t.v.data); },
       "lse: shares its address with the input v"},
  };
  for (const auto& bad : kBad) {
    AttentionTensors t = Fixed();
    bad.change(t);
    ExpectRejected(t, bad.message);
  }
}

TEST_F(TensorsTest, ScratchSharesMemoryWithNoTensor) {
  AttentionTensors t = Padded();
  t.cu_seqlens_q = {offsets_.data(), 3};
  t.cu_seqlens_kv = {kv_offsets_.data(), 3};
  t.page_table = {pages_.data(), 2, 2, 3};
  t.k_scale = BshdView(scales_.data(), DType::kFloat32, Device::Cpu(), 2, 1, 2, 1);
  const auto rejected = [&t](const void* data, int64_t bytes) {
    return std::string(ValidateScratch(t, "workspace", data, bytes).message());
  };
  std::vector<float> apart(100);
  EXPECT_EQ(rejected(apart.data(), 400), "");
  const struct {
    std::string name;
    const void* data;
    int64_t bytes;
  } kTensors[] = {
      {"q", q_.data(), 2 * 3 * 4 * 8 * 4},
      {"k", k_.data(), 2 * 5 * 2 * 8 * 4},
      {"v", v_.data(), 2 * 5 * 2 * 6 * 4},
      {"o", o_.data(), 2 * 3 * 4 * 6 * 4},
      {"lse", lse_.data(), 2 * 3 * 4 * 4},
      {"cu_seqlens_q", offsets_.data(), 3 * 4},
      {"cu_seqlens_kv", kv_offsets_.data(), 3 * 4},
      {"q_len", q_len_.data(), 2 * 4},
      {"kv_len", kv_len_.data(), 2 * 4},
      {"page_table", pages_.data(), 5 * 4},
      {"k_scale", scales_.data(), 4 * 4},
  };
  for (const auto& tensor : kTensors) {
    const char* const begin = static_cast<const char*>(tensor.data);
    const std::string text = "share memory with " + tensor.name + ", which begins at 0x";
    EXPECT_THAT(rejected(begin, 1), HasSubstr("workspace: 1 bytes at 0x"));
    EXPECT_THAT(rejected(begin, 1), HasSubstr(text));
    EXPECT_THAT(rejected(begin + tensor.bytes - 1, 1), HasSubstr(text));
    EXPECT_THAT(rejected(begin - 8, 9), HasSubstr(text));
    EXPECT_THAT(rejected(begin, INT64_MAX), HasSubstr("share memory with"));
    EXPECT_EQ(rejected(begin - 8, 8), "") << tensor.name;
    EXPECT_EQ(rejected(begin + tensor.bytes, 8), "") << tensor.name;
    EXPECT_EQ(rejected(begin, 0), "") << tensor.name;
  }
}

// Puts scratch of every size at every place beside three views: one with gaps, one with unordered
// axes, one that broadcasts. Compares with sharing counted byte by byte.
TEST_F(TensorsTest, ScratchMayLieInGaps) {
  const ConstTensorView views[] = {
      {q_.data(), DType::kFloat16, Device::Cpu(), {2, 3, 1, 4}, {40, 6, 1, 1}},
      {q_.data(), DType::kFloat32, Device::Cpu(), {2, 2, 3, 1}, {3, 24, 7, 1}},
      {q_.data(), DType::kFloat32, Device::Cpu(), {3, 2, 2, 2}, {0, 16, 4, 1}},
  };
  for (const ConstTensorView& view : views) {
    const int64_t element = SizeOf(view.dtype);
    std::vector<bool> used(256);
    for (int64_t b = 0; b < view.shape[0]; ++b) {
      for (int64_t s = 0; s < view.shape[1]; ++s) {
        for (int64_t h = 0; h < view.shape[2]; ++h) {
          for (int64_t i = 0; i < view.shape[3] * element; ++i) {
            used[view.Offset(b, s, h, 0) * element + i] = true;
          }
        }
      }
    }
    for (int64_t begin = 0; begin < 200; ++begin) {
      bool shares = false;
      for (int64_t bytes = 1; bytes < 50; ++bytes) {
        shares = shares || used[begin + bytes - 1];
        const char* const data = static_cast<const char*>(view.data) + begin;
        EXPECT_EQ(ValidateScratch("q", view, "workspace", data, bytes).ok(), !shares)
            << ToString(view) << " from " << begin << ", " << bytes << " bytes";
      }
    }
  }
}

// 2^30 tokens × 2^30 heads × 16 dims are 2^64 elements, which is 0 in 64 bits.
TEST_F(TensorsTest, ManyTokensAndHeadsAreNotAnEmptyTensor) {
  constexpr int64_t kMany = int64_t{1} << 30;
  problem_.b = 1;
  problem_.hq = problem_.hkv = kMany;
  problem_.sq = problem_.skv = 1;
  problem_.d = problem_.dv = 16;
  AttentionTensors t = Packed();
  ASSERT_TRUE(problem_.Validate().ok()) << problem_.Validate();
  t.q.shape = t.k.shape = t.v.shape = t.o.shape = {1, kMany, kMany, 16};
  t.q.strides = t.k.strides = t.v.strides = {0, 0, 0, 1};
  t.o.strides = {0, 16 * kMany, 16, 1};
  t.cu_seqlens_q.count = t.cu_seqlens_kv.count = 2;
  ExpectRejected(t, "o: strides [0, 17179869184, 16, 1]");
  t.q.data = nullptr;
  ExpectRejected(t, "q: the data pointer is null");
}

TEST_F(TensorsTest, RejectsBadOffsets) {
  AttentionTensors t = Packed();
  t.cu_seqlens_q.data = nullptr;
  ExpectRejected(t, "cu_seqlens_q: the data pointer is null");
  t = Packed();
  t.cu_seqlens_kv.count = 2;
  ExpectRejected(t, "cu_seqlens_kv: has 2 entries, must have 3");
  t = Packed();
  t.cu_seqlens_q.data =
      reinterpret_cast<const int32_t*>(reinterpret_cast<uintptr_t>(offsets_.data()) + 2);
  ExpectRejected(
      t, absl::StrCat("cu_seqlens_q: address ", reinterpret_cast<uintptr_t>(t.cu_seqlens_q.data),
                      " is not a multiple of 4"));
  t = Packed();
  t.q_len = {q_len_.data(), 2};
  ExpectRejected(t, "q_len: is given, but lens=packed uses");
  offsets_ = {1, 1, 3};
  ExpectRejected(Packed(), "cu_seqlens_q: begins with 1, not 0");
  offsets_ = {0, 2, 1};
  ExpectRejected(Packed(), "cu_seqlens_q: sequence 1 has length -1, which is not in 0..3");
  offsets_ = {0, 1, 5};
  ExpectRejected(Packed(), "cu_seqlens_q: sequence 1 has length 4, which is not in 0..3");
  offsets_ = {0, 2, 4};
  ExpectRejected(Packed(), "cu_seqlens_q: ends with 4, beyond the 3 tokens");
}

TEST_F(TensorsTest, RejectsBadLengths) {
  AttentionTensors t = Padded();
  t.kv_len.count = 3;
  ExpectRejected(t, "kv_len: has 3 entries, must have 2");
  t = Padded();
  t.cu_seqlens_q = {offsets_.data(), 3};
  ExpectRejected(t, "cu_seqlens_q: is given, but lens=padded uses");
  kv_len_ = {5, 6};
  ExpectRejected(Padded(), "kv_len: entry 1 is 6, which is not in 0..5");
  kv_len_ = {-1, 5};
  ExpectRejected(Padded(), "kv_len: entry 0 is -1, which is not in 0..5");
  t = Padded();
  problem_.lens = Lengths::kFixed;
  ExpectRejected(t, "q_len: is given, but with lens=fixed");
}

TEST_F(TensorsTest, FindsSequences) {
  Sequence s = SequenceOf(problem_, Fixed(), 1);
  EXPECT_EQ(s.q_batch, 1);
  EXPECT_EQ(s.q_begin, 0);
  EXPECT_EQ(s.q_len, 3);
  EXPECT_EQ(s.kv_len, 5);
  s = SequenceOf(problem_, Packed(), 1);
  EXPECT_EQ(s.q_batch, 0);
  EXPECT_EQ(s.q_begin, 1);
  EXPECT_EQ(s.q_len, 2);
  EXPECT_EQ(s.kv_begin, 5);
  EXPECT_EQ(s.kv_len, 0);
  AttentionTensors padded = Padded();
  s = SequenceOf(problem_, padded, 0);
  EXPECT_EQ(s.q_len, 0);
  EXPECT_EQ(s.kv_len, 5);
  padded.kv_len = {};
  EXPECT_EQ(SequenceOf(problem_, padded, 1).kv_len, 5);
}

}  // namespace
}  // namespace attnlab
