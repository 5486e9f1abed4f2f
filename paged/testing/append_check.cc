#include "paged/testing/append_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "paged/append.h"

namespace attnlab::paged {
namespace {

constexpr uint8_t kPoison = 0xFF;  // NaN in every dtype
constexpr int64_t kFence = 512;

// A tensor on the device with a copy on the host, in poisoned memory between fences.
struct Tensor {
  TensorView host, there;
  std::vector<uint8_t> before, after;
  Buffer buffer;

  // Axes in memory: batch, then `outer` before `inner`, then dim.
  Tensor(Device device, DType dtype, std::array<int64_t, 4> shape, bool head_major, int64_t gap) {
    const int64_t row = shape[3] + gap;
    host.dtype = dtype;
    host.shape = shape;
    host.strides = head_major
                       ? std::array<int64_t, 4>{shape[1] * shape[2] * row, row, shape[1] * row, 1}
                       : std::array<int64_t, 4>{shape[1] * shape[2] * row, shape[2] * row, row, 1};
    before.assign(shape[0] * host.strides[0] * SizeOf(dtype) + 2 * kFence, kPoison);
    there = host;
    there.device = device;
    buffer = Buffer::Allocate(device, static_cast<int64_t>(before.size())).value();
    there.data = static_cast<char*>(buffer.data()) + kFence;
    host.data = before.data() + kFence;
  }
  float Get(int64_t b, int64_t s, int64_t h, int64_t i) const {
    return LoadElement(host.data, host.dtype, host.Offset(b, s, h, i));
  }
  float GetAfter(int64_t offset) const {
    return LoadElement(after.data() + kFence, host.dtype, offset);
  }
  void Draw(std::mt19937_64& random) {
    std::normal_distribution<float> normal;
    for (int64_t b = 0; b < host.shape[0]; ++b) {
      for (int64_t s = 0; s < host.shape[1]; ++s) {
        for (int64_t h = 0; h < host.shape[2]; ++h) {
          for (int64_t i = 0; i < host.shape[3]; ++i) {
            StoreElement(host.data, host.dtype, host.Offset(b, s, h, i), normal(random));
          }
        }
      }
    }
  }
  absl::Status Upload() { return buffer.CopyFromHost(before.data(), before.size()); }
  absl::Status Download() {
    after.resize(before.size());
    return buffer.CopyToHost(after.data(), after.size());
  }
};

// Integers or fp32 on the device.
template <typename T>
struct Array {
  std::vector<T> host;
  Buffer buffer;
  const T* Upload(Device device, std::vector<T> values) {
    host = std::move(values);
    const auto bytes = static_cast<int64_t>(host.size() * sizeof(T));
    buffer = Buffer::Allocate(device, bytes).value();
    if (!buffer.CopyFromHost(host.data(), bytes).ok()) return nullptr;
    return static_cast<const T*>(buffer.data());
  }
};

struct Expected {
  double value = 0;
  double error = -1;  // by how much it may differ; below 0: must not be written; infinite: anything
};

// What should be in a tensor, by offset in elements. Elements beyond must not be written.
using Contents = std::vector<Expected>;

// "" or the first byte or element that is not as it should be.
std::string Compare(const char* name, const Tensor& t, const Contents& contents) {
  const int64_t size = SizeOf(t.host.dtype);
  for (int64_t at = 0; at < static_cast<int64_t>(t.before.size()); at += size) {
    const int64_t offset = (at - kFence) / size;
    const bool known = at >= kFence && offset < static_cast<int64_t>(contents.size());
    const Expected expected = known ? contents[offset] : Expected();
    if (expected.error < 0) {
      if (std::memcmp(&t.before[at], &t.after[at], size) != 0) {
        return absl::StrCat(name, ": element ", offset, " was written");
      }
      continue;
    }
    if (std::isinf(expected.error)) continue;
    const double value = t.GetAfter(offset);
    if (!(std::abs(value - expected.value) <= expected.error)) {
      return absl::StrCat(name, ": element ", offset, " is ", value, ", not ", expected.value,
                          " +- ", expected.error);
    }
  }
  return "";
}

// Anything in all rows.
Contents AnythingIn(const Tensor& t) {
  Contents contents(t.before.size());
  const std::array<int64_t, 4>& shape = t.host.shape;
  for (int64_t row = 0; row < shape[0] * shape[1] * shape[2]; ++row) {
    const int64_t s = row / shape[2] % shape[1];
    const int64_t begin = t.host.Offset(row / shape[2] / shape[1], s, row % shape[2], 0);
    std::fill_n(contents.begin() + begin, shape[3], Expected{0, INFINITY});
  }
  return contents;
}

}  // namespace

std::string AppendCase::ToString() const {
  return absl::StrCat(problem.ToString(), ",rotary=", rotary_dim, ",interleaved=", interleaved,
                      ",queries=", static_cast<int>(queries), ",head_major=", head_major,
                      ",gap=", gap, ",lost_pages=", lost_pages, ",spoiled=", spoiled,
                      ",seed=", seed);
}

std::vector<AppendCase> AppendCases(uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  const auto any = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[random() % sizeof...(values)];
  };
  std::vector<AppendCase> cases;
  for (int i = 0; i < count; ++i) {
    AppendCase c;
    AttentionProblem& p = c.problem;
    p.b = any(1, 2, 5, 40, 300);
    p.hkv = p.b == 1 ? any(1, 2, 9, 70) : any(1, 2, 3);
    p.hq = p.hkv * any(1, 4);
    p.sq = p.b > 5 ? any(1, 2) : any(1, 3, 17, 40);
    p.skv = p.sq + any(0, 1, 40);
    p.d = p.b > 5 ? any(8, 30) : any(8, 30, 64, 128);
    p.dv = random() % 2 == 0 ? p.d : any(16, 33);
    p.dtype = any(DType::kFloat32, DType::kFloat16, DType::kBFloat16);
    if (p.dtype != DType::kFloat32 && random() % 2 == 0) p.kv_dtype = DType::kFloat8E4M3;
    p.lens = any(Lengths::kFixed, Lengths::kPacked, Lengths::kPadded);
    p.page = any(1, 4, 16, 64);
    if (random() % 3 > 0) c.rotary_dim = random() % 2 == 0 ? p.d : p.d / 4 * 2;
    c.interleaved = random() % 2 == 0;
    c.queries = c.rotary_dim == 0
                    ? AppendCase::kNone
                    : any(AppendCase::kNone, AppendCase::kApart, AppendCase::kInPlace);
    c.head_major = random() % 2 == 0;
    c.gap = any(0, 0, 16, 3);
    c.seed = random() % 1000000;
    cases.push_back(c);
  }
  return cases;
}

std::string CheckAppend(const AppendCase& c, Device device) {
  const AttentionProblem& p = c.problem;
  std::mt19937_64 random(c.seed);
  const bool packed = p.lens == Lengths::kPacked, padded = p.lens == Lengths::kPadded;

  std::vector<int32_t> offsets = {c.lost_pages ? 1 : 0}, q_lens, kv_lens;
  for (int64_t i = 0; i < p.b; ++i) {
    q_lens.push_back(static_cast<int32_t>(packed || padded ? random() % (p.sq + 1) : p.sq));
    kv_lens.push_back(static_cast<int32_t>(
        packed || padded ? q_lens[i] + random() % (p.skv - q_lens[i] + 1) : p.skv));
    offsets.push_back(offsets[i] + q_lens[i]);
  }
  // Pages in random order, some of them unused.
  const int64_t columns = std::max<int64_t>(1, p.Pages(p.skv));
  std::vector<int32_t> table(p.b * columns);
  const int64_t pages = p.b * columns + 3;
  std::vector<int32_t> order(pages);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::copy_n(order.begin(), table.size(), table.begin());

  const auto pool = static_cast<int32_t>(pages);
  for (int32_t& entry : table) {
    if (c.lost_pages && random() % 3 == 0) entry = std::array{-1, pool, INT32_MAX}[random() % 3];
  }

  std::vector<int32_t> offsets_then = offsets, q_lens_then = q_lens, kv_lens_then = kv_lens,
                       table_then = table;
  if (c.spoiled) {
    for (auto* const values : {&offsets_then, &q_lens_then, &kv_lens_then, &table_then}) {
      for (int32_t& value : *values) {
        const auto any = static_cast<int32_t>(random());
        value = std::array{any, any % 100, value}[random() % 3];
      }
    }
  }
  const int64_t batch = packed ? 1 : p.b, rows = packed ? offsets.back() + 2 : p.sq;
  Tensor q(device, p.dtype, {batch, rows, p.hq, p.d}, false, c.gap);
  Tensor new_q(device, p.dtype, {batch, rows, p.hq, p.d}, false, c.gap);
  Tensor new_k(device, p.dtype, {batch, rows, p.hkv, p.d}, false, c.gap);
  Tensor new_v(device, p.dtype, {batch, rows, p.hkv, p.dv}, false, c.gap);
  Tensor o(device, p.dtype, {batch, rows, p.hq, p.dv}, false, 0);
  Tensor k(device, p.KvDType(), {pages, p.page, p.hkv, p.d}, c.head_major, c.gap);
  Tensor v(device, p.KvDType(), {pages, p.page, p.hkv, p.dv}, c.head_major, c.gap);
  for (Tensor* t : {&q, &new_q, &new_k, &new_v}) t->Draw(random);

  Array<int32_t> offsets_there, q_lens_there, kv_lens_there, table_there;
  Array<float> k_scales_there, v_scales_there, rotary_there;
  AttentionTensors t;
  t.q = q.there;
  t.k = k.there;
  t.v = v.there;
  t.o = o.there;
  if (packed) t.cu_seqlens_q = {offsets_there.Upload(device, offsets_then), p.b + 1};
  if (padded) t.q_len = {q_lens_there.Upload(device, q_lens_then), p.b};
  if (packed || padded) t.kv_len = {kv_lens_there.Upload(device, kv_lens_then), p.b};
  t.page_table = {table_there.Upload(device, table_then), p.b, columns, columns};
  // Of K for each sequence and head; of V the same for all sequences.
  std::vector<float> k_scales(p.b * p.hkv, 1), v_scales(p.hkv, 1);
  if (p.KvDType() != p.dtype) {
    for (std::vector<float>* scales : {&k_scales, &v_scales}) {
      for (float& scale : *scales) scale = 0.01f + static_cast<float>(random() % 100) / 100;
    }
    const std::array<int64_t, 4> shape = {p.b, 1, p.hkv, 1};
    t.k_scale = {
        k_scales_there.Upload(device, k_scales), DType::kFloat32, device, shape, {p.hkv, 0, 1, 0}};
    t.v_scale = {
        v_scales_there.Upload(device, v_scales), DType::kFloat32, device, shape, {0, 0, 1, 0}};
  }
  NewTokens added;
  added.k = new_k.there;
  added.v = new_v.there;
  std::vector<float> angles;
  if (c.rotary_dim > 0) {
    for (int64_t position = 0; position < p.skv; ++position) {
      for (int64_t i = 0; i < c.rotary_dim; ++i) {
        const double angle = 0.3 * static_cast<double>(position * (i % (c.rotary_dim / 2) + 1));
        angles.push_back(
            static_cast<float>(i < c.rotary_dim / 2 ? std::cos(angle) : std::sin(angle)));
      }
    }
    added.rotary.table = {rotary_there.Upload(device, angles),
                          DType::kFloat32,
                          device,
                          {1, p.skv, 1, c.rotary_dim},
                          {0, c.rotary_dim, 0, 1}};
    added.rotary.interleaved = c.interleaved;
    if (c.queries == AppendCase::kApart) added.q = new_q.there;
    if (c.queries == AppendCase::kInPlace) added.q = q.there;
  }
  for (Tensor* x : {&q, &new_q, &new_k, &new_v, &k, &v}) {
    if (absl::Status s = x->Upload(); !s.ok()) return s.ToString();
  }
  if (absl::Status s = Append(p, t, added); !s.ok()) return s.ToString();
  for (Tensor* x : {&q, &new_q, &new_k, &new_v, &k, &v}) {
    if (absl::Status s = x->Download(); !s.ok()) return s.ToString();
  }

  // A row as it should be written to `to`.
  const auto expect = [&](const Tensor& from, int64_t from_batch, int64_t token, int64_t head,
                          bool rotated, int64_t position, float scale, const Tensor& to,
                          int64_t to_batch, int64_t to_token, Contents* contents) {
    const int64_t half = c.rotary_dim / 2;
    for (int64_t i = 0; i < from.host.shape[3]; ++i) {
      double x = from.Get(from_batch, token, head, i), size = std::abs(x);
      if (rotated && i < c.rotary_dim) {
        const bool first = c.interleaved ? i % 2 == 0 : i < half;
        const int64_t other = c.interleaved ? i ^ 1 : first ? i + half : i - half;
        const int64_t angle = c.interleaved ? i / 2 : i % half;
        const float* const row = &angles[position * c.rotary_dim];
        const double y = from.Get(from_batch, token, head, other);
        x = x * row[angle] + (first ? -y : y) * row[half + angle];
        size = std::abs(x) + std::abs(y);
      }
      x = std::clamp(x / scale, -1e30, 1e30);
      if (to.host.dtype == DType::kFloat8E4M3) x = std::clamp(x, -448.0, 448.0);
      // Half a unit of the dtype (of fp8 at least that of its smallest numbers), and fp32's error.
      const double unit = to.host.dtype == DType::kFloat8E4M3 ? std::max(std::abs(x), 0x1p-6)
                          : to.host.dtype == DType::kFloat16  ? std::max(std::abs(x), 0x1p-14)
                                                              : std::abs(x);
      const double error = 0.5 * Epsilon(to.host.dtype) * unit + 4e-7 * size / scale;
      const bool exact =
          !(rotated && i < c.rotary_dim) && scale == 1 && to.host.dtype == from.host.dtype;
      const int64_t offset = to.host.Offset(to_batch, to_token, head, i);
      if (offset >= static_cast<int64_t>(contents->size())) contents->resize(offset + 1);
      (*contents)[offset] = {x, exact ? 0 : error};
    }
  };
  Contents in_k, in_v, in_q;
  if (c.spoiled) {
    in_k = AnythingIn(k), in_v = AnythingIn(v);
    if (c.queries != AppendCase::kNone) in_q = AnythingIn(q);
  }
  for (int64_t i = 0; i < p.b && !c.spoiled; ++i) {
    for (int64_t j = 0; j < q_lens[i]; ++j) {
      const int64_t from_batch = packed ? 0 : i, token = packed ? offsets[i] + j : j;
      const int64_t position = kv_lens[i] - q_lens[i] + j;
      const int64_t page = table[i * columns + position / p.page], in_page = position % p.page;
      if (page < 0 || page >= pages) continue;
      for (int64_t head = 0; head < p.hkv; ++head) {
        expect(new_k, from_batch, token, head, true, position, k_scales[i * p.hkv + head], k, page,
               in_page, &in_k);
        expect(new_v, from_batch, token, head, false, position, v_scales[head], v, page, in_page,
               &in_v);
      }
      for (int64_t head = 0; head < p.hq && c.queries != AppendCase::kNone; ++head) {
        expect(c.queries == AppendCase::kApart ? new_q : q, from_batch, token, head, true, position,
               1, q, from_batch, token, &in_q);
      }
    }
  }
  std::string wrong = Compare("k", k, in_k);
  if (wrong.empty()) wrong = Compare("v", v, in_v);
  if (wrong.empty()) wrong = Compare("q", q, in_q);
  if (wrong.empty()) wrong = Compare("new k", new_k, {});
  if (wrong.empty()) wrong = Compare("new v", new_v, {});
  if (wrong.empty()) wrong = Compare("new q", new_q, {});
  return wrong;
}

}  // namespace attnlab::paged
