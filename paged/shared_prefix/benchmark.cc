// Decoding for 64 sequences with a common prefix of 4096 keys and 512 of their own, on the first GPU:
//
//   bazel run -c opt //paged/shared_prefix:benchmark
//
//   BM_Copies   every sequence has a copy of the prefix
//   BM_Table    the sequences' rows of the page table begin with the same pages
//   BM_Plan     SharedPrefixPlan
//
// Calls are timed in a row: each but the first is queued when the one before it ends, so that the host's
// part does not count.
#include "benchmark/benchmark.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/attention.h"
#include "attention/core/dtype.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/memory.h"
#include "paged/page_manager.h"
#include "paged/random_rows.h"
#include "paged/shared_prefix/shared_prefix.h"

namespace attnlab::paged {
namespace {

constexpr int64_t kPrefixPages = 4096 / 16;

absl::Status Measure(benchmark::State& state, bool shares_pages, bool plans) {
  const Device gpu = Device::Cuda(0);
  absl::StatusOr<AttentionProblem> p =
      AttentionProblem::Parse("b=64,hq=32,hkv=8,sq=1,skv=4608,d=128,dtype=bf16,page=16");
  if (!p.ok()) return p.status();
  const int64_t columns = p->skv / p->page, pages = p->b * columns;
  std::vector<int32_t> entries(pages);
  for (int64_t i = 0; i < pages; ++i) entries[i] = static_cast<int32_t>(i);
  std::mt19937 random(1);
  std::shuffle(entries.begin(), entries.end(), random);
  SharedPrefix prefix;
  prefix.pages = kPrefixPages;
  for (int64_t i = 0; i < p->b; ++i) {
    prefix.members.push_back(i);
    if (shares_pages) std::copy_n(entries.begin(), kPrefixPages, entries.begin() + i * columns);
  }
  const absl::StatusOr<SharedPrefixPlan> plan = SharedPrefixPlan::Make(*p, gpu, {prefix});
  if (!plan.ok()) return plan.status();
  const absl::StatusOr<Plan> usual = MakePlan(*p, gpu);
  if (!usual.ok()) return usual.status();
  const int64_t bytes = std::max(plan->WorkspaceBytes(), usual->workspace_bytes);

  const auto rows = [&](int64_t elements) { return RandomRows(gpu, p->dtype, elements); };
  absl::StatusOr<Buffer> q = rows(p->b * p->hq * p->d), o = rows(p->b * p->hq * p->d),
                         k = rows(pages * p->page * p->hkv * p->d),
                         v = rows(pages * p->page * p->hkv * p->d),
                         table = Buffer::Allocate(gpu, pages * int64_t{sizeof(int32_t)}),
                         workspace = Buffer::Allocate(gpu, bytes);
  for (const auto* buffer : {&q, &o, &k, &v, &table, &workspace}) {
    if (!buffer->ok()) return buffer->status();
  }
  absl::Status s = table->CopyFromHost(entries.data(), table->bytes());
  if (!s.ok()) return s;
  AttentionTensors t;
  t.q = BshdView(q->data(), p->dtype, gpu, p->b, 1, p->hq, p->d);
  t.o = BshdView(o->data(), p->dtype, gpu, p->b, 1, p->hq, p->d);
  t.k = BshdView(k->data(), p->dtype, gpu, pages, p->page, p->hkv, p->d);
  t.v = BshdView(v->data(), p->dtype, gpu, pages, p->page, p->hkv, p->d);
  t.page_table = {static_cast<const int32_t*>(table->data()), p->b, columns, columns};
  absl::StatusOr<cuda_backend::Timer> timer = cuda_backend::Timer::Create(0);
  if (!timer.ok()) return timer.status();
  const Workspace scratch = {workspace->data(), bytes};
  constexpr int kCalls = 20;
  for (auto _ : state) {
    if (s = timer->Start(nullptr); !s.ok()) return s;
    for (int i = 0; i < kCalls; ++i) {
      if (s = plans ? plan->Run(t, scratch) : Forward(*usual, t, scratch); !s.ok()) return s;
    }
    const absl::StatusOr<double> seconds = timer->StopSeconds(nullptr);
    if (!seconds.ok()) return seconds.status();
    state.SetIterationTime(*seconds / kCalls);
  }
  return absl::OkStatus();
}

void Run(benchmark::State& state, bool shares_pages, bool plans) {
  const absl::Status s = Measure(state, shares_pages, plans);
  if (!s.ok()) state.SkipWithError(std::string(s.message()).c_str());
}

void BM_Copies(benchmark::State& state) { Run(state, false, false); }
void BM_Table(benchmark::State& state) { Run(state, true, false); }
void BM_Plan(benchmark::State& state) { Run(state, true, true); }
BENCHMARK(BM_Copies)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Table)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Plan)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace attnlab::paged
