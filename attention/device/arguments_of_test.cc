#include "attention/device/arguments_of.h"

#include <cstdint>

#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/dtype.h"
#include "attention/core/mask.h"
#include "attention/core/tensor.h"
#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

// Addresses at multiples of 16 bytes, which nobody reads.
void* At(int64_t byte) { return reinterpret_cast<void*>(intptr_t{1} << 20 | byte); }

AttentionProblem Problem(const char* line) {
  const absl::StatusOr<AttentionProblem> problem = AttentionProblem::Parse(line);
  EXPECT_TRUE(problem.ok()) << problem.status();
  return *problem;
}

AttentionTensors Tensors(const AttentionProblem& p) {
  AttentionTensors t;
  t.q = BshdView(At(0), p.dtype, Device::Cuda(0), p.b, p.sq, p.hq, p.d);
  t.k = BshdView(At(0x1000), p.dtype, Device::Cuda(0), p.b, p.skv, p.hkv, p.d);
  t.v = BshdView(At(0x2000), p.dtype, Device::Cuda(0), p.b, p.skv, p.hkv, p.dv);
  t.o = BshdView(At(0x3000), p.dtype, Device::Cuda(0), p.b, p.sq, p.hq, p.dv);
  return t;
}

bool WholeChunks(const ConstTensorView& q) {
  AttentionProblem p = Problem("b=2,hq=4,sq=8,d=64,dtype=fp16");
  AttentionTensors t = Tensors(p);
  t.q = q;
  return ArgumentsOf(p, t).q.whole_chunks;
}

TEST(ArgumentsOfTest, AreTheProblemAndItsTensors) {
  const AttentionProblem p = Problem(
      "b=2,hq=6,hkv=3,sq=7,skv=9,d=64,dv=32,dtype=bf16,mask=window:3:1,scale=0.5,softcap=20");
  AttentionTensors t = Tensors(p);
  t.lse = LseView(static_cast<float*>(At(0x4000)), Device::Cuda(0), p.b, p.sq, p.hq);
  const Arguments a = ArgumentsOf(p, t);
  EXPECT_EQ(a.b, 2);
  EXPECT_EQ(a.hq, 6);
  EXPECT_EQ(a.group.Value(), 2u);
  EXPECT_EQ(a.d, 64);
  EXPECT_EQ(a.dv, 32);
  EXPECT_EQ(a.scale, 0.5f);
  EXPECT_EQ(a.softcap, 20);
  EXPECT_EQ(a.scale_by_softcap, 0.5f / 20);
  EXPECT_TRUE(a.mask == Mask::SlidingWindow(3, 1));
  EXPECT_EQ(a.q.data, At(0));
  EXPECT_EQ(a.k.data, At(0x1000));
  EXPECT_EQ(a.v.data, At(0x2000));
  EXPECT_EQ(a.o.data, At(0x3000));
  EXPECT_EQ(a.lse.data, At(0x4000));
  EXPECT_EQ(a.q.Offset(1, 2, 3), t.q.Offset(1, 2, 3, 0));
  EXPECT_EQ(a.v.Offset(1, 2, 2), t.v.Offset(1, 2, 2, 0));
  EXPECT_EQ(a.lse.Offset(1, 2, 3), t.lse.Offset(1, 2, 3, 0));
  EXPECT_EQ(a.q_sequences[1].length, 7);
  EXPECT_EQ(a.kv_sequences[1].length, 9);
}

TEST(ArgumentsOfTest, WithoutLseThereIsNone) {
  const AttentionProblem p = Problem("hq=1,sq=4,d=16");
  EXPECT_EQ(ArgumentsOf(p, Tensors(p)).lse.data, nullptr);
}

TEST(ArgumentsOfTest, DefaultScaleIsThatOfTheHeadDim) {
  const AttentionProblem p = Problem("hq=1,sq=4,d=16");
  EXPECT_EQ(ArgumentsOf(p, Tensors(p)).scale, 0.25f);
}

TEST(ArgumentsOfTest, LengthsGoWithTheirSide) {
  const int32_t q[] = {0, 3, 5}, kv[] = {0, 4, 10};
  AttentionProblem p = Problem("b=2,hq=1,sq=5,skv=8,d=16,lens=packed");
  AttentionTensors t = Tensors(p);
  t.q.shape[0] = t.k.shape[0] = t.v.shape[0] = t.o.shape[0] = 1;
  t.k.shape[1] = t.v.shape[1] = 10;
  t.cu_seqlens_q = {q, 3};
  t.cu_seqlens_kv = {kv, 3};
  const Arguments packed = ArgumentsOf(p, t);
  EXPECT_EQ(packed.q_sequences[1].begin, 3);
  EXPECT_EQ(packed.q_sequences[1].length, 2);
  EXPECT_EQ(packed.kv_sequences[1].begin, 4);
  EXPECT_EQ(packed.kv_sequences[1].length, 6);

  p.lens = Lengths::kPadded;
  t = Tensors(p);
  t.kv_len = {kv + 1, 2};
  const Arguments padded = ArgumentsOf(p, t);
  EXPECT_EQ(padded.q_sequences[1].length, 5);   // all of sq
  EXPECT_EQ(padded.kv_sequences[1].length, 8);  // 10, cut to skv
  EXPECT_EQ(padded.kv_sequences[0].length, 4);
}

TEST(ArgumentsOfTest, PagesAreThoseOfKAndV) {
  const int32_t table[] = {3, 1, -1, 0, 5, -1}, lengths[] = {17, 40};
  AttentionProblem p = Problem("b=2,hq=4,hkv=2,sq=1,skv=32,d=64,dtype=fp16,page=16,lens=padded");
  AttentionTensors t = Tensors(p);
  t.k = BshdView(At(0x1000), p.dtype, Device::Cuda(0), 5, 16, 2, 64);
  t.v = BshdView(At(0x2000), p.dtype, Device::Cuda(0), 5, 16, 2, 64);
  t.page_table = {table, 2, 3, 3};
  t.kv_len = {lengths, 2};
  const Arguments a = ArgumentsOf(p, t);
  EXPECT_EQ(a.kv_sequences[0].length, 17);
  EXPECT_EQ(a.kv_sequences[1].length, 32);  // 40, cut to skv
  EXPECT_EQ(a.pages.PageOf(a.pages.EntryOf(0, 15)), 3);
  EXPECT_EQ(a.pages.PageOf(a.pages.EntryOf(0, 16)), 1);
  EXPECT_EQ(a.pages.PageOf(a.pages.EntryOf(1, 31)), 4);  // 5, cut to the pages of K and V
  EXPECT_EQ(a.k.Offset(a.pages.PageOf(a.pages.EntryOf(0, 16)), a.pages.RowOf(18), 1),
            t.k.Offset(1, 2, 1, 0));

  // Without a page there is no key, whatever the lengths are.
  t.k.shape[0] = t.v.shape[0] = 0;
  EXPECT_EQ(ArgumentsOf(p, t).kv_sequences[1].length, 0);
  // Pages of other sizes.
  for (const int shift : {0, 1, 8, 30}) {
    p.page = int64_t{1} << shift;
    EXPECT_EQ(ArgumentsOf(p, t).pages.shift, shift);
  }
  p = Problem("hq=1,sq=4,d=16");
  EXPECT_EQ(ArgumentsOf(p, Tensors(p)).pages.table, nullptr);
}

TEST(ArgumentsOfTest, RowsOfWholeChunks) {
  const Device device = Device::Cuda(0);
  const auto view = [&](int64_t byte, DType dtype, int64_t dim) {
    return BshdView(At(byte), dtype, device, 2, 8, 4, dim);
  };
  EXPECT_TRUE(WholeChunks(view(0, DType::kFloat16, 64)));
  EXPECT_TRUE(WholeChunks(view(16, DType::kFloat16, 64)));
  // An address that is not a multiple of 16 bytes.
  EXPECT_FALSE(WholeChunks(view(2, DType::kFloat16, 64)));
  EXPECT_FALSE(WholeChunks(view(8, DType::kFloat16, 64)));
  // Rows of whole chunks or not: a chunk is 8 elements of 16 bits or 4 of 32.
  EXPECT_TRUE(WholeChunks(view(0, DType::kBFloat16, 8)));
  EXPECT_FALSE(WholeChunks(view(0, DType::kBFloat16, 4)));
  EXPECT_FALSE(WholeChunks(view(0, DType::kBFloat16, 68)));
  EXPECT_TRUE(WholeChunks(view(0, DType::kFloat32, 4)));
  EXPECT_FALSE(WholeChunks(view(0, DType::kFloat32, 6)));
}

TEST(ArgumentsOfTest, EveryStrideOfMoreThanOneCounts) {
  for (int axis = 0; axis < 3; ++axis) {
    TensorView q = BshdView(At(0), DType::kFloat16, Device::Cuda(0), 2, 8, 4, 64);
    q.strides[axis] += 1;
    EXPECT_FALSE(WholeChunks(q)) << "axis " << axis;
    q.strides[axis] += 7;
    EXPECT_TRUE(WholeChunks(q)) << "axis " << axis;
    q.strides[axis] = 0;  // all the same
    EXPECT_TRUE(WholeChunks(q)) << "axis " << axis;
    q.strides[axis] = 3;
    q.shape[axis] = 1;  // the stride has no meaning
    EXPECT_TRUE(WholeChunks(q)) << "axis " << axis;
  }
}

}  // namespace
}  // namespace attnlab::device
