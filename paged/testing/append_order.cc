#include "paged/testing/append_order.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/dtype.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "attention/cuda/stream.h"
#include "paged/append.h"

namespace attnlab::paged {
namespace {

using cuda_backend::Graph, cuda_backend::Stream;

constexpr int kTimes = 100;

absl::Status Check() {
  const Device device = Device::Cuda(0);
  const AttentionProblem p =
      AttentionProblem::Parse("b=1,hq=8,hkv=8,sq=8192,skv=8192,d=128,dtype=fp16,page=16").value();
  const int64_t elements = p.skv * p.hkv * p.d, bytes = elements * SizeOf(p.dtype),
                columns = p.Pages(p.skv), page = elements / columns;
  std::vector<uint16_t> written(elements), moved(elements), read(elements);
  for (int64_t i = 0; i < elements; ++i) written[i] = static_cast<uint16_t>(i * 40503 >> 8);
  std::rotate_copy(written.begin(), written.end() - kTimes * page, written.end(), moved.begin());
  std::vector<int32_t> pages(columns);
  std::iota(pages.begin(), pages.end(), 1);
  pages.back() = 0;

  const auto allocate = [&] { return Buffer::Allocate(device, bytes).value(); };
  Buffer q = allocate(), o = allocate(), there = allocate(), back = allocate(), v = allocate(),
         table = Buffer::Allocate(device, columns * int64_t{sizeof(int32_t)}).value();
  absl::Status s = table.CopyFromHost(pages.data(), table.bytes());
  absl::StatusOr<Stream> stream = Stream::Create(0, Stream::Kind::kIndependent);
  if (s.ok()) s = stream.status();
  if (!s.ok()) return s;
  const auto append = [&](Buffer& from, Buffer& to) {
    AttentionTensors t;
    t.q = BshdView(q.data(), p.dtype, device, 1, p.sq, p.hq, p.d);
    t.o = BshdView(o.data(), p.dtype, device, 1, p.sq, p.hq, p.d);
    t.k = BshdView(to.data(), p.dtype, device, columns, p.page, p.hkv, p.d);
    t.v = BshdView(v.data(), p.dtype, device, columns, p.page, p.hkv, p.d);
    t.page_table = {static_cast<const int32_t*>(table.data()), 1, columns, columns};
    NewTokens added;
    added.k = BshdView(from.data(), p.dtype, device, 1, p.sq, p.hkv, p.d);
    added.v = added.k;
    return Append(p, t, added, stream->get());
  };
  const auto there_and_back = [&] {
    absl::Status each;
    for (int i = 0; i < kTimes && each.ok(); i += 2) {
      each = append(back, there);
      if (each.ok()) each = append(there, back);
    }
    return each;
  };
  const auto check = [&](const auto& run) {
    absl::Status each = back.CopyFromHost(written.data(), bytes);
    if (each.ok()) each = there.Fill(0xFF);
    if (each.ok()) each = run();
    if (each.ok()) each = stream->Synchronize();
    if (each.ok()) each = back.CopyToHost(read.data(), bytes);
    if (each.ok() && read != moved) each = absl::DataLossError("pages are missing");
    return each;
  };
  s = check(there_and_back);
  if (!s.ok()) return s;
  absl::StatusOr<Graph> graph = Graph::Capture(*stream, there_and_back);
  if (!graph.ok()) return graph.status();
  return check([&] { return graph->Launch(*stream); });
}

}  // namespace

std::string CheckAppendOrder() {
  const absl::Status s = Check();
  return s.ok() ? "" : s.ToString();
}

}  // namespace attnlab::paged
