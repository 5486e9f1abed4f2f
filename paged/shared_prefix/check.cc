#include "paged/shared_prefix/check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/attention.h"
#include "attention/core/dtype.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "gtest/gtest.h"
#include "paged/page_manager.h"
#include "paged/shared_prefix/shared_prefix.h"

namespace attnlab::paged {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Buffer ToDevice(Device device, const std::vector<char>& bytes) {
  Buffer buffer = Buffer::Allocate(device, static_cast<int64_t>(bytes.size())).value();
  EXPECT_TRUE(buffer.CopyFromHost(bytes.data(), buffer.bytes()).ok());
  return buffer;
}

template <typename Draw>
std::vector<char> Elements(DType dtype, int64_t count, const Draw& draw) {
  std::vector<char> bytes(count * SizeOf(dtype));
  for (int64_t i = 0; i < count; ++i) StoreElement(bytes.data(), dtype, i, draw());
  return bytes;
}

std::vector<char> Integers(const std::vector<int32_t>& x) {
  const char* const begin = reinterpret_cast<const char*>(x.data());
  return {begin, begin + x.size() * sizeof(int32_t)};
}

void Check(Device device, const std::string& line, const std::vector<SharedPrefix>& prefixes) {
  SCOPED_TRACE(line);
  const AttentionProblem p = AttentionProblem::Parse(line).value();
  const absl::StatusOr<SharedPrefixPlan> plan = SharedPrefixPlan::Make(p, device, prefixes);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const absl::StatusOr<Plan> usual = MakePlan(p, device);
  ASSERT_TRUE(usual.ok()) << usual.status();

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto draw = [&] { return normal(random); };
  // Every sequence has pages of its own; members then take those of their prefix.
  const int64_t columns = (p.skv + p.page - 1) / p.page, pages = p.b * columns;
  std::vector<int32_t> table(pages), q_len(p.b), kv_len(p.b);
  for (int64_t i = 0; i < pages; ++i) table[i] = static_cast<int32_t>(i);
  std::shuffle(table.begin(), table.end(), random);
  for (int64_t i = 0; i < p.b; ++i) {
    kv_len[i] = static_cast<int32_t>(p.sq + random() % (p.skv - p.sq + 1));
    q_len[i] = static_cast<int32_t>(i % 5 == 4 ? 0 : 1 + random() % p.sq);
  }
  for (const SharedPrefix& prefix : prefixes) {
    const int64_t keys = prefix.pages * p.page;
    for (const int64_t i : prefix.members) {
      for (int64_t c = 0; c < prefix.pages; ++c) {
        table[i * columns + c] = table[prefix.members[0] * columns + c];
      }
      kv_len[i] = static_cast<int32_t>(keys + p.sq + random() % (p.skv - keys - p.sq + 1));
    }
  }
  const DType kv = p.KvDType(), fp32 = DType::kFloat32;
  const int64_t outputs = p.b * p.sq * p.hq * p.dv, rows = p.b * p.sq * p.hq;
  std::vector<char> queries = Elements(p.dtype, p.b * p.sq * p.hq * p.d, draw);
  if (p.lens == Lengths::kPadded) {
    for (int64_t i = 0; i < p.b * p.sq * p.hq * p.d; ++i) {
      const int64_t row = i / (p.hq * p.d);
      if (row % p.sq >= q_len[row / p.sq]) StoreElement(queries.data(), p.dtype, i, kNan);
    }
  }
  Buffer q = ToDevice(device, queries);
  Buffer k = ToDevice(device, Elements(kv, pages * p.page * p.hkv * p.d, draw));
  Buffer v = ToDevice(device, Elements(kv, pages * p.page * p.hkv * p.dv, draw));
  Buffer on_device = ToDevice(device, Integers(table)), q_lens = ToDevice(device, Integers(q_len)),
         kv_lens = ToDevice(device, Integers(kv_len));
  Buffer scales = ToDevice(device, Elements(fp32, p.b * p.hkv, [] { return 0.5f; }));
  const auto integers = [](Buffer& buffer) { return static_cast<const int32_t*>(buffer.data()); };
  AttentionTensors t;
  t.q = BshdView(q.data(), p.dtype, device, p.b, p.sq, p.hq, p.d);
  t.k = BshdView(k.data(), kv, device, pages, p.page, p.hkv, p.d);
  t.v = BshdView(v.data(), kv, device, pages, p.page, p.hkv, p.dv);
  t.page_table = {integers(on_device), p.b, columns, columns};
  if (p.lens == Lengths::kPadded) {
    t.q_len = {integers(q_lens), p.b};
    t.kv_len = {integers(kv_lens), p.b};
  }
  if (kv == DType::kFloat8E4M3) {
    t.k_scale = BshdView(scales.data(), fp32, device, p.b, 1, p.hkv, 1);
    t.v_scale = t.k_scale;
  }
  // O and LSE of both ways, with NaN in rows that are not written.
  std::vector<char> o[2], lse[2];
  for (const bool shared : {false, true}) {
    o[shared] = Elements(p.dtype, outputs, [] { return kNan; });
    lse[shared] = Elements(fp32, rows, [] { return kNan; });
    Buffer to = ToDevice(device, o[shared]), lse_to = ToDevice(device, lse[shared]);
    t.o = BshdView(to.data(), p.dtype, device, p.b, p.sq, p.hq, p.dv);
    t.lse = LseView(static_cast<float*>(lse_to.data()), device, p.b, p.sq, p.hq);
    const int64_t bytes = shared ? plan->WorkspaceBytes() : usual->workspace_bytes;
    Buffer workspace = Buffer::Allocate(device, bytes).value();
    ASSERT_TRUE(workspace.Fill(0xFF).ok());
    const absl::Status s = shared ? plan->Run(t, {workspace.data(), bytes})
                                  : Forward(*usual, t, {workspace.data(), bytes});
    ASSERT_TRUE(s.ok()) << s;
    ASSERT_TRUE(to.CopyToHost(o[shared].data(), to.bytes()).ok());
    ASSERT_TRUE(lse_to.CopyToHost(lse[shared].data(), lse_to.bytes()).ok());
  }
  // Both round P and O; the parts are rounded once more.
  const double e = Epsilon(p.dtype);
  const auto compare = [](const char* name, DType dtype, const std::vector<char>* x, int64_t count,
                          double most) {
    for (int64_t i = 0; i < count; ++i) {
      const float a = LoadElement(x[0].data(), dtype, i), b = LoadElement(x[1].data(), dtype, i);
      ASSERT_EQ(std::isnan(a), std::isnan(b)) << name << " " << i;
      if (!std::isnan(a) && a != b) {
        ASSERT_LE(std::abs(a - b), most) << name << " " << i;
      }
    }
  };
  compare("o", p.dtype, o, outputs, p.dtype == fp32 ? 1e-5 : 4 * e);
  compare("lse", fp32, lse, rows, 1e-4);
}

}  // namespace

void CheckSharedPrefixes(Device device) {
  for (const std::string dtype : {"fp32", "bf16", "fp16", "bf16,kvdtype=fp8_e4m3"}) {
    Check(device, "b=6,hq=8,hkv=2,sq=1,skv=700,d=64,page=16,lens=padded,dtype=" + dtype,
          {{25, {1, 2, 3}}, {4, {4, 5}}});
    Check(device,
          "b=9,hq=4,hkv=4,sq=3,skv=3000,d=128,page=64,mask=causal,lens=padded,dtype=" + dtype,
          {{40, {0, 1, 2, 3, 4, 5, 6, 7, 8}}});
    Check(device, "b=3,hq=2,hkv=1,sq=2,skv=999,d=40,dv=24,page=128,softcap=20,dtype=" + dtype,
          {{7, {0, 1}}});
    // Rows that are not whole chunks of 16 bytes.
    Check(device, "b=4,hq=4,hkv=2,sq=1,skv=200,d=18,dv=10,page=16,lens=padded,dtype=" + dtype,
          {{9, {0, 1, 2, 3}}});
  }
}

}  // namespace attnlab::paged
