#include "attention/oracle/inputs.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/core/mix.h"
#include "attention/core/parallel.h"
#include "attention/core/stop.h"
#include "attention/cuda/machine.h"
#include "attention/oracle/bare_memory.h"

namespace attnlab::oracle {
namespace {

constexpr int kQ = 0, kK = 1, kV = 2;
constexpr int64_t kRowsPerTask = 64;

uint64_t Combine(uint64_t a, uint64_t b) { return Mix(a + kGolden * (b + 1)); }

float Uniform(uint64_t bits) {  // in [-1, 1)
  return static_cast<float>(bits >> 40) * 0x1p-23f - 1;
}

float Normal(uint64_t bits) {
  // Each 16-bit uniform has variance 65536² / 12.
  const int64_t sum =
      (bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) + (bits >> 48);
  return static_cast<float>(sum - 2 * 65535) * (1.7320508f / 65536);
}

float ValueOf(Values values, int tensor, uint64_t bits) {
  switch (values) {
    case Values::kNormal:
      break;
    case Values::kUniform:
      return Uniform(bits);
    case Values::kOutliers:
      return Normal(bits) * (Mix(bits) % 64 == 0 ? 10.0f : 1.0f);
    case Values::kLargeScores:
      return Normal(bits) * (tensor == kQ ? 40.0f : 1.0f);
    case Values::kZeroQ:
      return tensor == kQ ? 0.0f : Normal(bits);
    case Values::kConstantV:
      return tensor == kV ? 1.0f : Normal(bits);
  }
  return Normal(bits);
}

template <typename Element>
void FillRow(Element* out, int64_t dim, Values values, int tensor, uint64_t key) {
  for (int64_t i = 0; i < dim; ++i) {
    const uint64_t bits = Mix(key + kGolden * static_cast<uint64_t>(i + 1));
    out[i] = static_cast<Element>(ValueOf(values, tensor, bits));
  }
}

absl::Status CheckGiven(absl::string_view name, const std::vector<int32_t>& lens,
                        const AttentionProblem& p, int64_t longest) {
  if (lens.empty()) return absl::OkStatus();
  if (p.lens == Lengths::kFixed) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": is given, but lens=fixed"));
  }
  return CheckLengths(name, lens, p.b, longest);
}

int32_t DrawLength(uint64_t bits, int64_t longest) {
  switch (bits % 8) {
    case 0:
      return 0;
    case 1:
      return static_cast<int32_t>(std::min<int64_t>(1, longest));
    case 2:
      return static_cast<int32_t>(longest);
    default:
      return static_cast<int32_t>((bits >> 8) % static_cast<uint64_t>(longest + 1));
  }
}

std::vector<int32_t> Offsets(const std::vector<int32_t>& lens) {
  std::vector<int32_t> offsets = {0};
  for (int32_t length : lens) offsets.push_back(offsets.back() + length);
  return offsets;
}

int64_t Sum(const std::vector<int32_t>& lens) {
  int64_t sum = 0;
  for (int32_t length : lens) sum += length;
  return sum;
}

}  // namespace

absl::string_view Name(Values values) {
  switch (values) {
    case Values::kNormal:
      return "normal";
    case Values::kUniform:
      return "uniform";
    case Values::kOutliers:
      return "outliers";
    case Values::kLargeScores:
      return "large";
    case Values::kZeroQ:
      return "zero_q";
    case Values::kConstantV:
      return "constant_v";
  }
  return "unknown";
}

absl::StatusOr<Values> ParseValues(absl::string_view name) {
  for (Values values : kAllValues) {
    if (name == Name(values)) return values;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "values: \"", name, "\" is not one of normal, uniform, outliers, large, zero_q, constant_v"));
}

absl::Status Inputs::Check(const AttentionProblem& problem, const InputOptions& options) {
  return Begin(problem, Device::Cpu(), options).status();
}

absl::StatusOr<Inputs> Inputs::Begin(const AttentionProblem& problem, Device device,
                                     const InputOptions& options) {
  if (absl::Status s = problem.Validate(); !s.ok()) return s;
  if (absl::Status s = CheckLayout(options.layout, problem); !s.ok()) return s;

  Inputs inputs;
  inputs.problem_ = problem;
  inputs.options_ = options;
  inputs.device_ = device;
  if (absl::Status s = inputs.MakeLengths(); !s.ok()) return s;
  return inputs;
}

absl::StatusOr<Inputs> Inputs::Make(const AttentionProblem& problem, Device device,
                                    const InputOptions& options) {
  absl::StatusOr<Inputs> begun = Begin(problem, device, options);
  if (!begun.ok()) return begun.status();
  Inputs inputs = *std::move(begun);
  if (absl::Status s = inputs.Allocate(); !s.ok()) return s;

  struct Task {
    int tensor;
    int64_t sequence, begin, end;
  };
  std::vector<Task> tasks;
  for (int tensor : {kQ, kK, kV}) {
    for (int64_t i = 0; i < problem.b; ++i) {
      const int64_t rows = tensor == kQ ? inputs.q_lens_[i] : inputs.kv_lens_[i];
      for (int64_t row = 0; row < rows; row += kRowsPerTask) {
        tasks.push_back({tensor, i, row, std::min(rows, row + kRowsPerTask)});
      }
    }
  }
  const int threads = tasks.size() < 8 ? 1 : CpuInfo().threads;
  ParallelFor(static_cast<int64_t>(tasks.size()), threads, [&](int64_t i, int) {
    const Task& task = tasks[i];
    inputs.FillRows(task.tensor, task.sequence, task.begin, task.end, false, options.seed);
  });
  if (Stopping()) return absl::CancelledError("inputs: stopped");
  if (absl::Status s = inputs.Upload(); !s.ok()) return s;
  return inputs;
}

absl::Status Inputs::MakeLengths() {
  const AttentionProblem& p = problem_;
  if (absl::Status s = CheckGiven("q_lens", options_.q_lens, p, p.sq); !s.ok()) return s;
  if (absl::Status s = CheckGiven("kv_lens", options_.kv_lens, p, p.skv); !s.ok()) return s;
  q_lens_ = options_.q_lens;
  kv_lens_ = options_.kv_lens;
  const auto fill = [&p, this](std::vector<int32_t>& lens, int64_t longest, uint64_t stream) {
    if (!lens.empty()) return;
    lens.assign(p.b, static_cast<int32_t>(longest));
    if (p.lens == Lengths::kFixed) return;
    const uint64_t key = Combine(options_.seed, stream);
    for (int64_t i = 0; i < p.b; ++i) lens[i] = DrawLength(Combine(key, i), longest);
    if (p.b > 1) {
      lens[options_.seed % static_cast<uint64_t>(p.b)] = static_cast<int32_t>(longest);
    }
  };
  fill(q_lens_, p.sq, 101);
  fill(kv_lens_, p.skv, 102);
  if (p.page != 0) {
    if (absl::Status s = CheckPages(); !s.ok()) return s;
  }
  if (p.lens != Lengths::kPacked) return absl::OkStatus();
  for (int64_t tokens : {Sum(q_lens_), p.page == 0 ? Sum(kv_lens_) : 0}) {
    // Leaves a few indices for tokens that belong to no sequence.
    if (tokens > AttentionProblem::kMaxExtent - 16) {
      return absl::InvalidArgumentError(absl::StrCat(
          "lens: ", tokens, " packed tokens are more than ", AttentionProblem::kMaxExtent - 16));
    }
  }
  cu_q_ = Offsets(q_lens_);
  if (p.page == 0) cu_kv_ = Offsets(kv_lens_);
  return absl::OkStatus();
}

int64_t Inputs::UsedPages() const {
  int64_t pages = 0;
  for (int32_t length : kv_lens_) pages += problem_.Pages(length);
  return pages;
}

// Pages may be much larger than the sequences in them, so the problem's own limits do not suffice.
absl::Status Inputs::CheckPages() const {
  const AttentionProblem& p = problem_;
  const int64_t pages = UsedPages() + kUnusedPages;
  if (pages > AttentionProblem::kMaxExtent) {
    return absl::InvalidArgumentError(absl::StrCat(
        "page: ", p.page, " takes ", pages, " pages, more than ", AttentionProblem::kMaxExtent));
  }
  const double bytes = static_cast<double>(pages * p.page) * static_cast<double>(p.hkv) *
                       static_cast<double>(std::max(p.d, p.dv) * SizeOf(p.KvDType()));
  if (bytes <= 0x1p60) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("page: ", pages, " pages of ", p.page, " tokens have more than 2^60 bytes"));
}

absl::Status Inputs::Allocate() {
  const AttentionProblem& p = problem_;
  const Layout layout = options_.layout;
  const bool packed = p.lens == Lengths::kPacked;
  const bool on_host = device_.kind == DeviceKind::kCpu;
  const bool paged = p.page != 0;
  const int64_t batch = packed ? 1 : p.b;
  const int64_t spare = layout == Layout::kStrided || layout == Layout::kOdd ? 3 : 0;
  const int64_t q_rows = packed ? cu_q_.back() + spare : p.sq;
  const int64_t kv_batch = paged ? UsedPages() + kUnusedPages : batch;
  const int64_t kv_rows = paged ? p.page : packed ? cu_kv_.back() + spare : p.skv;
  const int64_t fence = BareMemory() ? 0 : kInputFence;

  // Adds a buffer of so many elements on the host and on the device, and returns their addresses.
  const auto add = [&](int64_t elements, DType dtype, void** host, void** device) -> absl::Status {
    const int64_t bytes = elements * SizeOf(dtype) + 2 * fence;
    absl::StatusOr<Buffer> buffer = Buffer::Allocate(Device::Cpu(), bytes);
    if (!buffer.ok()) return buffer.status();
    if (absl::Status s = buffer->Fill(0xFF); !s.ok()) return s;  // NaN in every dtype
    *host = *device = static_cast<char*>(buffer->data()) + fence;
    host_.push_back(*std::move(buffer));
    if (on_host) return absl::OkStatus();
    buffer = Buffer::Allocate(device_, bytes);
    if (!buffer.ok()) return buffer.status();
    *device = static_cast<char*>(buffer->data()) + fence;
    on_device_.push_back(*std::move(buffer));
    return absl::OkStatus();
  };

  void *host = nullptr, *device = nullptr;
  if (layout == Layout::kQkv) {
    if (absl::Status s = add(3 * p.b * p.sq * p.hq * p.d, p.dtype, &host, &device); !s.ok())
      return s;
    const QkvViews here = PackedQkvViews(host, p.dtype, Device::Cpu(), p.b, p.sq, p.hq, p.d);
    const QkvViews there = PackedQkvViews(device, p.dtype, device_, p.b, p.sq, p.hq, p.d);
    host_tensors_.q = here.q, host_tensors_.k = here.k, host_tensors_.v = here.v;
    tensors_.q = there.q, tensors_.k = there.k, tensors_.v = there.v;
  } else {
    const struct {
      ConstTensorView *here, *there;
      DType dtype;
      int64_t batch, rows, heads, dim;
    } kTensors[] = {{&host_tensors_.q, &tensors_.q, p.dtype, batch, q_rows, p.hq, p.d},
                    {&host_tensors_.k, &tensors_.k, p.KvDType(), kv_batch, kv_rows, p.hkv, p.d},
                    {&host_tensors_.v, &tensors_.v, p.VDType(), kv_batch, kv_rows, p.hkv, p.dv}};
    for (const auto& t : kTensors) {
      const Placement place = Place(layout, t.dtype, t.batch, t.rows, t.heads, t.dim);
      const int64_t elements = BareMemory() ? ElementsToLast(place) : place.elements;
      if (absl::Status s = add(elements, t.dtype, &host, &device); !s.ok()) return s;
      const int64_t begin = place.begin * SizeOf(t.dtype);
      *t.here = {static_cast<char*>(host) + begin, t.dtype, Device::Cpu(), place.shape,
                 place.strides};
      *t.there = {static_cast<char*>(device) + begin, t.dtype, device_, place.shape, place.strides};
    }
  }
  const struct {
    int tensor;
    ConstTensorView *here, *there;
    DType dtype;
    int64_t rows, heads;
  } kScales[] = {
      {kQ, &host_tensors_.q_scale, &tensors_.q_scale, p.dtype, p.sq, p.hq},
      {kK, &host_tensors_.k_scale, &tensors_.k_scale, p.KvDType(), p.skv, p.hkv},
      {kV, &host_tensors_.v_scale, &tensors_.v_scale, p.VDType(), p.skv, p.hkv},
  };
  for (const auto& t : kScales) {
    if (!IsFp8(t.dtype)) continue;
    const int64_t blocks = p.ScaleBlocks(t.rows), count = p.b * blocks * t.heads;
    if (absl::Status s = add(count, DType::kFloat32, &host, &device); !s.ok()) return s;
    auto* const scales = static_cast<float*>(host);
    const uint64_t key = Combine(Combine(options_.seed, 103), t.tensor);
    // From 0.5 to 1.5, and no powers of two.
    for (int64_t i = 0; i < count; ++i) scales[i] = 1 + Uniform(Combine(key, i)) / 2;
    // Quantize() gives V a scale of 2^-64 where its numbers are tiny. fp16 has no such O.
    if (options_.values == Values::kLargeScores && t.tensor == kV &&
        p.ODType() != DType::kFloat16) {
      for (int64_t i = 0; i < count; i += 2) scales[i] *= 0x1p-64f;
    }
    *t.here = BshdView(host, DType::kFloat32, Device::Cpu(), p.b, blocks, t.heads, 1);
    *t.there = BshdView(device, DType::kFloat32, device_, p.b, blocks, t.heads, 1);
  }

  if (paged) {
    // One entry more than the longest sequence needs, so that every row has one out of range.
    const int64_t columns = p.Pages(p.skv) + 1, row_stride = columns + spare;
    // An entry is as large as an fp32 element.
    if (absl::Status s = add(p.b * row_stride, DType::kFloat32, &host, &device); !s.ok()) return s;
    host_tensors_.page_table = {static_cast<int32_t*>(host), p.b, columns, row_stride};
    tensors_.page_table = {static_cast<int32_t*>(device), p.b, columns, row_stride};
  }

  const std::vector<int32_t>& q = packed ? cu_q_ : q_lens_;
  const std::vector<int32_t>& kv = packed && !paged ? cu_kv_ : kv_lens_;
  const auto q_count = static_cast<int64_t>(q.size()), kv_count = static_cast<int64_t>(kv.size());
  const auto set = [&](AttentionTensors& t, const int32_t* q_data, const int32_t* kv_data) {
    if (p.lens == Lengths::kFixed) return;
    (packed ? t.cu_seqlens_q : t.q_len) = {q_data, q_count};
    (packed && !paged ? t.cu_seqlens_kv : t.kv_len) = {kv_data, kv_count};
  };
  set(host_tensors_, q.data(), kv.data());
  set(tensors_, q.data(), kv.data());
  if (paged) {
    if (absl::Status s = FillPageTable(); !s.ok()) return s;
  }
  if (on_host || p.lens == Lengths::kFixed) return absl::OkStatus();
  constexpr int64_t kBytes = sizeof(int32_t);
  absl::StatusOr<Buffer> lengths = Buffer::Allocate(device_, (q_count + kv_count) * kBytes);
  if (!lengths.ok()) return lengths.status();
  device_lengths_ = *std::move(lengths);
  absl::Status s = device_lengths_.CopyFromHost(q.data(), q_count * kBytes, 0);
  if (s.ok()) s = device_lengths_.CopyFromHost(kv.data(), kv_count * kBytes, q_count * kBytes);
  if (!s.ok()) return s;
  const int32_t* data = static_cast<const int32_t*>(device_lengths_.data());
  set(tensors_, data, data + q_count);
  return absl::OkStatus();
}

// Sequences take their pages from a shuffled list of all pages.
absl::Status Inputs::FillPageTable() {
  const int64_t pages = host_tensors_.k.shape[0];
  absl::StatusOr<Buffer> list =
      Buffer::Allocate(Device::Cpu(), pages * static_cast<int64_t>(sizeof(int32_t)));
  if (!list.ok()) return list.status();
  auto* const shuffled = static_cast<int32_t*>(list->data());
  std::iota(shuffled, shuffled + pages, 0);
  const uint64_t key = Combine(options_.seed, 104);
  for (int64_t i = pages - 1; i > 0; --i) {
    std::swap(shuffled[i], shuffled[Combine(key, i) % static_cast<uint64_t>(i + 1)]);
  }
  const PageTableView& table = host_tensors_.page_table;
  auto* entry = const_cast<int32_t*>(table.data);  // in host_, which this object owns
  int64_t taken = 0;
  for (int64_t i = 0; i < table.rows; ++i) {
    const int64_t used = problem_.Pages(kv_lens_[i]);
    for (int64_t j = 0; j < table.row_stride; ++j) {
      constexpr int32_t kPoison[] = {std::numeric_limits<int32_t>::min(),
                                     std::numeric_limits<int32_t>::max()};
      *entry++ = j < used ? shuffled[taken++] : kPoison[j % 2];
    }
  }
  return absl::OkStatus();
}

void Inputs::FillRows(int tensor, int64_t sequence, int64_t begin, int64_t end, bool nan,
                      uint64_t seed) {
  const Sequence s = SequenceOf(problem_, host_tensors_, sequence);
  const ConstTensorView& view = tensor == kQ   ? host_tensors_.q
                                : tensor == kK ? host_tensors_.k
                                               : host_tensors_.v;
  const int64_t heads = view.shape[2], dim = view.shape[3];
  void* const data = const_cast<void*>(view.data);  // in host_, which this object owns
  const uint64_t sequence_key = Combine(Combine(seed, tensor), sequence);
  for (int64_t row = begin; row < end; ++row) {
    const uint64_t row_key = Combine(sequence_key, row);
    const KeyPlace place = tensor == kQ ? KeyPlace{s.q_batch, s.q_begin + row}
                                        : PlaceOf(problem_, host_tensors_, s, row);
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t at = view.Offset(place.batch, place.row, head, 0);
      if (nan) {
        for (int64_t i = 0; i < dim; ++i) {
          StoreElement(data, view.dtype, at + i, std::numeric_limits<float>::quiet_NaN());
        }
        continue;
      }
      const uint64_t key = Combine(row_key, head);
      switch (view.dtype) {
        case DType::kFloat32:
          FillRow(static_cast<float*>(data) + at, dim, options_.values, tensor, key);
          break;
        case DType::kFloat16:
          FillRow(static_cast<Float16*>(data) + at, dim, options_.values, tensor, key);
          break;
        case DType::kBFloat16:
          FillRow(static_cast<BFloat16*>(data) + at, dim, options_.values, tensor, key);
          break;
        case DType::kFloat8E4M3:
          FillRow(static_cast<Float8E4M3*>(data) + at, dim, options_.values, tensor, key);
          break;
        case DType::kFloat8E5M2:
          FillRow(static_cast<Float8E5M2*>(data) + at, dim, options_.values, tensor, key);
          break;
      }
    }
  }
}

absl::Status Inputs::Upload() {
  for (size_t i = 0; i < on_device_.size(); ++i) {
    absl::Status s = on_device_[i].CopyFromHost(host_[i].data(), host_[i].bytes());
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Inputs::ChangeQ(int64_t sequence, int64_t begin, int64_t end, Fill fill) {
  end = std::min<int64_t>(end, q_lens_[sequence]);
  FillRows(kQ, sequence, begin, end, fill == Fill::kNan, Mix(~options_.seed));
  return Upload();
}

absl::Status Inputs::ChangeKv(int64_t sequence, int64_t begin, int64_t end, Fill fill) {
  end = std::min<int64_t>(end, kv_lens_[sequence]);
  for (int tensor : {kK, kV}) {
    FillRows(tensor, sequence, begin, end, fill == Fill::kNan, Mix(~options_.seed));
  }
  return Upload();
}

}  // namespace attnlab::oracle
