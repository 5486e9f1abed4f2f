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

using cuda_backend::Gate, cuda_backend::Graph, cuda_backend::Stream;

absl::Status Check() {
  const Device device = Device::Cuda(0);
  // The first call has a few more blocks than an H200 holds at a time: the last ones still load their
  // rows when the second call starts, which needs them first.
  const AttentionProblem p =
      AttentionProblem::Parse("b=1,hq=128,hkv=128,sq=128,skv=128,d=256,dv=8,dtype=fp16,page=16")
          .value();
  const int64_t elements = p.skv * p.hkv * p.d, bytes = elements * SizeOf(p.dtype),
                columns = p.Pages(p.skv);
  std::vector<uint16_t> written(elements), turned(elements), read(elements);
  for (int64_t i = 0; i < elements; ++i) written[i] = static_cast<uint16_t>(i * 40503 >> 8);
  // The second call takes heads for tokens: its first blocks need rows of all blocks of the first one.
  for (int64_t to = 0; to < p.skv * p.hkv; ++to) {
    const int64_t from = to % p.hkv * p.skv + to / p.hkv;
    std::copy_n(&written[from * p.d], p.d, &turned[to * p.d]);
  }
  std::vector<int32_t> pages(columns);
  std::iota(pages.begin(), pages.end(), 0);

  const auto allocate = [&](int64_t dim) {
    return Buffer::Allocate(device, bytes / p.d * dim).value();
  };
  Buffer from = allocate(p.d), there = allocate(p.d), back = allocate(p.d), q = allocate(p.d),
         o = allocate(p.dv), new_v = allocate(p.dv), v = allocate(p.dv),
         table = Buffer::Allocate(device, columns * int64_t{sizeof(int32_t)}).value(),
         other = Buffer::Allocate(device, int64_t{1} << 28).value();
  absl::Status s = table.CopyFromHost(pages.data(), table.bytes());
  if (s.ok()) s = from.CopyFromHost(written.data(), bytes);
  absl::StatusOr<Stream> stream = Stream::Create(0, Stream::Kind::kIndependent);
  if (s.ok()) s = stream.status();
  if (!s.ok()) return s;
  const auto append = [&](const ConstTensorView& k, Buffer& to) {
    AttentionTensors t;
    t.q = BshdView(q.data(), p.dtype, device, 1, p.sq, p.hq, p.d);
    t.o = BshdView(o.data(), p.dtype, device, 1, p.sq, p.hq, p.dv);
    t.k = BshdView(to.data(), p.dtype, device, columns, p.page, p.hkv, p.d);
    t.v = BshdView(v.data(), p.dtype, device, columns, p.page, p.hkv, p.dv);
    t.page_table = {static_cast<const int32_t*>(table.data()), 1, columns, columns};
    NewTokens added;
    added.k = k;
    added.v = BshdView(new_v.data(), p.dtype, device, 1, p.sq, p.hkv, p.dv);
    return Append(p, t, added, stream->get());
  };
  const auto both = [&] {
    ConstTensorView k = BshdView(from.data(), p.dtype, device, 1, p.sq, p.hkv, p.d);
    absl::Status each = append(k, there);
    k.data = there.data();
    k.strides[1] = p.d, k.strides[2] = p.skv * p.d;
    return each.ok() ? append(k, back) : each;
  };
  const auto check = [&](const auto& run) {
    absl::Status each = there.Fill(0xFF);
    if (each.ok()) each = back.Fill(0xFF);
    if (each.ok()) each = other.Fill(0);  // L2 has nothing else
    if (each.ok()) each = run();
    if (each.ok()) each = stream->Synchronize();
    if (each.ok()) each = back.CopyToHost(read.data(), bytes);
    if (each.ok() && read != turned) each = absl::DataLossError("rows are missing");
    return each;
  };
  const auto in_a_row = [&] {
    absl::StatusOr<Gate> gate = Gate::Close(*stream, /*seconds=*/10);
    if (!gate.ok()) return gate.status();
    const absl::Status each = both();
    gate->Open();
    return each;
  };
  s = check(both);  // loads the kernel, which may wait for other work
  if (s.ok()) s = check(in_a_row);
  if (!s.ok()) return s;
  absl::StatusOr<Graph> graph = Graph::Capture(*stream, both);
  if (!graph.ok()) return graph.status();
  return check([&] { return graph->Launch(*stream); });
}

}  // namespace

std::string CheckAppendOrder() {
  const absl::Status s = Check();
  return s.ok() ? "" : s.ToString();
}

}  // namespace attnlab::paged
