// Quantize() beside a copy of as many bytes, on the first GPU or, without one, on the CPU:
//
//   bazel run //attention/fp8:quantize_benchmark
//
// bytes_per_second counts what is read and what is written. Inputs lie in one place, and are larger than
// L2 caches.
#include <cstdint>
#include <utility>

#include "attention/bench/calls.h"
#include "attention/core/dtype.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "attention/fp8/quantize.h"
#include "benchmark/benchmark.h"
#include "paged/copy_pages.h"
#include "paged/random_rows.h"

namespace attnlab::fp8 {
namespace {

struct Case {
  const char* problem;
  bool hadamard, rotary;
};

// Of Q, K and V: 2 bytes of bf16, and one of fp8. And the table of angles, once.
int64_t BytesOf(const AttentionProblem& p, bool rotary) {
  const int64_t table = rotary ? p.skv * p.d * int64_t{sizeof(float)} : 0;
  return 3 * p.b * (p.sq * p.hq * p.d + p.skv * p.hkv * (p.d + p.dv)) + table;
}

void BM_Quantize(benchmark::State& state, Case c) {
  const Device device = bench::AnyDevice();
  const AttentionProblem p = AttentionProblem::Parse(c.problem).value();
  AttentionTensors from;
  Fp8Tensors to;
  std::vector<Buffer> memory;
  const auto add = [&](int64_t rows, int64_t heads, int64_t dim, ConstTensorView* wide,
                       TensorView* narrow, TensorView* scales) {
    const int64_t elements = p.b * rows * heads * dim, blocks = p.ScaleBlocks(rows);
    memory.push_back(paged::RandomRows(device, DType::kBFloat16, elements).value());
    *wide = BshdView(static_cast<const void*>(memory.back().data()), DType::kBFloat16, device, p.b,
                     rows, heads, dim);
    memory.push_back(Buffer::Allocate(device, elements).value());
    *narrow = BshdView(memory.back().data(), p.dtype, device, p.b, rows, heads, dim);
    memory.push_back(Buffer::Allocate(device, p.b * blocks * heads * int64_t{4}).value());
    *scales = BshdView(memory.back().data(), DType::kFloat32, device, p.b, blocks, heads, 1);
  };
  add(p.sq, p.hq, p.d, &from.q, &to.q, &to.q_scale);
  add(p.skv, p.hkv, p.d, &from.k, &to.k, &to.k_scale);
  add(p.skv, p.hkv, p.dv, &from.v, &to.v, &to.v_scale);
  QuantizeOptions options;
  options.hadamard = c.hadamard;
  if (c.rotary) {
    memory.push_back(paged::RandomRows(device, DType::kFloat32, p.skv * p.d).value());
    options.rotary.table = BshdView(static_cast<const void*>(memory.back().data()), DType::kFloat32,
                                    device, 1, p.skv, 1, p.d);
  }
  bench::RunCalls(state, device, BytesOf(p, c.rotary),
                  [&](void* stream) { return Quantize(p, from, to, options, stream); });
}

// A copy that reads and writes as many bytes in all.
void BM_Copy(benchmark::State& state, Case c) {
  const Device device = bench::AnyDevice();
  const int64_t bytes = BytesOf(AttentionProblem::Parse(c.problem).value(), false);
  Buffer pages = paged::RandomRows(device, DType::kFloat32, bytes / 4).value();
  const paged::PageMemory memory = {device, pages.data(), nullptr, bytes / 2, 2, 0};
  bench::RunCalls(state, device, bytes, [&](void* stream) {
    return paged::CopyPages({{paged::PageCopy::kWithinPool, 0, 1}}, memory, stream);
  });
}

#define QUANTIZE(name, problem, hadamard, rotary)                                         \
  BENCHMARK_CAPTURE(BM_Quantize, name, Case{problem ",dtype=fp8_e4m3", hadamard, rotary}) \
      ->UseManualTime()                                                                   \
      ->MinTime(0.02)
#define OF_DIM(d, problem)                                      \
  QUANTIZE(d##_blocks, problem ",scaleblock=128", true, false); \
  QUANTIZE(d##_rotary, problem ",scaleblock=128", true, true);  \
  QUANTIZE(d##_plain, problem ",scaleblock=128", false, false); \
  QUANTIZE(d##_blocks_of_64, problem ",scaleblock=64", true, false)

OF_DIM(64, "b=4,hq=32,sq=4096,d=64");
OF_DIM(96, "b=4,hq=20,sq=4096,d=96");
OF_DIM(128, "b=4,hq=16,sq=4096,d=128");
OF_DIM(192, "b=4,hq=10,sq=4096,d=192");
OF_DIM(256, "b=4,hq=8,sq=4096,d=256");
QUANTIZE(of_heads, "b=4,hq=16,sq=4096,d=128", true, false);
BENCHMARK_CAPTURE(BM_Copy, copy, Case{"b=4,hq=16,sq=4096,d=128,dtype=fp8_e4m3", false, false})
    ->UseManualTime()
    ->MinTime(0.02);

}  // namespace
}  // namespace attnlab::fp8
