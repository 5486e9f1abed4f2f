#include "paged/shared_prefix/shared_prefix.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "attention/core/problem.h"
#include "attention/device/divisor.h"
#include "gtest/gtest.h"
#include "paged/page_manager.h"
#include "paged/shared_prefix/check.h"
#include "paged/shared_prefix/rows.h"

namespace attnlab::paged {
namespace {

struct PlainFloat {
  static float ToFloat(float x) { return x; }
  template <typename T>
  static T FromFloat(float x) {
    return x;
  }
};

TEST(SharedPrefix, IsAsEachSequenceAlone) { CheckSharedPrefixes(Device::Cpu()); }

TEST(SharedPrefix, ErrorsNameWhatDoesNotFit) {
  const auto error = [](const std::string& line, const std::vector<SharedPrefix>& prefixes) {
    const AttentionProblem p = AttentionProblem::Parse("hq=1,d=8," + line).value();
    return std::string(SharedPrefixPlan::Make(p, Device::Cpu(), prefixes).status().message());
  };
  const std::string good = "b=4,sq=1,skv=100,page=16";
  EXPECT_EQ(error(good, {{6, {0, 1}}, {2, {2, 3}}}), "");
  EXPECT_EQ(error(good, {}), "");
  EXPECT_EQ(error("b=4,sq=1,skv=100", {}), "page: 0; K and V must be paged");
  EXPECT_EQ(error(good + ",lens=packed", {}), "lens: packed; must be fixed or padded");
  EXPECT_EQ(error(good + ",mask=window:5:0", {}),
            "mask: a sliding window does not see the whole prefix");
  EXPECT_EQ(error(good, {{1, {}}, {2, {0, 2}}, {0, {1, 3}}}), "");
  EXPECT_EQ(error("b=4,sq=0,skv=100,page=16", {{6, {0, 1}}}), "");
  EXPECT_EQ(error(good, {{1, {0, 1}}, {1, {1, 2}}}),
            "prefixes: members 1 to 2 are of another prefix, or not of the 4 sequences");
  EXPECT_EQ(error(good, {{1, {3, 4}}}),
            "prefixes: members 3 to 4 are of another prefix, or not of the 4 sequences");
  EXPECT_EQ(error(good, {{int64_t{1} << 62, {0, 1}}}),
            "prefixes: 4611686018427387904 pages, of 100 keys with 1 of their own");
  EXPECT_EQ(error(good, {{7, {0, 1}}}), "prefixes: 7 pages, of 100 keys with 1 of their own");
}

// The parts that the CPU does not make, because it has one chunk. Of 2 members with 3 queries of 2 heads
// of 4 dims.
template <int kWidth>
void CheckInputsAndMerge() {
  constexpr uint32_t kChunks = 3, kHeads = 2 * 3 * 2, kElements = kHeads * 4;
  constexpr int kBatch = 100, kToken = 20, kHead = 8;  // strides
  const std::vector<int32_t> q_len = {3, 1}, kv_len = {90, 30};
  const auto rows_of = [&](std::vector<float>& x) {
    return PrefixRows{
        {x.data(), kBatch, kToken, kHead}, 2,           device::Divisor(3), device::Divisor(2),
        device::Divisor(4 / kWidth),       q_len.data()};
  };
  std::vector<float> q(200);
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i + 1);
  std::vector<float> copies(kChunks * kElements);
  std::vector<int32_t> own(2), chunks(kChunks);
  PrefixInputs inputs;
  inputs.rows = rows_of(q);
  inputs.copies = copies.data();
  inputs.chunks = kChunks;
  inputs.kv_len = kv_len.data();
  inputs.prefix_keys = 80;
  inputs.chunk_keys = 32;
  inputs.own_lengths = own.data();
  inputs.chunk_lengths = chunks.data();
  for (uint32_t i = 0; i < kElements / kWidth; ++i) inputs.CopyPiece<float, kWidth>(i);
  for (uint32_t i = 0; i < kChunks; ++i) inputs.SetLengths(i);
  EXPECT_EQ(own, (std::vector<int32_t>{10, 0}));
  EXPECT_EQ(chunks, (std::vector<int32_t>{32, 32, 16}));
  for (uint32_t chunk = 0; chunk < kChunks; ++chunk) {
    for (int member = 0; member < 2; ++member) {
      for (int query = 0; query < 3; ++query) {
        for (int head = 0; head < 2; ++head) {
          for (int dim = 0; dim < 4; ++dim) {
            const int at = ((member * 3 + query) * 2 + head) * 4 + dim;
            const int from = member * kBatch + query * kToken + head * kHead + dim;
            EXPECT_EQ(copies[chunk * kElements + at], query < q_len[member] ? q[from] : 0);
          }
        }
      }
    }
  }

  // Weights 1, 1, 2 and 4; of row 1 the own keys alone; of row 2 none.
  std::vector<float> part_o((kChunks + 1) * kElements, 3), part_lse((kChunks + 1) * kHeads);
  std::fill(part_o.begin() + kChunks * kElements, part_o.end(), 6);
  const float weights[] = {1, 1, 2, 4};
  for (uint32_t i = 0; i < kHeads; ++i) {
    for (uint32_t part = 0; part <= kChunks; ++part) {
      const bool sees = i / 2 != 2 && (i / 2 != 1 || part == kChunks);
      part_lse[part * kHeads + i] = sees ? 50 + std::log(weights[part]) : -INFINITY;
    }
  }
  std::vector<float> o(200, -1), lse(200, -1);
  PrefixMerge merge;
  merge.rows = rows_of(o);
  merge.lse = {lse.data(), 10, 2, 1};
  merge.part_o = part_o.data();
  merge.part_lse = part_lse.data();
  merge.chunks = kChunks;
  for (uint32_t i = 0; i < kElements / kWidth; ++i) {
    merge.MergePiece<float, kWidth, PlainFloat>(i);
  }
  EXPECT_FLOAT_EQ(o[0], (4 * 3 + 4 * 6) / 8.0f);
  EXPECT_FLOAT_EQ(lse[0], 50 + std::log(8.0f));
  EXPECT_FLOAT_EQ(o[kToken], 6);
  EXPECT_FLOAT_EQ(lse[2], 50 + std::log(4.0f));
  EXPECT_EQ(o[2 * kToken + kHead + 3], 0);
  EXPECT_EQ(lse[4 + 1], -INFINITY);
  EXPECT_EQ(o[kBatch + kToken], -1);  // beyond q_len
  EXPECT_EQ(lse[12], -1);
}

TEST(SharedPrefix, InputsAndMergeOfSeveralChunks) {
  CheckInputsAndMerge<1>();
  CheckInputsAndMerge<4>();
}

}  // namespace
}  // namespace attnlab::paged
