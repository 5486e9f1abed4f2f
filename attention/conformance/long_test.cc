// On a GPU: sequences of 128k tokens, and tensors of more than 2^31 elements, for which 32-bit
// indices are too small. Sampled rows are checked against the oracle.
#include <algorithm>
#include <cstdint>
#include <ostream>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/conformance/numbered_memory.h"
#include "attention/conformance/plans.h"
#include "attention/core/device.h"
#include "attention/core/dtype.h"
#include "attention/core/mask.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/call.h"
#include "attention/cuda/memory.h"
#include "attention/device/element.h"
#include "attention/device/element_of.h"
#include "attention/oracle/reference.h"
#include "attention/oracle/tolerance.h"
#include "attention/oracle/verify.h"
#include "gtest/gtest.h"

namespace attnlab::conformance {
namespace {

constexpr int64_t kTwoToThe31 = int64_t{1} << 31;
constexpr int64_t kLargeFence = 4096;  // bytes on each side of what a kernel writes

// "", or the reason why so many bytes cannot be allocated.
std::string NoRoomFor(Device device, int64_t bytes) {
  const absl::StatusOr<int64_t> free = FreeMemory(device);
  if (!free.ok()) return std::string(free.status().message());
  if (*free >= bytes) return "";
  return absl::StrCat(ToString(device), " has ", *free >> 20, " MiB free, and this wants ",
                      bytes >> 20);
}

class LongSequenceTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LongSequenceTest, SampledRowsAreRight) {
  const absl::StatusOr<std::vector<Plan>> plans =
      PlansOfAllKernels(GetParam(), /*with_variants=*/true);
  ASSERT_TRUE(plans.ok()) << plans.status();
  ASSERT_FALSE(plans->empty());
  for (const Plan& plan : *plans) {
    SCOPED_TRACE(NameOf(plan));
    oracle::VerifyOptions options;
    // With two heads and one block per head, a single run takes long enough.
    options.reruns = 0;
    const absl::StatusOr<oracle::VerifyResult> result = oracle::Verify(plan, options);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->passed) << result->message;
    EXPECT_GE(result->rows_checked, 8);
  }
}

// All have 128k keys, and as many queries if that does not take long.
constexpr const char* kLong[] = {
    "b=1,hq=2,hkv=1,sq=131072,d=64,dtype=bf16,mask=causal",
    "b=1,hq=2,hkv=1,sq=131072,d=64,dtype=bf16,mask=window:4095:0",
    "b=1,hq=2,hkv=1,sq=32768,skv=131072,d=64,dtype=fp32,mask=window:4095:0",
    "b=1,hq=2,hkv=1,sq=4096,skv=131072,d=64,dtype=fp16,mask=causal",
    "b=1,hq=2,hkv=1,sq=4096,skv=131072,d=64,dtype=fp32,mask=causal",
    "b=1,hq=2,hkv=1,sq=4096,skv=131072,d=256,dtype=bf16,mask=causal",
};
INSTANTIATE_TEST_SUITE_P(Of128kTokens, LongSequenceTest, ::testing::ValuesIn(kLong));

enum class Order { kBshd, kBhsd };

struct LargeCase {
  const char* problem;
  Order order;
};
void PrintTo(const LargeCase& c, std::ostream* out) {
  *out << c.problem << (c.order == Order::kBshd ? ", bshd" : ", bhsd");
}

// A tensor on the GPU, between fences.
struct LargeTensor {
  Buffer buffer;
  TensorView view;
  uint64_t seed = 0;  // for inputs

  int64_t bytes() const { return buffer.bytes() - 2 * kLargeFence; }
  // For an input: element (b, s, h, i).
  float At(int64_t b, int64_t s, int64_t h, int64_t i) const {
    return NumberAt(seed, view.Offset(b, s, h, i));
  }
  // For an output: a row.
  absl::StatusOr<std::vector<float>> Row(int64_t b, int64_t s, int64_t h) const {
    const int64_t element = SizeOf(view.dtype), count = view.shape[3];
    std::vector<char> bytes(count * element);
    const absl::Status s_copy = buffer.CopyToHost(bytes.data(), count * element,
                                                  kLargeFence + view.Offset(b, s, h, 0) * element);
    if (!s_copy.ok()) return s_copy;
    std::vector<float> row(count);
    for (int64_t i = 0; i < count; ++i) row[i] = LoadElement(bytes.data(), view.dtype, i);
    return row;
  }
};

absl::StatusOr<LargeTensor> Make(DType dtype, Order order, int64_t b, int64_t s, int64_t h,
                                 int64_t d) {
  LargeTensor tensor;
  absl::StatusOr<Buffer> buffer =
      Buffer::Allocate(Device::Cuda(0), b * s * h * d * SizeOf(dtype) + 2 * kLargeFence);
  if (!buffer.ok()) return buffer.status();
  tensor.buffer = *std::move(buffer);
  void* const data = static_cast<char*>(tensor.buffer.data()) + kLargeFence;
  tensor.view = order == Order::kBshd ? BshdView(data, dtype, Device::Cuda(0), b, s, h, d)
                                      : BhsdView(data, dtype, Device::Cuda(0), b, s, h, d);
  return tensor;
}

// A problem with large tensors on the GPU, after its run.
class LargeCall {
 public:
  static absl::StatusOr<LargeCall> Run(const Plan& plan, Order order);

  // "", or that rows are not written or that something else is.
  absl::StatusOr<std::string> WriteFaults() const;

  // The errors and bounds of O and LSE for these tokens of a head.
  absl::StatusOr<oracle::Errors> Check(int64_t batch, int64_t head,
                                       const std::vector<int64_t>& tokens) const;

  int64_t MostElements() const {
    return std::max({q_.view.NumElements(), k_.view.NumElements(), v_.view.NumElements(),
                     o_.view.NumElements(), lse_.view.NumElements()});
  }

 private:
  Plan plan_;
  LargeTensor q_, k_, v_, o_, lse_;
};

absl::StatusOr<LargeCall> LargeCall::Run(const Plan& plan, Order order) {
  const AttentionProblem& p = plan.problem;
  LargeCall call;
  call.plan_ = plan;
  const struct {
    LargeTensor* tensor;
    DType dtype;
    Order order;
    int64_t s, h, d;
    bool input;
  } kTensors[] = {
      {&call.q_, p.dtype, order, p.sq, p.hq, p.d, true},
      {&call.k_, p.dtype, order, p.skv, p.hkv, p.d, true},
      {&call.v_, p.dtype, order, p.skv, p.hkv, p.dv, true},
      {&call.o_, p.dtype, order, p.sq, p.hq, p.dv, false},
      {&call.lse_, DType::kFloat32, Order::kBhsd, p.sq, p.hq, 1, false},
  };
  for (const auto& t : kTensors) {
    absl::StatusOr<LargeTensor> made = Make(t.dtype, t.order, p.b, t.s, t.h, t.d);
    if (!made.ok()) return made.status();
    *t.tensor = *std::move(made);
    if (absl::Status s = t.tensor->buffer.Fill(0xFF); !s.ok()) return s;
    if (!t.input) continue;
    t.tensor->seed = static_cast<uint64_t>(&t - kTensors) + 1;
    const absl::Status filled =
        cuda_backend::ToStatus(FillWithNumbers(t.tensor->view.data, device::ElementOf(t.dtype),
                                               t.tensor->view.NumElements(), t.tensor->seed),
                               "numbers");
    if (!filled.ok()) return filled;
  }
  absl::StatusOr<Buffer> workspace = Buffer::Allocate(plan.device.device, plan.workspace_bytes);
  if (!workspace.ok()) return workspace.status();
  AttentionTensors tensors;
  tensors.q = call.q_.view;
  tensors.k = call.k_.view;
  tensors.v = call.v_.view;
  tensors.o = call.o_.view;
  tensors.lse = call.lse_.view;
  const absl::Status run = Forward(plan, tensors, {workspace->data(), workspace->bytes()});
  if (!run.ok()) return run;
  if (absl::Status s = cuda_backend::Synchronize(plan.device.device.ordinal); !s.ok()) return s;
  return call;
}

absl::StatusOr<std::string> LargeCall::WriteFaults() const {
  std::string faults;
  for (const LargeTensor* t : {&o_, &lse_}) {
    const char* const name = t == &o_ ? "o" : "lse";
    const device::Element element = device::ElementOf(t->view.dtype);
    const char* const data = static_cast<const char*>(t->view.data);
    const int64_t fence = kLargeFence / SizeOf(t->view.dtype), count = t->view.NumElements();
    int64_t before = 0, within = 0, behind = 0;
    for (const auto& part : {std::make_tuple(data - kLargeFence, fence, &before),
                             std::make_tuple(data, count, &within),
                             std::make_tuple(data + t->bytes(), fence, &behind)}) {
      const absl::Status s = cuda_backend::ToStatus(
          CountAllOnes(std::get<0>(part), element, std::get<1>(part), std::get<2>(part)), name);
      if (!s.ok()) return s;
    }
    if (within != 0) absl::StrAppend(&faults, name, ": ", within, " elements are not written\n");
    if (before != fence) absl::StrAppend(&faults, name, ": writes before its beginning\n");
    if (behind != fence) absl::StrAppend(&faults, name, ": writes beyond its end\n");
  }
  return faults;
}

absl::StatusOr<oracle::Errors> LargeCall::Check(int64_t batch, int64_t head,
                                                const std::vector<int64_t>& tokens) const {
  const AttentionProblem& whole = plan_.problem;
  // Without a mask, a row does not depend on which other rows there are.
  AttentionProblem p = whole;
  p.b = p.hq = p.hkv = 1;
  p.sq = static_cast<int64_t>(tokens.size());
  const int64_t kv_head = head / whole.GroupSize(), element = SizeOf(p.dtype);
  std::vector<char> q(p.sq * p.d * element), k(p.skv * p.d * element), v(p.skv * p.dv * element);
  for (int64_t row = 0; row < p.sq; ++row) {
    for (int64_t i = 0; i < p.d; ++i) {
      StoreElement(q.data(), p.dtype, row * p.d + i, q_.At(batch, tokens[row], head, i));
    }
  }
  for (int64_t key = 0; key < p.skv; ++key) {
    for (int64_t i = 0; i < p.d; ++i) {
      StoreElement(k.data(), p.dtype, key * p.d + i, k_.At(batch, key, kv_head, i));
    }
    for (int64_t i = 0; i < p.dv; ++i) {
      StoreElement(v.data(), p.dtype, key * p.dv + i, v_.At(batch, key, kv_head, i));
    }
  }
  std::vector<char> o(p.sq * p.dv * element);
  AttentionTensors t;
  t.q = BshdView(q.data(), p.dtype, Device::Cpu(), 1, p.sq, 1, p.d);
  t.k = BshdView(k.data(), p.dtype, Device::Cpu(), 1, p.skv, 1, p.d);
  t.v = BshdView(v.data(), p.dtype, Device::Cpu(), 1, p.skv, 1, p.dv);
  t.o = BshdView(o.data(), p.dtype, Device::Cpu(), 1, p.sq, 1, p.dv);

  const std::vector<oracle::Row> rows = oracle::AllRows(p, t);
  const oracle::Factors factors =
      plan_.prepared->MultipliesAsTf32() ? oracle::Factors::kTf32 : oracle::Factors::kAsTheyAre;
  const absl::StatusOr<oracle::Result> exact = oracle::Exact(p, t, rows);
  if (!exact.ok()) return exact.status();
  const absl::StatusOr<oracle::Result> straightforward =
      oracle::Straightforward(p, t, rows, factors);
  if (!straightforward.ok()) return straightforward.status();
  oracle::Result values;
  values.dv = p.dv;
  for (const int64_t token : tokens) {
    const absl::StatusOr<std::vector<float>> row = o_.Row(batch, token, head);
    if (!row.ok()) return row.status();
    values.o.insert(values.o.end(), row->begin(), row->end());
    const absl::StatusOr<std::vector<float>> lse = lse_.Row(batch, token, head);
    if (!lse.ok()) return lse.status();
    values.lse.push_back((*lse)[0]);
  }
  return oracle::Compare(p.dtype, p.ODType(), rows, *exact, *straightforward, values, factors);
}

// The first, middle and last tokens, and those around element 2^31 of BSHD. In BHSD, element 2^31
// is in the last head.
std::vector<int64_t> TokensOf(const AttentionProblem& p) {
  std::vector<int64_t> tokens = {0, p.sq / 2, p.sq - 1};
  const int64_t there = kTwoToThe31 / (p.hq * p.d);
  for (int64_t token = there - 2; token <= there + 2; ++token) {
    if (token < p.sq) tokens.push_back(token);
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

class LargeTensorTest : public ::testing::TestWithParam<LargeCase> {};

TEST_P(LargeTensorTest, SampledRowsAreRight) {
  const absl::StatusOr<std::vector<Plan>> plans =
      PlansOfAllKernels(GetParam().problem, /*with_variants=*/true);
  ASSERT_TRUE(plans.ok()) << plans.status();
  ASSERT_FALSE(plans->empty());
  std::string no_room;
  int ran = 0;
  for (const Plan& plan : *plans) {
    SCOPED_TRACE(NameOf(plan));
    const AttentionProblem& p = plan.problem;
    ASSERT_EQ(p.mask, Mask::None());
    const Traffic once = CompulsoryTraffic(p, /*with_lse=*/true);
    const std::string missing =
        NoRoomFor(Device::Cuda(0), once.Bytes() + plan.workspace_bytes + (int64_t{1} << 30));
    if (!missing.empty()) {
      absl::StrAppend(&no_room, NameOf(plan), ": ", missing, "\n");
      continue;
    }
    if (plan.kernel->traits().needs_aligned_rows && p.d * SizeOf(p.dtype) % 16 != 0) continue;
    const absl::StatusOr<LargeCall> call = LargeCall::Run(plan, GetParam().order);
    ASSERT_TRUE(call.ok()) << call.status();
    ++ran;
    ASSERT_GT(call->MostElements(), kTwoToThe31);
    const absl::StatusOr<std::string> faults = call->WriteFaults();
    ASSERT_TRUE(faults.ok()) << faults.status();
    EXPECT_EQ(*faults, "");
    for (const int64_t batch : std::set<int64_t>{0, p.b - 1}) {
      for (const int64_t head : {int64_t{0}, p.hq / 2, p.hq - 1}) {
        SCOPED_TRACE(absl::StrCat("batch ", batch, ", head ", head));
        const absl::StatusOr<oracle::Errors> errors = call->Check(batch, head, TokensOf(p));
        ASSERT_TRUE(errors.ok()) << errors.status();
        EXPECT_TRUE(errors->o.Passed()) << "o: " << errors->o.ToString();
        EXPECT_TRUE(errors->lse.Passed()) << "lse: " << errors->lse.ToString();
      }
    }
  }
  if (ran == 0) GTEST_SKIP() << no_room;
}

// Each case has tensors beyond 2^31 elements. BSHD with one sequence: K and V; Q and O; Q, O and
// LSE. BHSD with two sequences: K and V; Q and O.
constexpr LargeCase kLarge[] = {
    {"b=1,hq=256,hkv=128,sq=1,skv=262272,d=64,dtype=bf16", Order::kBshd},
    {"b=1,hq=128,hkv=1,sq=262272,skv=64,d=64,dtype=bf16", Order::kBshd},
    {"b=1,hq=128,hkv=1,sq=16777344,skv=3,d=1,dtype=bf16", Order::kBshd},
    {"b=2,hq=128,sq=1,skv=131136,d=64,dtype=fp32", Order::kBhsd},
    {"b=2,hq=128,hkv=2,sq=131136,skv=64,d=64,dtype=fp32", Order::kBhsd},
};
INSTANTIATE_TEST_SUITE_P(Beyond2To31, LargeTensorTest, ::testing::ValuesIn(kLarge));

}  // namespace
}  // namespace attnlab::conformance
