// Append() beside a copy of as many bytes, on the first GPU or, without one, on the CPU:
//
//   bazel run //paged:append_benchmark
//
// bytes_per_second counts what is read and what is written. Inputs lie in one place, so those that
// fit L2 are read from there.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "attention/bench/calls.h"
#include "attention/core/dtype.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "benchmark/benchmark.h"
#include "paged/append.h"
#include "paged/copy_pages.h"
#include "paged/random_rows.h"

namespace attnlab::paged {
namespace {

struct Case {
  const char* problem;
  bool rotary;          // of K and Q
  bool behind = false;  // each call is behind a copy of 16 bytes, which does not let it start early
};

absl::Status SmallCopy(Buffer& buffer, void* stream) {
  const PageMemory memory = {buffer.device(), buffer.data(), nullptr, 16, 2, 0};
  return CopyPages({{PageCopy::kWithinPool, 0, 1}}, memory, stream);
}

int64_t BytesOf(const AttentionProblem& p, bool rotary) {
  const int64_t tokens = p.b * p.sq, row = p.hkv * (p.d + p.dv);
  const int64_t q = rotary ? 2 * p.hq * p.d * SizeOf(p.dtype) : 0;
  return tokens * (row * (SizeOf(p.dtype) + SizeOf(p.KvDType())) + q);
}

void BM_Append(benchmark::State& state, Case c) {
  const Device device = bench::AnyDevice();
  const AttentionProblem p = AttentionProblem::Parse(c.problem).value();
  const int64_t columns = p.Pages(p.skv), pages = p.b * columns;
  Buffer k = RandomRows(device, p.dtype, p.b * p.sq * p.hkv * p.d).value();
  Buffer v = RandomRows(device, p.dtype, p.b * p.sq * p.hkv * p.dv).value();
  Buffer q = RandomRows(device, p.dtype, p.b * p.sq * p.hq * p.d).value();
  Buffer rotated = RandomRows(device, p.dtype, p.b * p.sq * p.hq * p.d).value();
  Buffer o = RandomRows(device, p.dtype, p.b * p.sq * p.hq * p.dv).value();
  Buffer table = RandomRows(device, DType::kFloat32, p.skv * p.d).value();
  const int64_t pool = pages * p.page * p.hkv * SizeOf(p.KvDType());
  Buffer k_pages = Buffer::Allocate(device, pool * p.d).value();
  Buffer v_pages = Buffer::Allocate(device, pool * p.dv).value();
  const auto integers = [&](const std::vector<int32_t>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(int32_t));
    Buffer buffer = Buffer::Allocate(device, bytes).value();
    buffer.CopyFromHost(values.data(), bytes).IgnoreError();
    return buffer;
  };
  std::vector<int32_t> order(pages), ends(p.b + 1);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  for (int64_t i = 0; i <= p.b; ++i) ends[i] = static_cast<int32_t>(i * p.sq);
  Buffer block_table = integers(order), offsets = integers(ends),
         lengths = integers(std::vector<int32_t>(p.b, static_cast<int32_t>(p.skv)));

  const bool packed = p.lens == Lengths::kPacked;
  const auto rows = [&](Buffer& buffer, int64_t heads, int64_t dim) {
    return BshdView(buffer.data(), p.dtype, device, packed ? 1 : p.b, packed ? p.b * p.sq : p.sq,
                    heads, dim);
  };
  AttentionTensors t;
  t.q = rows(c.rotary ? rotated : q, p.hq, p.d);
  t.o = rows(o, p.hq, p.dv);
  t.k = BshdView(k_pages.data(), p.KvDType(), device, pages, p.page, p.hkv, p.d);
  t.v = BshdView(v_pages.data(), p.KvDType(), device, pages, p.page, p.hkv, p.dv);
  t.page_table = {static_cast<const int32_t*>(block_table.data()), p.b, columns, columns};
  if (packed) {
    t.cu_seqlens_q = {static_cast<const int32_t*>(offsets.data()), p.b + 1};
    t.kv_len = {static_cast<const int32_t*>(lengths.data()), p.b};
  }
  NewTokens added;
  added.k = rows(k, p.hkv, p.d);
  added.v = rows(v, p.hkv, p.dv);
  if (c.rotary) {
    added.rotary.table = BshdView(table.data(), DType::kFloat32, device, 1, p.skv, 1, p.d);
    added.q = rows(q, p.hq, p.d);
  }
  bench::RunCalls(state, device, BytesOf(p, c.rotary), [&](void* stream) {
    const absl::Status s = c.behind ? SmallCopy(o, stream) : absl::OkStatus();
    return s.ok() ? Append(p, t, added, stream) : s;
  });
}

// A copy that reads and writes as many bytes in all.
void BM_Copy(benchmark::State& state, Case c) {
  const Device device = bench::AnyDevice();
  const int64_t bytes = BytesOf(AttentionProblem::Parse(c.problem).value(), c.rotary);
  Buffer pages = RandomRows(device, DType::kFloat32, bytes / 4).value();
  const PageMemory memory = {device, pages.data(), nullptr, bytes / 2, 2, 0};
  Buffer small = RandomRows(device, DType::kFloat32, 8).value();
  bench::RunCalls(state, device, bytes, [&](void* stream) {
    const absl::Status s = c.behind ? SmallCopy(small, stream) : absl::OkStatus();
    return s.ok() ? CopyPages({{PageCopy::kWithinPool, 0, 1}}, memory, stream) : s;
  });
}

void BM_SmallCopy(benchmark::State& state) {
  const Device device = bench::AnyDevice();
  Buffer small = RandomRows(device, DType::kFloat32, 8).value();
  bench::RunCalls(state, device, /*bytes=*/32,
                  [&](void* stream) { return SmallCopy(small, stream); });
}
BENCHMARK(BM_SmallCopy)->UseManualTime()->MinTime(0.005);

// The time that counts is that of a call, and an iteration takes 20 and a gate.
#define APPEND_AND_COPY(name, ...)                                                        \
  BENCHMARK_CAPTURE(BM_Append, name, Case{__VA_ARGS__})->UseManualTime()->MinTime(0.005); \
  BENCHMARK_CAPTURE(BM_Copy, name, Case{__VA_ARGS__})->UseManualTime()->MinTime(0.005)

APPEND_AND_COPY(prefill, "b=8,hq=32,hkv=8,sq=1024,skv=2048,d=128,dtype=bf16,page=16", false);
APPEND_AND_COPY(prefill_fp8,
                "b=8,hq=32,hkv=8,sq=1024,skv=2048,d=128,dtype=bf16,kvdtype=fp8_e4m3,page=16",
                false);
APPEND_AND_COPY(prefill_rotary, "b=8,hq=32,hkv=8,sq=1024,skv=2048,d=128,dtype=bf16,page=16", true);
APPEND_AND_COPY(prefill_packed_rotary,
                "b=8,hq=32,hkv=8,sq=1024,skv=2048,d=128,dtype=bf16,page=16,lens=packed", true);

// A token for each of 256 sequences. Packed is how a server has it: offsets and lengths are in the
// GPU's memory. The time behind a small copy includes it.
#define DECODE "b=256,hq=32,hkv=8,sq=1,skv=1024,d=128,dtype=bf16,page=16"
#define PACKED DECODE ",lens=packed"
APPEND_AND_COPY(decode, DECODE, false);
APPEND_AND_COPY(decode_rotary, DECODE, true);
APPEND_AND_COPY(decode_packed, PACKED, false);
APPEND_AND_COPY(decode_packed_rotary, PACKED, true);
APPEND_AND_COPY(decode_behind, DECODE, false, true);
APPEND_AND_COPY(decode_rotary_behind, DECODE, true, true);
APPEND_AND_COPY(decode_packed_behind, PACKED, false, true);
APPEND_AND_COPY(decode_packed_rotary_behind, PACKED, true, true);

}  // namespace
}  // namespace attnlab::paged
