#include "attention/oracle/buffers.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "attention/core/dtype.h"
#include "attention/oracle/bare_memory.h"
#include "attention/oracle/inputs.h"
#include "gtest/gtest.h"

namespace attnlab::conformance {
namespace {

TEST(PoisonTest, IsNanInEveryDtype) {
  const uint16_t words[2] = {oracle::kPoison, oracle::kPoison};
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    EXPECT_TRUE(std::isnan(LoadElement(words, dtype, 0))) << Name(dtype);
  }
}

TEST(FencedBufferTest, SaysWhichByteOutsideWasWritten) {
  absl::StatusOr<oracle::FencedBuffer> buffer = oracle::FencedBuffer::Make(Device::Cpu(), 1000);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 256, 0);
  char* const data = static_cast<char*>(buffer->data());
  for (const auto& [offset, fault] : {std::pair<int, std::string>{0, ""},
                                      {999, ""},
                                      {1000, "w: writes 0 bytes beyond its end of 1000\n"},
                                      {5000, "w: writes 4000 bytes beyond its end of 1000\n"},
                                      {-1, "w: writes 2 bytes before its beginning\n"},
                                      {-300, "w: writes 300 bytes before its beginning\n"}}) {
    ASSERT_TRUE(buffer->Poison(oracle::kOtherPoison).ok());
    EXPECT_EQ(static_cast<uint16_t*>(buffer->data())[499], oracle::kOtherPoison);
    data[offset] = 1;
    absl::StatusOr<std::string> found = buffer->FenceFault("w");
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, fault) << offset;
  }
}

class OutputsTest : public ::testing::Test {
 protected:
  // 2 sequences with 2 and 1 of 3 rows in use, 2 heads, dv 4.
  OutputsTest() : problem_(*AttentionProblem::Parse("b=2,hq=2,sq=3,skv=1,d=4,lens=padded")) {
    options_.q_lens = {2, 1};
    options_.kv_lens = {1, 1};
  }

  // Writes every row in use, then lets `more` write, and returns the faults.
  template <typename More>
  std::string Faults(oracle::Layout layout, const More& more) {
    options_.layout = layout;
    absl::StatusOr<oracle::Inputs> inputs = oracle::Inputs::Make(problem_, Device::Cpu(), options_);
    EXPECT_TRUE(inputs.ok()) << inputs.status();
    absl::StatusOr<oracle::Outputs> outputs =
        oracle::Outputs::Make(problem_, inputs->tensors(), layout, true);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_TRUE(outputs->Prepare(problem_, inputs->host_tensors()).ok());
    const AttentionTensors t = outputs->Attach(inputs->tensors());
    EXPECT_TRUE(ValidateTensors(problem_, t).ok()) << ValidateTensors(problem_, t);
    for (const auto& [b, s] : {std::pair{0, 0}, {0, 1}, {1, 0}}) {
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t i = 0; i < 4; ++i) Store(t.o, b, s, h, i, 1);
        Store(t.lse, b, s, h, 0, 2);
      }
    }
    more(t);
    absl::StatusOr<oracle::HostOutputs> host = outputs->ToHost();
    EXPECT_TRUE(host.ok()) << host.status();
    return oracle::WriteFaults(problem_, inputs->host_tensors(), *host);
  }

  static void Store(const TensorView& t, int64_t b, int64_t s, int64_t h, int64_t i, float value) {
    StoreElement(t.data, t.dtype, t.Offset(b, s, h, i), value);
  }
  static void Unwrite(const TensorView& t, int64_t b, int64_t s, int64_t h, int64_t i) {
    const int64_t words = SizeOf(t.dtype) / 2;
    uint16_t* at = static_cast<uint16_t*>(t.data) + words * t.Offset(b, s, h, i);
    for (int64_t w = 0; w < words; ++w) at[w] = oracle::kPoison;
  }

  AttentionProblem problem_;
  oracle::InputOptions options_;
};

TEST_F(OutputsTest, NoFaultsWhereRowsInUseAndNothingElseIsWritten) {
  for (oracle::Layout layout : {oracle::Layout::kBshd, oracle::Layout::kBhsd,
                                oracle::Layout::kStrided, oracle::Layout::kOdd}) {
    EXPECT_EQ(Faults(layout, [](const AttentionTensors&) {}), "") << Name(layout);
  }
}

TEST_F(OutputsTest, FindsWhatIsNotWritten) {
  for (oracle::Layout layout : {oracle::Layout::kBhsd, oracle::Layout::kOdd}) {
    EXPECT_EQ(Faults(layout,
                     [](const AttentionTensors& t) {
                       Unwrite(t.o, 0, 1, 1, 2);
                       Unwrite(t.o, 1, 0, 0, 3);
                       Unwrite(t.lse, 1, 0, 1, 0);
                     }),
              "o: 2 elements are not written, the first at sequence 0, head 1, row 1, dim 2\n"
              "lse: 1 element is not written, the first at sequence 1, head 1, row 0, dim 0\n");
  }
}

TEST_F(OutputsTest, ANanThatWasWrittenIsWritten) {
  EXPECT_EQ(Faults(oracle::Layout::kBshd,
                   [](const AttentionTensors& t) { Store(t.o, 0, 0, 0, 0, std::nanf("")); }),
            "");
}

TEST_F(OutputsTest, FindsWhatIsWrittenOutside) {
  // A row that no sequence uses.
  EXPECT_EQ(
      Faults(oracle::Layout::kBshd, [](const AttentionTensors& t) { Store(t.o, 1, 2, 1, 3, 0); }),
      "o: writes where it must not: 94 bytes from its first element, which is index "
      "[1, 2, 1, 3] of shape [2, 3, 2, 4] (batch, sequence, head, dim)\n");
  // A gap between heads.
  EXPECT_EQ(
      Faults(oracle::Layout::kOdd, [](const AttentionTensors& t) { Store(t.o, 0, 1, 0, 4, 0); }),
      "o: writes where it must not: 34 bytes from its first element, which is index "
      "[0, 1, 0, 4] of shape [2, 3, 2, 4] (batch, sequence, head, dim)\n");
  // The fences.
  EXPECT_EQ(
      Faults(oracle::Layout::kBshd, [](const AttentionTensors& t) { Store(t.o, 0, 0, 0, -2, 0); }),
      "o: writes 4 bytes before its first element\n");
  EXPECT_EQ(
      Faults(oracle::Layout::kBhsd, [](const AttentionTensors& t) { Store(t.lse, 2, 0, 0, 0, 0); }),
      "lse: writes where it must not: 48 bytes from its first element, which is index "
      "[2, 0, 0, 0] of shape [2, 3, 2, 1] (batch, sequence, head, dim)\n");
}

TEST_F(OutputsTest, ComparesBitsOfTheRowsAskedFor) {
  absl::StatusOr<oracle::Inputs> inputs = oracle::Inputs::Make(problem_, Device::Cpu(), options_);
  ASSERT_TRUE(inputs.ok());
  absl::StatusOr<oracle::Outputs> outputs =
      oracle::Outputs::Make(problem_, inputs->tensors(), oracle::Layout::kBshd, true);
  ASSERT_TRUE(outputs.ok());
  ASSERT_TRUE(outputs->Prepare(problem_, inputs->host_tensors()).ok());
  absl::StatusOr<oracle::HostOutputs> a = outputs->ToHost(), b = outputs->ToHost();
  ASSERT_TRUE(a.ok() && b.ok());
  const std::vector<oracle::Row> all = {{0, 0, 0}, {0, 1, 1}, {1, 0, 0}};
  const auto difference = [&](absl::Span<const oracle::Row> rows) {
    return oracle::BitDifference(problem_, inputs->host_tensors(), *a, *b, rows);
  };
  EXPECT_EQ(difference(all), "");  // NaNs with the same bits
  Store(a->o, 0, 1, 1, 2, 0.0f);
  Store(b->o, 0, 1, 1, 2, -0.0f);
  EXPECT_EQ(difference(all), "o: bits differ at sequence 0, head 1, row 1, dim 2: 0 and -0\n");
  EXPECT_EQ(difference({{0, 0, 0}, {1, 0, 0}}), "");
  Store(a->lse, 1, 0, 0, 0, 3);
  EXPECT_EQ(difference({{1, 0, 0}}).substr(0, 56),
            "lse: bits differ at sequence 1, head 0, row 0, dim 0: 3 ");
  b->lse.data = nullptr;
  EXPECT_EQ(difference({{1, 0, 0}}), "");
  const oracle::Result values = oracle::ValuesOf(problem_, inputs->host_tensors(), *a, {{0, 1, 1}});
  EXPECT_EQ(values.O(0, 2), 0);
  EXPECT_EQ(values.lse.size(), 1);
}

// Uses bare memory during a test.
class BareMemoryTest : public OutputsTest {
 protected:
  void SetUp() override { oracle::UseBareMemory(true); }
  void TearDown() override { oracle::UseBareMemory(false); }
};

TEST_F(BareMemoryTest, EndsWhereTheTensorDoes) {
  absl::StatusOr<oracle::FencedBuffer> buffer = oracle::FencedBuffer::Make(Device::Cpu(), 1001);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->fence(), 0);
  absl::StatusOr<std::vector<uint16_t>> words = buffer->ToHost();
  ASSERT_TRUE(words.ok());
  EXPECT_EQ(words->size(), 501);
  absl::StatusOr<std::string> fault = buffer->FenceFault("w");
  ASSERT_TRUE(fault.ok());
  EXPECT_EQ(*fault, "");
  // In every layout the last element of the last row is the last of the allocation.
  for (oracle::Layout layout : {oracle::Layout::kBshd, oracle::Layout::kBhsd,
                                oracle::Layout::kStrided, oracle::Layout::kOdd}) {
    absl::StatusOr<oracle::Inputs> inputs = oracle::Inputs::Make(problem_, Device::Cpu(), options_);
    ASSERT_TRUE(inputs.ok());
    absl::StatusOr<oracle::Outputs> outputs =
        oracle::Outputs::Make(problem_, inputs->tensors(), layout, true);
    ASSERT_TRUE(outputs.ok());
    absl::StatusOr<oracle::HostOutputs> host = outputs->ToHost();
    ASSERT_TRUE(host.ok());
    const uint16_t* const end =
        static_cast<const uint16_t*>(host->o.data) + host->o.Offset(1, 2, 1, 3) + 1;
    EXPECT_EQ(end, host->o_storage.data() + host->o_storage.size()) << Name(layout);
  }
}

TEST_F(BareMemoryTest, RenewLeavesRangesUnwritten) {
  // So large that the C library gets it from the system, which returns zeros.
  constexpr int64_t kBytes = 40 << 20;
  absl::StatusOr<oracle::FencedBuffer> buffer = oracle::FencedBuffer::Make(Device::Cpu(), kBytes);
  ASSERT_TRUE(buffer.ok());
  const void* const before = buffer->data();
  const std::vector<oracle::ByteRange> unwritten = {
      {0, 10}, {10, 20}, {1000, 4000}, {5000, kBytes - 2}};
  ASSERT_TRUE(buffer->Renew(unwritten).ok());
  EXPECT_NE(buffer->data(), before);
  absl::StatusOr<std::vector<uint16_t>> words = buffer->ToHost();
  ASSERT_TRUE(words.ok());
  int64_t wrong = 0;
  for (int64_t i = 0; i < kBytes / 2; ++i) {
    const bool poisoned = (i >= 10 && i < 500) || (i >= 2000 && i < 2500) || i == kBytes / 2 - 1;
    wrong += (*words)[i] != (poisoned ? oracle::kPoison : 0);
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(BareMemoryTest, StillFindsWhatIsWrittenBetweenRows) {
  for (oracle::Layout layout : {oracle::Layout::kBshd, oracle::Layout::kBhsd,
                                oracle::Layout::kStrided, oracle::Layout::kOdd}) {
    EXPECT_EQ(Faults(layout, [](const AttentionTensors&) {}), "") << Name(layout);
  }
  EXPECT_EQ(
      Faults(oracle::Layout::kBshd, [](const AttentionTensors& t) { Store(t.o, 1, 2, 1, 3, 0); }),
      "o: writes where it must not: 94 bytes from its first element, which is index "
      "[1, 2, 1, 3] of shape [2, 3, 2, 4] (batch, sequence, head, dim)\n");
  EXPECT_EQ(
      Faults(oracle::Layout::kOdd, [](const AttentionTensors& t) { Store(t.o, 0, 1, 0, 4, 0); }),
      "o: writes where it must not: 34 bytes from its first element, which is index "
      "[0, 1, 0, 4] of shape [2, 3, 2, 4] (batch, sequence, head, dim)\n");
}

TEST_F(BareMemoryTest, InputsHaveNoFences) {
  for (oracle::Layout layout : oracle::kAllLayouts) {
    options_.layout = layout;
    AttentionProblem p = *AttentionProblem::Parse("b=2,hq=2,sq=3,d=4,lens=padded");
    options_.q_lens = options_.kv_lens = {3, 3};
    oracle::UseBareMemory(false);
    absl::StatusOr<oracle::Inputs> fenced = oracle::Inputs::Make(p, Device::Cpu(), options_);
    oracle::UseBareMemory(true);
    absl::StatusOr<oracle::Inputs> bare = oracle::Inputs::Make(p, Device::Cpu(), options_);
    ASSERT_TRUE(fenced.ok() && bare.ok());
    // A buffer is aligned to 256 bytes. A tensor begins where its buffer does, unless the layout
    // has a gap there.
    const auto begin = [](const oracle::Inputs& inputs) {
      return reinterpret_cast<uintptr_t>(inputs.tensors().k.data) % 256;
    };
    EXPECT_EQ(begin(*bare), begin(*fenced)) << Name(layout);
    EXPECT_EQ(LoadElement(bare->tensors().v.data, p.dtype, 3),
              LoadElement(fenced->tensors().v.data, p.dtype, 3));
  }
}

}  // namespace
}  // namespace attnlab::conformance
