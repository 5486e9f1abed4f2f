// On a GPU, with batch_invariant=true: O and LSE of a sequence have the same bits alone and in
// every batch. The other sequences, its place among them, and the longest length that the problem
// allows have no influence.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/core/device.h"
#include "attention/core/dtype.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/machine.h"
#include "attention/cuda/memory.h"
#include "attention/split_k/options.h"
#include "gtest/gtest.h"

namespace attnlab::split_k {
namespace {

constexpr int64_t kSequences = 64, kHq = 8, kHkv = 2, kPage = 16, kLongest = 20000;
constexpr int64_t kPages = kLongest / kPage;
// Beside and at the lengths where the number of parts or their keys change (split.h).
// With 897 to 1024 keys, eight blocks are a cluster.
constexpr int32_t kEdges[] = {1,    127,  128,  129,  512,   513,   896,
                              1024, 1025, 2048, 2049, 16384, 16385, kLongest};
constexpr uint8_t kPoison = 0xFF;  // NaN in every dtype

const Device kDevice = Device::Cuda(0);

struct Format {
  const char* name;
  DType dtype, kv_dtype;
  int64_t d;
  bool paged;
};

// Values on the device. Upload() is null after an error; Forward() then names the tensor.
struct Array {
  Buffer buffer;

  template <typename T>
  const T* Upload(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    if (buffer.bytes() < bytes) {
      absl::StatusOr<Buffer> allocated = Buffer::Allocate(kDevice, bytes);
      if (!allocated.ok()) return nullptr;
      buffer = *std::move(allocated);
    }
    if (!buffer.CopyFromHost(values.data(), bytes).ok()) return nullptr;
    return static_cast<const T*>(buffer.data());
  }
};

// Uniform in [-2, 2): faster to draw than a normal distribution.
std::vector<uint8_t> Draw(std::mt19937& random, DType dtype, int64_t elements) {
  std::vector<uint8_t> drawn(elements * SizeOf(dtype));
  for (int64_t i = 0; i < elements; ++i) {
    const auto x = static_cast<float>(static_cast<int32_t>(random()));
    StoreElement(drawn.data(), dtype, i, x * 0x1p-30f);
  }
  return drawn;
}

// 64 sequences, any of which can be computed in one launch. Each has its own length, query, scales
// and order of pages. Without pages, all have the same K and V, as far as their lengths go: with a
// batch stride of 0, no batch takes a copy.
class Sequences {
 public:
  explicit Sequences(const Format& format) : format_(format) {
    std::mt19937 random(1);
    lengths_.assign(std::begin(kEdges), std::end(kEdges));
    while (lengths_.size() < kSequences) {
      const int64_t longest = lengths_.size() % 2 == 0 ? kLongest : 600;
      lengths_.push_back(static_cast<int32_t>(1 + random() % longest));
    }
    q_ = Draw(random, format.dtype, kSequences * kHq * format.d);
    k_there_ = k_.Upload(Draw(random, format.kv_dtype, kLongest * kHkv * format.d));
    v_there_ = v_.Upload(Draw(random, format.kv_dtype, kLongest * kHkv * format.d));
    for (int64_t i = 0; i < kSequences; ++i) {
      std::vector<int32_t> pages(kPages);
      std::iota(pages.begin(), pages.end(), 0);
      std::shuffle(pages.begin(), pages.end(), random);
      tables_.push_back(std::move(pages));
      for (int64_t head = 0; head < kHkv; ++head) {
        k_scales_.push_back(0.5f + static_cast<float>(random() % 1000) / 1000);
        v_scales_.push_back(0.5f + static_cast<float>(random() % 1000) / 1000);
      }
    }
  }

  int32_t LengthOf(int sequence) const { return lengths_[sequence]; }
  int32_t LongestOf(const std::vector<int>& members) const {
    int32_t longest = 0;
    for (const int i : members) longest = std::max(longest, lengths_[i]);
    return longest;
  }

  AttentionProblem ProblemOf(int64_t b, int64_t skv) const {
    AttentionProblem p;
    p.b = b;
    p.hq = kHq;
    p.hkv = kHkv;
    p.sq = 1;
    p.skv = skv;
    p.d = p.dv = format_.d;
    p.dtype = format_.dtype;
    if (format_.kv_dtype != format_.dtype) p.kv_dtype = format_.kv_dtype;
    p.lens = Lengths::kPadded;
    p.page = format_.paged ? kPage : 0;
    return p;
  }

  // The bytes of O and LSE of each of these sequences, from one launch over all of them.
  absl::StatusOr<std::vector<std::string>> Run(const std::vector<int>& members, int64_t skv,
                                               const LaunchConfig& config) {
    const auto b = static_cast<int64_t>(members.size());
    const AttentionProblem p = ProblemOf(b, skv);
    const absl::StatusOr<Plan> plan = MakePlan(p, kDevice, "split_k", config);
    if (!plan.ok()) return plan.status();
    absl::Status s = Poison(workspace_, plan->workspace_bytes, /*again=*/false);
    const int64_t row = kHq * p.d * SizeOf(p.dtype), lse_row = kHq * int64_t{sizeof(float)};
    if (s.ok()) s = Poison(o_, kSequences * row, /*again=*/true);
    if (s.ok()) s = Poison(lse_, kSequences * lse_row, /*again=*/true);
    if (s.ok()) s = Forward(*plan, TensorsOf(p, members), {workspace_.data(), workspace_.bytes()});
    std::string o(kSequences * row, '\0'), lse(kSequences * lse_row, '\0');
    if (s.ok()) s = o_.CopyToHost(o.data(), kSequences * row);
    if (s.ok()) s = lse_.CopyToHost(lse.data(), kSequences * lse_row);
    if (!s.ok()) return s;
    const auto poison = static_cast<char>(kPoison);
    if (o.find_first_not_of(poison, b * row) != std::string::npos ||
        lse.find_first_not_of(poison, b * lse_row) != std::string::npos) {
      return absl::InternalError("rows beyond the batch were written");
    }
    std::vector<std::string> results;
    for (int64_t i = 0; i < b; ++i) {
      results.push_back(o.substr(i * row, row) + lse.substr(i * lse_row, lse_row));
      if (HasNan(o.data(), p.dtype, i * kHq * p.d, kHq * p.d) ||
          HasNan(lse.data(), DType::kFloat32, i * kHq, kHq)) {
        return absl::InternalError(absl::StrCat("NaN, or not written: sequence ", members[i]));
      }
    }
    return results;
  }

 private:
  // Gives the buffer at least so many bytes. New ones are poison; with `again`, all are.
  static absl::Status Poison(Buffer& buffer, int64_t bytes, bool again) {
    if (buffer.data() != nullptr && buffer.bytes() >= bytes) {
      return again ? buffer.Fill(kPoison) : absl::OkStatus();
    }
    absl::StatusOr<Buffer> allocated = Buffer::Allocate(kDevice, bytes);
    if (!allocated.ok()) return allocated.status();
    buffer = *std::move(allocated);
    return buffer.Fill(kPoison);
  }

  static bool HasNan(const void* data, DType dtype, int64_t begin, int64_t count) {
    for (int64_t i = begin; i < begin + count; ++i) {
      const float x = LoadElement(data, dtype, i);
      if (x != x) return true;
    }
    return false;
  }

  // Uploads what the members need.
  AttentionTensors TensorsOf(const AttentionProblem& p, const std::vector<int>& members) {
    const int64_t query = kHq * p.d * SizeOf(p.dtype);
    std::vector<uint8_t> q;
    std::vector<int32_t> lengths, table;
    std::vector<float> k_scales, v_scales;
    const auto add = [](auto& to, const auto& from, int64_t begin, int64_t count) {
      to.insert(to.end(), from.begin() + begin, from.begin() + begin + count);
    };
    for (const int i : members) {
      add(q, q_, i * query, query);
      add(k_scales, k_scales_, i * kHkv, kHkv);
      add(v_scales, v_scales_, i * kHkv, kHkv);
      add(table, tables_[i], 0, kPages);
      lengths.push_back(lengths_[i]);
      // Entries beyond the length are not read.
      std::fill(table.end() - kPages + (lengths_[i] + kPage - 1) / kPage, table.end(), -1);
    }
    AttentionTensors t;
    t.q =
        BshdView(static_cast<const void*>(q_there_.Upload(q)), p.dtype, kDevice, p.b, 1, kHq, p.d);
    t.o = BshdView(o_.data(), p.dtype, kDevice, p.b, 1, kHq, p.d);
    t.lse = LseView(static_cast<float*>(lse_.data()), kDevice, p.b, 1, kHq);
    const int64_t batch = p.page != 0 ? kPages : p.b, rows = p.page != 0 ? kPage : p.skv;
    t.k =
        BshdView(static_cast<const void*>(k_there_), p.KvDType(), kDevice, batch, rows, kHkv, p.d);
    t.v =
        BshdView(static_cast<const void*>(v_there_), p.KvDType(), kDevice, batch, rows, kHkv, p.d);
    if (p.page == 0) {
      t.k.strides[0] = t.v.strides[0] = 0;
    } else {
      t.page_table = {table_.Upload(table), p.b, kPages, kPages};
    }
    t.kv_len = {kv_lens_.Upload(lengths), p.b};
    if (p.KvDType() == DType::kFloat8E4M3) {
      const auto scales = [&](const float* data) {
        return BshdView(static_cast<const void*>(data), DType::kFloat32, kDevice, p.b, 1, kHkv, 1);
      };
      t.k_scale = scales(k_scales_there_.Upload(k_scales));
      t.v_scale = scales(v_scales_there_.Upload(v_scales));
    }
    return t;
  }

  const Format format_;
  std::vector<int32_t> lengths_;
  std::vector<uint8_t> q_;
  std::vector<float> k_scales_, v_scales_;
  std::vector<std::vector<int32_t>> tables_;
  Array k_, v_, q_there_, kv_lens_, table_, k_scales_there_, v_scales_there_;
  const uint8_t *k_there_ = nullptr, *v_there_ = nullptr;
  Buffer o_, lse_, workspace_;
};

class BatchInvarianceTest : public ::testing::TestWithParam<Format> {};

TEST_P(BatchInvarianceTest, ASequenceHasTheSameBitsInEveryBatch) {
  Sequences sequences(GetParam());
  const LaunchConfig invariant = LaunchConfig::Parse("batch_invariant=true").value();
  std::vector<std::string> alone;
  for (int i = 0; i < kSequences; ++i) {
    const auto exact = sequences.Run({i}, sequences.LengthOf(i), invariant);
    ASSERT_TRUE(exact.ok()) << exact.status();
    const auto longer = sequences.Run({i}, kLongest, invariant);
    ASSERT_TRUE(longer.ok()) << longer.status();
    ASSERT_TRUE(exact->front() == longer->front())
        << "alone, with " << sequences.LengthOf(i) << " keys: other bits with skv=" << kLongest;
    alone.push_back(exact->front());
  }
  std::mt19937 random(2);
  std::vector<int> order(kSequences);
  std::iota(order.begin(), order.end(), 0);
  for (const int64_t size : {2, 3, 7, 16, 63, 64}) {
    for (const bool with_longest : {false, true}) {
      std::shuffle(order.begin(), order.end(), random);
      // Each sequence is in a batch. The last batch is filled up with members of the first.
      for (int64_t begin = 0; begin < kSequences; begin += size) {
        std::vector<int> members;
        for (int64_t i = 0; i < size; ++i) members.push_back(order[(begin + i) % kSequences]);
        const int64_t skv = with_longest ? kLongest : sequences.LongestOf(members);
        const auto together = sequences.Run(members, skv, invariant);
        ASSERT_TRUE(together.ok()) << together.status();
        for (int64_t i = 0; i < size; ++i) {
          ASSERT_TRUE((*together)[i] == alone[members[i]])
              << "sequence " << i << " of " << size << ", with " << sequences.LengthOf(members[i])
              << " keys, skv=" << skv << ": other bits than alone";
        }
      }
    }
  }

  // So that this proves something: four blocks shared a range, or one had it, and without the option, the bits
  // depend on the batch.
  const absl::StatusOr<DeviceInfo> gpu = InfoOf(kDevice);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const auto grid_of = [&](int64_t b, const LaunchConfig& config) {
    const auto options =
        OptionsFor(sequences.ProblemOf(b, kLongest), *gpu, gpu->compute_capability, config);
    return options.ok() ? options->grid : SplitGrid();
  };
  EXPECT_EQ(grid_of(1, invariant).share_shift, 2);
  EXPECT_EQ(grid_of(kSequences, invariant).share_shift, 0);
  EXPECT_NE(grid_of(1, LaunchConfig()).range_keys, grid_of(kSequences, LaunchConfig()).range_keys);
  const auto together = sequences.Run(order, kLongest, LaunchConfig());
  ASSERT_TRUE(together.ok()) << together.status();
  int different = 0;
  for (int64_t i = 0; i < kSequences; ++i) {
    const auto one = sequences.Run({order[i]}, kLongest, LaunchConfig());
    ASSERT_TRUE(one.ok()) << one.status();
    different += one->front() != (*together)[i];
  }
  EXPECT_GT(different, 0);
}

constexpr DType kBf16 = DType::kBFloat16, kFp16 = DType::kFloat16, kFp8 = DType::kFloat8E4M3;

INSTANTIATE_TEST_SUITE_P(Formats, BatchInvarianceTest,
                         ::testing::Values(Format{"bf16_128", kBf16, kBf16, 128, false},
                                           Format{"bf16_64", kBf16, kBf16, 64, false},
                                           Format{"fp16_128", kFp16, kFp16, 128, false},
                                           Format{"fp16_64", kFp16, kFp16, 64, false},
                                           Format{"fp8_128", kBf16, kFp8, 128, false},
                                           Format{"fp8_64", kBf16, kFp8, 64, false},
                                           Format{"bf16_128_paged", kBf16, kBf16, 128, true},
                                           Format{"bf16_64_paged", kBf16, kBf16, 64, true},
                                           Format{"fp16_128_paged", kFp16, kFp16, 128, true},
                                           Format{"fp16_64_paged", kFp16, kFp16, 64, true},
                                           Format{"fp8_128_paged", kBf16, kFp8, 128, true},
                                           Format{"fp8_64_paged", kBf16, kFp8, 64, true}),
                         [](const auto& format) { return format.param.name; });

}  // namespace
}  // namespace attnlab::split_k
