// On a GPU: Append() writes what it writes on the CPU.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "attention/cuda/stream.h"
#include "gtest/gtest.h"
#include "paged/append.h"
#include "paged/testing/append_check.h"

namespace attnlab::paged {
namespace {

TEST(AppendOnGpu, EveryRowArrivesAndNothingElseIsWritten) {
  for (AppendCase& c : AppendCases(/*seed=*/2, /*count=*/150)) {
    c.lost_pages = c.seed % 3 == 0;
    ASSERT_EQ(CheckAppend(c, Device::Cuda(0)), "") << c.ToString();
  }
}

// Each call starts early, reads what the one ahead of it writes, and moves it on by a page. So if one
// does not wait, pages are missing at the end.
TEST(AppendOnGpu, WaitsForTheKernelAhead) {
  using cuda_backend::Graph, cuda_backend::Stream;
  const Device device = Device::Cuda(0);
  const AttentionProblem p =
      AttentionProblem::Parse("b=1,hq=8,hkv=8,sq=8192,skv=8192,d=128,dtype=fp16,page=16").value();
  const int64_t elements = p.skv * p.hkv * p.d, bytes = 2 * elements;
  constexpr int kTimes = 100;
  std::vector<uint16_t> written(elements), moved(elements), read(elements);
  for (int64_t i = 0; i < elements; ++i) written[i] = static_cast<uint16_t>(i * 40503 >> 8);
  std::vector<int32_t> pages(p.Pages(p.skv));
  std::iota(pages.begin(), pages.end(), 1);
  pages.back() = 0;
  const int64_t page = elements / static_cast<int64_t>(pages.size());
  std::rotate_copy(written.begin(), written.end() - kTimes * page, written.end(), moved.begin());
  Buffer table = Buffer::Allocate(device, pages.size() * sizeof(int32_t)).value();
  ASSERT_TRUE(table.CopyFromHost(pages.data(), table.bytes()).ok());
  const auto allocate = [&] { return Buffer::Allocate(device, bytes).value(); };
  Buffer q = allocate(), o = allocate(), there = allocate(), back = allocate(), v = allocate();
  const auto append = [&](Buffer& from, Buffer& to, void* stream) {
    AttentionTensors t;
    t.q = BshdView(q.data(), p.dtype, device, 1, p.sq, p.hq, p.d);
    t.o = BshdView(o.data(), p.dtype, device, 1, p.sq, p.hq, p.d);
    t.k = BshdView(to.data(), p.dtype, device, pages.size(), p.page, p.hkv, p.d);
    t.v = BshdView(v.data(), p.dtype, device, pages.size(), p.page, p.hkv, p.d);
    const auto columns = static_cast<int64_t>(pages.size());
    t.page_table = {static_cast<const int32_t*>(table.data()), 1, columns, columns};
    NewTokens added;
    added.k = BshdView(from.data(), p.dtype, device, 1, p.sq, p.hkv, p.d);
    added.v = added.k;
    return Append(p, t, added, stream);
  };
  Stream stream = std::move(Stream::Create(0, Stream::Kind::kIndependent).value());
  const auto there_and_back = [&]() -> absl::Status {
    for (int i = 0; i < kTimes; i += 2) {
      if (absl::Status s = append(back, there, stream.get()); !s.ok()) return s;
      if (absl::Status s = append(there, back, stream.get()); !s.ok()) return s;
    }
    return absl::OkStatus();
  };
  const auto check = [&] {
    ASSERT_TRUE(stream.Synchronize().ok());
    ASSERT_TRUE(back.CopyToHost(read.data(), bytes).ok());
    EXPECT_TRUE(read == moved);
    ASSERT_TRUE(back.CopyFromHost(written.data(), bytes).ok());
    ASSERT_TRUE(there.Fill(0xFF).ok());
  };
  ASSERT_TRUE(back.CopyFromHost(written.data(), bytes).ok());
  ASSERT_TRUE(there_and_back().ok());
  check();
  absl::StatusOr<Graph> graph = Graph::Capture(stream, there_and_back);
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_TRUE(graph->Launch(stream).ok());
  check();
}

}  // namespace
}  // namespace attnlab::paged
