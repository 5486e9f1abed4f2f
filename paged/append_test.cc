#include "paged/append.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "attention/core/tensors.h"
#include "gtest/gtest.h"
#include "paged/testing/append_check.h"

namespace attnlab::paged {
namespace {

TEST(Append, EveryRowArrivesAndNothingElseIsWritten) {
  for (const AppendCase& c : AppendCases(/*seed=*/1, /*count=*/200)) {
    ASSERT_EQ(CheckAppend(c, Device::Cpu()), "") << c.ToString();
  }
}

// Two sequences with one new token each, in pages of two tokens.
class AppendErrors : public ::testing::Test {
 protected:
  AppendErrors() {
    p_ = AttentionProblem::Parse("b=2,hq=1,sq=1,skv=3,d=4,dtype=fp32,page=2").value();
    t_.q = BshdView(q_, DType::kFloat32, Device::Cpu(), 2, 1, 1, 4);
    t_.o = BshdView(o_, DType::kFloat32, Device::Cpu(), 2, 1, 1, 4);
    t_.k = BshdView(k_, DType::kFloat32, Device::Cpu(), 4, 2, 1, 4);
    t_.v = BshdView(v_, DType::kFloat32, Device::Cpu(), 4, 2, 1, 4);
    t_.page_table = {table_, 2, 2, 2};
    added_.k = BshdView(new_k_, DType::kFloat32, Device::Cpu(), 2, 1, 1, 4);
    added_.v = added_.k;
  }
  std::string Error() { return std::string(Append(p_, t_, added_).message()); }

  float q_[8] = {}, o_[8] = {}, k_[32] = {}, v_[32] = {}, new_k_[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float rotary_[12] = {};
  int32_t table_[4] = {3, 1, 0, 2};
  AttentionProblem p_;
  AttentionTensors t_;
  NewTokens added_;
};

TEST_F(AppendErrors, NameTheTensor) {
  EXPECT_EQ(Error(), "");
  EXPECT_EQ(k_[1 * 8 + 0], 1);  // token 2 of sequence 0: the first of page 1
  EXPECT_EQ(k_[2 * 8 + 3], 8);

  table_[1] = 4;
  EXPECT_EQ(Error(), "page_table: entry [0, 1] is 4, not one of the 4 pages of k");
  table_[1] = 1;
  added_.v.shape[3] = 3;
  EXPECT_EQ(Error(),
            "new v: shape is [2, 1, 1, 3], must be [2, 1, 1, 4] (batch, sequence, head, dim)");
  added_.v = added_.k;
  added_.q = t_.q;
  EXPECT_EQ(Error(), "new q: is given without a rotary table");
  added_.rotary.table = BshdView(rotary_, DType::kFloat32, Device::Cpu(), 1, 2, 1, 4);
  EXPECT_EQ(Error(), "rotary: 2 positions, but skv = 3");
  added_.rotary.table.shape[3] = 3;
  EXPECT_EQ(Error(), "rotary: dim 3 is not even and in [2, 4]");
  p_.page = 0;
  EXPECT_EQ(Error(), "page: 0; there are no pages to append to");
}

TEST_F(AppendErrors, FewerTokensThanNewOnes) {
  p_.lens = Lengths::kPadded;
  const int32_t kv_len[] = {3, 0};
  t_.kv_len = {kv_len, 2};
  EXPECT_EQ(Error(), "kv_len: sequence 1 has 0 tokens, fewer than its 1 new ones");
}

}  // namespace
}  // namespace attnlab::paged
