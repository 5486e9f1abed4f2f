#include "attention/oracle/gpu.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "attention/core/mask.h"
#include "attention/core/supports.h"
#include "attention/cuda/call.h"
#include "attention/cuda/memory.h"
#include "attention/device/element_of.h"
#include "attention/oracle/gpu_rows.h"

namespace attnlab::oracle {
namespace {

// Enough blocks to fill a GPU, and a limit on the scratch for the longest rows.
constexpr int64_t kMostBlocks = 1024;
constexpr int64_t kMostScratch = int64_t{256} << 20;  // bytes

GpuRow Find(const AttentionProblem& p, const AttentionTensors& t, const Row& row) {
  const Sequence s = SequenceOf(p, t, row.sequence);
  const KvRange seen = VisibleKv(p.mask, row.row, s.q_len, s.kv_len);
  const int64_t head = row.head / p.GroupSize();
  GpuRow found;
  found.keys = seen.end - seen.begin;
  found.q = t.q.Offset(s.q_batch, s.q_begin + row.row, row.head, 0);
  if (found.keys == 0) return found;
  // With pages, the device finds the page.
  const KeyPlace place =
      p.page == 0 ? PlaceOf(p, t, s, seen.begin) : KeyPlace{/*batch=*/0, /*row=*/0};
  found.k = t.k.Offset(place.batch, place.row, head, 0);
  found.v = t.v.Offset(place.batch, place.row, head, 0);
  found.first = seen.begin;
  found.table = s.kv_batch * t.page_table.row_stride;
  found.k_scale = ScaleOf(p, t.k_scale, row.sequence, head);
  found.v_scale = ScaleOf(p, t.v_scale, row.sequence, head);
  return found;
}

// One allocation for all parts, each at a multiple of kMemoryAlignment.
class Parts {
 public:
  // Adds a part of so many bytes and returns its offset.
  int64_t Add(int64_t bytes) {
    const int64_t begin = bytes_;
    bytes_ += AlignedBytes(bytes);
    return begin;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<Oracle> OracleOnGpu(const AttentionProblem& p, const AttentionTensors& host,
                                   const AttentionTensors& there, absl::Span<const Row> rows,
                                   Factors factors) {
  if (absl::Status s = Check(p, host, rows); !s.ok()) return s;
  if (absl::Status s = CheckDtypeAndPage(p, {KvForm::kFp8, KvForm::kPaged}); !s.ok()) return s;
  const Device device = there.q.device;
  if (device.kind != DeviceKind::kCuda) {
    return absl::InvalidArgumentError("there: its tensors are not on a GPU");
  }
  const auto count = static_cast<int64_t>(rows.size());
  std::vector<GpuRow> found(count);
  int64_t most_keys = 1;
  for (int64_t i = 0; i < count; ++i) {
    found[i] = Find(p, host, rows[i]);
    most_keys = std::max(most_keys, found[i].keys);
  }
  const int64_t exact_width = p.dv + 3, straightforward_width = p.dv + 1;
  std::vector<double> exact(count * exact_width);
  std::vector<float> straightforward(count * straightforward_width);
  const int64_t exact_bytes = count * exact_width * static_cast<int64_t>(sizeof(double));
  const int64_t straightforward_bytes =
      count * straightforward_width * static_cast<int64_t>(sizeof(float));

  GpuRows work;
  work.blocks =
      static_cast<int>(std::clamp(kMostScratch / (most_keys * static_cast<int64_t>(sizeof(double))),
                                  int64_t{1}, std::clamp(count, int64_t{1}, kMostBlocks)));
  const int64_t row_bytes = count * static_cast<int64_t>(sizeof(GpuRow));
  Parts parts;
  const int64_t rows_at = parts.Add(row_bytes);
  const int64_t exact_at = parts.Add(exact_bytes);
  const int64_t straightforward_at = parts.Add(straightforward_bytes);
  const int64_t scratch_at =
      parts.Add(work.blocks * most_keys * static_cast<int64_t>(sizeof(double)));
  absl::StatusOr<Buffer> buffer = Buffer::Allocate(device, parts.bytes());
  if (!buffer.ok()) return buffer.status();
  if (absl::Status s = buffer->CopyFromHost(found.data(), row_bytes, rows_at); !s.ok()) return s;
  char* const data = static_cast<char*>(buffer->data());

  work.q = there.q.data;
  work.k = there.k.data;
  work.v = there.v.data;
  work.element = device::ElementOf(p.dtype);
  work.fp8_cache = p.KvDType() == DType::kFloat8E4M3;
  work.k_stride = there.k.strides[1];
  work.v_stride = there.v.strides[1];
  work.page_table = there.page_table.data;
  work.page = p.page;
  work.k_page_stride = there.k.strides[0];
  work.v_page_stride = there.v.strides[0];
  work.d = p.d;
  work.dv = p.dv;
  work.scale = p.Scale();
  work.softcap = p.softcap;
  work.tf32 = factors == Factors::kTf32;
  work.rows = reinterpret_cast<const GpuRow*>(data + rows_at);
  work.count = count;
  work.scratch_stride = most_keys;
  work.scratch = reinterpret_cast<double*>(data + scratch_at);
  work.exact = reinterpret_cast<double*>(data + exact_at);
  work.straightforward = reinterpret_cast<float*>(data + straightforward_at);
  if (count > 0) {
    cuda_backend::ScopedDevice current(device.ordinal);
    if (!current.status().ok()) return current.status();
    absl::Status s = cuda_backend::ToStatus(StartGpuRows(work), "oracle");
    if (!s.ok()) return s;
  }
  absl::Status s = buffer->CopyToHost(exact.data(), exact_bytes, exact_at);
  if (s.ok()) {
    s = buffer->CopyToHost(straightforward.data(), straightforward_bytes, straightforward_at);
  }
  if (!s.ok()) return s;

  Oracle oracle;
  oracle.exact.dv = oracle.straightforward.dv = p.dv;
  for (Result* result : {&oracle.exact, &oracle.straightforward}) {
    result->o.reserve(count * p.dv);
    result->lse.reserve(count);
  }
  for (int64_t i = 0; i < count; ++i) {
    const double* const e = &exact[i * exact_width];
    oracle.exact.o.insert(oracle.exact.o.end(), e, e + p.dv);
    oracle.exact.lse.push_back(e[p.dv]);
    oracle.exact.spread.push_back(e[p.dv + 1]);
    oracle.exact.score.push_back(e[p.dv + 2]);
    const float* const f = &straightforward[i * straightforward_width];
    oracle.straightforward.o.insert(oracle.straightforward.o.end(), f, f + p.dv);
    oracle.straightforward.lse.push_back(f[p.dv]);
  }
  return oracle;
}

}  // namespace attnlab::oracle
