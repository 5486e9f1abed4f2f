#include "paged/testing/decode_check.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/core/dtype.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "attention/cuda/stream.h"
#include "paged/append.h"
#include "paged/block_table.h"
#include "paged/copy_pages.h"
#include "paged/page_manager.h"

namespace attnlab::paged {
namespace {

using cuda_backend::Graph;
using cuda_backend::Stream;

constexpr int64_t kRows = 3;
// Row 2 begins here as a fork of row 0. From then on they share what is before, and the page that
// is not full is copied.
constexpr int64_t kFork = 1003;
// Row 1 is away between these steps. Meanwhile the others get pages that it had.
constexpr int64_t kSwapOut = 2005, kSwapIn = 2600;
// From here on all rows take part in every step, so that a graph of this step fits the others.
constexpr int64_t kCapture = 3000;
constexpr uint8_t kPoison = 0xFF;  // NaN in every dtype

bool TakesPart(int64_t row, int64_t step) {
  if (row == 1) return step < kSwapOut || step >= kSwapIn;
  return row == 0 || step >= kFork;
}

// The place of a step's token in its sequence.
int64_t PositionOf(int64_t row, int64_t step) {
  return row == 1 && step >= kSwapIn ? step - (kSwapIn - kSwapOut) : step;
}

// Tensors of one shape: one for each step and, as the last, one for the graph.
struct PerStep {
  TensorView view;  // of step 0
  int64_t count = 0, bytes = 0;
  Buffer buffer;

  absl::Status Allocate(const TensorView& shape, int64_t steps) {
    view = shape;
    count = steps + 1;
    bytes = shape.NumElements() * SizeOf(shape.dtype);
    absl::StatusOr<Buffer> allocated = Buffer::Allocate(shape.device, count * bytes);
    if (!allocated.ok()) return allocated.status();
    buffer = *std::move(allocated);
    view.data = buffer.data();
    return buffer.Fill(kPoison);
  }
  TensorView Of(int64_t step) const {
    TensorView of_step = view;
    of_step.data = static_cast<char*>(view.data) + step * bytes;
    return of_step;
  }
  absl::Status Copy(int64_t from, int64_t to, void* stream) {
    const PageCopy copy = {PageCopy::kWithinPool, static_cast<PageId>(from),
                           static_cast<PageId>(to)};
    return CopyPages({copy}, {view.device, buffer.data(), nullptr, bytes, count, 0}, stream);
  }
};

// Uniform in [-2, 2): faster to draw than a normal distribution.
std::vector<uint8_t> Draw(std::mt19937& random, DType dtype, int64_t elements) {
  std::vector<uint8_t> drawn(elements * SizeOf(dtype));
  for (int64_t i = 0; i < elements; ++i) {
    StoreElement(drawn.data(), dtype, i,
                 static_cast<float>(static_cast<int32_t>(random())) * 0x1p-30f);
  }
  return drawn;
}

absl::StatusOr<Buffer> Upload(Device device, const void* from, int64_t bytes) {
  absl::StatusOr<Buffer> buffer = Buffer::Allocate(device, bytes);
  if (!buffer.ok()) return buffer;
  if (absl::Status s = buffer->CopyFromHost(from, bytes); !s.ok()) return s;
  return buffer;
}

// K or V, in pages and contiguous.
struct Cache {
  PerStep added;
  Buffer pool, contiguous;
  std::vector<uint8_t> host;  // pages that are swapped out
  PageMemory memory;

  absl::Status Allocate(const AttentionProblem& p, int64_t dim, const PageManager::Options& options,
                        Device device, std::mt19937& random) {
    const int64_t token = p.hkv * dim * SizeOf(p.dtype);
    absl::Status s = added.Allocate(
        BshdView(static_cast<void*>(nullptr), p.dtype, device, kRows, 1, p.hkv, dim), p.skv);
    if (!s.ok()) return s;
    const std::vector<uint8_t> drawn = Draw(random, p.dtype, p.skv * kRows * p.hkv * dim);
    s = added.buffer.CopyFromHost(drawn.data(), static_cast<int64_t>(drawn.size()));
    if (!s.ok()) return s;

    std::vector<uint8_t> rows(kRows * p.skv * token, kPoison);
    const auto at = [&](int64_t row, int64_t position) {
      return &rows[(row * p.skv + position) * token];
    };
    for (int64_t step = 0; step < p.skv; ++step) {
      if (step == kFork) std::copy_n(at(0, 0), step * token, at(2, 0));
      for (int64_t row = 0; row < kRows; ++row) {
        if (!TakesPart(row, step)) continue;
        std::copy_n(&drawn[(step * kRows + row) * token], token, at(row, PositionOf(row, step)));
      }
    }
    absl::StatusOr<Buffer> uploaded =
        Upload(device, rows.data(), static_cast<int64_t>(rows.size()));
    if (!uploaded.ok()) return uploaded.status();
    contiguous = *std::move(uploaded);

    // What no token was written to must have no influence, so it is NaN.
    const int64_t page_bytes = p.page * token;
    host.assign(options.host_pages * page_bytes, kPoison);
    absl::StatusOr<Buffer> allocated = Buffer::Allocate(device, options.pages * page_bytes);
    if (!allocated.ok()) return allocated.status();
    pool = *std::move(allocated);
    memory = {device, pool.data(), host.data(), page_bytes, options.pages, options.host_pages};
    return pool.Fill(kPoison);
  }
};

// The same call twice: with pages, and with contiguous K and V.
class DecodeLoop {
 public:
  DecodeLoop(const AttentionProblem& problem, Device device) : p_(problem), device_(device) {}

  absl::Status Prepare(const DecodeCase& c) {
    if (p_.b != kRows || p_.sq != 1 || p_.skv <= kCapture || p_.lens != Lengths::kPadded ||
        p_.page == 0 || p_.KvDType() != p_.dtype) {
      return absl::InvalidArgumentError("problem: not one of a DecodeCase");
    }
    if (device_.kind == DeviceKind::kCuda) {
      absl::StatusOr<Stream> stream = Stream::Create(device_.ordinal, Stream::Kind::kOrdinary);
      if (!stream.ok()) return stream.status();
      stream_.emplace(*std::move(stream));
    }
    absl::Status s = PrepareManager(c);
    if (s.ok()) s = PreparePlans(c);
    if (s.ok()) s = PrepareTensors();
    return s;
  }

  absl::Status Run() {
    for (int64_t step = 0; step < p_.skv; ++step) {
      absl::Status s = Manage(step);
      if (s.ok()) s = step < kCapture || !stream_ ? RunStep(step) : ReplayStep(step);
      if (s.ok()) s = Forward(contiguous_plan_, ContiguousOf(step), workspace(), stream());
      if (s.ok()) s = manager_->Commit(taking_part_);
      if (!s.ok()) return absl::Status(s.code(), absl::StrCat("step ", step, ": ", s.message()));
    }
    if (stream_) {
      if (absl::Status s = stream_->Synchronize(); !s.ok()) return s;
    }
    if (manager_->counts().copies == 0) return absl::InternalError("no page was copied");
    if (swapped_in_ == 0) return absl::InternalError("no page came back from the host");
    if (graph_ && graph_->nodes() < 2) {
      return absl::InternalError(absl::StrCat("the graph has ", graph_->nodes(),
                                              " nodes, too few for Append() and Forward()"));
    }
    const std::string wrong = manager_->Inconsistency();
    return wrong.empty() ? absl::OkStatus() : absl::InternalError(wrong);
  }

  absl::Status Compare() {
    absl::Status s = CompareOutput("o", o_, contiguous_o_);
    return s.ok() ? CompareOutput("lse", lse_, contiguous_lse_) : s;
  }

 private:
  absl::Status PrepareManager(const DecodeCase& c) {
    options_.page = p_.page;
    options_.pages = kRows * p_.Pages(p_.skv);
    options_.host_pages = p_.Pages(p_.skv);
    options_.sequences = kRows;
    options_.most_tokens = p_.skv;
    options_.prefix_caching = c.prefix_caching;
    absl::StatusOr<std::unique_ptr<PageManager>> manager = PageManager::Create(options_);
    if (!manager.ok()) return manager.status();
    manager_ = *std::move(manager);
    absl::StatusOr<BlockTable> table = BlockTable::Create(device_, *manager_);
    if (!table.ok()) return table.status();
    table_.emplace(*std::move(table));
    for (uint64_t salt = 0; salt < 2; ++salt) {
      absl::StatusOr<SequenceId> id = manager_->Begin({}, salt);
      if (!id.ok()) return id.status();
      ids_.push_back(*id);
    }
    return absl::OkStatus();
  }

  absl::Status PreparePlans(const DecodeCase& c) {
    const absl::StatusOr<LaunchConfig> config = LaunchConfig::Parse(c.config);
    if (!config.ok()) return config.status();
    absl::StatusOr<Plan> plan = MakePlan(p_, device_, c.kernel, *config);
    if (!plan.ok()) return plan.status();
    AttentionProblem contiguous = p_;
    contiguous.page = 0;
    // By name: the default may be another one without pages.
    absl::StatusOr<Plan> other =
        MakePlan(contiguous, device_, plan->kernel->traits().name, *config);
    if (!other.ok()) return other.status();
    plan_ = *std::move(plan);
    contiguous_plan_ = *std::move(other);
    absl::StatusOr<Buffer> workspace = Buffer::Allocate(
        device_, std::max(plan_.workspace_bytes, contiguous_plan_.workspace_bytes));
    if (!workspace.ok()) return workspace.status();
    workspace_ = *std::move(workspace);
    return workspace_.Fill(kPoison);
  }

  absl::Status PrepareTensors() {
    std::mt19937 random(1);
    const auto view = [&](DType dtype, int64_t dim) {
      return BshdView(static_cast<void*>(nullptr), dtype, device_, kRows, 1, p_.hq, dim);
    };
    absl::Status s = q_.Allocate(view(p_.dtype, p_.d), p_.skv);
    for (PerStep* o : {&o_, &contiguous_o_}) {
      if (s.ok()) s = o->Allocate(view(p_.dtype, p_.dv), p_.skv);
    }
    for (PerStep* lse : {&lse_, &contiguous_lse_}) {
      if (s.ok()) s = lse->Allocate(view(DType::kFloat32, 1), p_.skv);
    }
    if (s.ok()) s = k_.Allocate(p_, p_.d, options_, device_, random);
    if (s.ok()) s = v_.Allocate(p_, p_.dv, options_, device_, random);
    if (!s.ok()) return s;
    const std::vector<uint8_t> q = Draw(random, p_.dtype, p_.skv * q_.view.NumElements());
    s = q_.buffer.CopyFromHost(q.data(), static_cast<int64_t>(q.size()));
    if (!s.ok()) return s;

    std::vector<int32_t> q_lens, kv_lens;
    for (int64_t step = 0; step < p_.skv; ++step) {
      for (int64_t row = 0; row < kRows; ++row) {
        const bool takes_part = TakesPart(row, step);
        q_lens.push_back(takes_part ? 1 : 0);
        kv_lens.push_back(takes_part ? static_cast<int32_t>(PositionOf(row, step) + 1) : 0);
      }
    }
    const auto bytes = static_cast<int64_t>(q_lens.size() * sizeof(int32_t));
    absl::StatusOr<Buffer> q_uploaded = Upload(device_, q_lens.data(), bytes);
    if (!q_uploaded.ok()) return q_uploaded.status();
    absl::StatusOr<Buffer> kv_uploaded = Upload(device_, kv_lens.data(), bytes);
    if (!kv_uploaded.ok()) return kv_uploaded.status();
    q_lens_ = *std::move(q_uploaded);
    kv_lens_ = *std::move(kv_uploaded);
    return absl::OkStatus();
  }

  // What an engine does on the host before a step: tokens, pages, and the copies that they need.
  absl::Status Manage(int64_t step) {
    if (step == kFork) {
      absl::StatusOr<SequenceId> id = manager_->Fork(ids_[0]);
      if (!id.ok()) return id.status();
      ids_.push_back(*id);
    }
    std::vector<PageCopy> copies;
    absl::Status s;
    if (step == kSwapOut) s = manager_->SwapOut({ids_[1]}, &copies);
    if (step == kSwapIn) s = manager_->SwapIn({ids_[1]}, &copies);
    if (!s.ok()) return s;

    taking_part_.clear();
    std::vector<PageManager::NewTokens> batch;
    int32_t tokens[kRows];
    for (int64_t row = 0; row < kRows; ++row) {
      if (!TakesPart(row, step)) continue;
      if (ids_[row].row != row) return absl::InternalError("a sequence has another row");
      tokens[row] = static_cast<int32_t>(tokens_drawn_());
      taking_part_.push_back(ids_[row]);
      batch.push_back({ids_[row], {&tokens[row], 1}});
    }
    s = manager_->Append(batch, &copies);
    if (s.ok()) s = table_->Update(*manager_, stream());
    if (s.ok()) s = CopyPages(copies, k_.memory, stream());
    if (s.ok()) s = CopyPages(copies, v_.memory, stream());
    swapped_in_ += std::count_if(copies.begin(), copies.end(), [](const PageCopy& copy) {
      return copy.kind == PageCopy::kFromHost;
    });
    return s;
  }

  // Append() and attention, with the step's tensors.
  absl::Status RunStep(int64_t step) {
    AttentionTensors t = TensorsOf(step, o_, lse_);
    t.k = BshdView(k_.pool.data(), p_.dtype, device_, options_.pages, p_.page, p_.hkv, p_.d);
    t.v = BshdView(v_.pool.data(), p_.dtype, device_, options_.pages, p_.page, p_.hkv, p_.dv);
    t.page_table = table_->pages();
    t.q_len = {static_cast<const int32_t*>(q_lens_.data()) + std::min(step, p_.skv - 1) * kRows,
               kRows};
    t.kv_len = table_->lengths();
    NewTokens added;
    added.k = k_.added.Of(step);
    added.v = v_.added.Of(step);
    absl::Status s = Append(p_, t, added, stream());
    return s.ok() ? Forward(plan_, t, workspace(), stream()) : s;
  }

  // The same from the graph, with the tensors beyond the last step.
  absl::Status ReplayStep(int64_t step) {
    const int64_t last = p_.skv;
    if (!graph_) {
      absl::StatusOr<Graph> graph = Graph::Capture(*stream_, [&] { return RunStep(last); });
      if (!graph.ok()) return graph.status();
      graph_.emplace(*std::move(graph));
    }
    absl::Status s;
    for (PerStep* in : {&q_, &k_.added, &v_.added}) {
      if (s.ok()) s = in->Copy(step, last, stream());
    }
    if (s.ok()) s = graph_->Launch(*stream_);
    for (PerStep* out : {&o_, &lse_}) {
      if (s.ok()) s = out->Copy(last, step, stream());
    }
    return s;
  }

  AttentionTensors TensorsOf(int64_t step, const PerStep& o, const PerStep& lse) const {
    AttentionTensors t;
    t.q = q_.Of(step);
    t.o = o.Of(step);
    t.lse = lse.Of(step);
    return t;
  }

  AttentionTensors ContiguousOf(int64_t step) {
    AttentionTensors t = TensorsOf(step, contiguous_o_, contiguous_lse_);
    t.k = BshdView(k_.contiguous.data(), p_.dtype, device_, kRows, p_.skv, p_.hkv, p_.d);
    t.v = BshdView(v_.contiguous.data(), p_.dtype, device_, kRows, p_.skv, p_.hkv, p_.dv);
    t.q_len = {static_cast<const int32_t*>(q_lens_.data()) + step * kRows, kRows};
    t.kv_len = {static_cast<const int32_t*>(kv_lens_.data()) + step * kRows, kRows};
    return t;
  }

  absl::Status CompareOutput(const char* name, const PerStep& paged, const PerStep& contiguous) {
    std::vector<uint8_t> x(paged.buffer.bytes()), y(x.size());
    absl::Status s = paged.buffer.CopyToHost(x.data(), paged.buffer.bytes());
    if (s.ok()) s = contiguous.buffer.CopyToHost(y.data(), paged.buffer.bytes());
    if (!s.ok()) return s;
    const int64_t elements = paged.view.strides[0], bytes = paged.bytes / kRows;
    for (int64_t step = 0; step < p_.skv; ++step) {
      for (int64_t row = 0; row < kRows; ++row) {
        const int64_t first = (step * kRows + row) * elements;
        const uint8_t *const a = &x[(step * kRows + row) * bytes], *const b = a - &x[0] + &y[0];
        const auto wrong = [&](const char* what) {
          return absl::InternalError(absl::StrCat(name, " of ", plan_.kernel->traits().name,
                                                  ", step ", step, ", row ", row, ": ", what));
        };
        if (std::memcmp(a, b, bytes) != 0) return wrong("other bits with pages than without");
        for (int64_t i = 0; i < elements; ++i) {
          const float value = LoadElement(x.data(), paged.view.dtype, first + i);
          if (TakesPart(row, step) == (value == value)) continue;
          return wrong(value == value ? "written without a query" : "NaN, or not written");
        }
      }
    }
    return absl::OkStatus();
  }

  void* stream() const { return stream_ ? stream_->get() : nullptr; }
  Workspace workspace() { return {workspace_.data(), workspace_.bytes()}; }

  const AttentionProblem p_;
  const Device device_;
  PageManager::Options options_;
  std::unique_ptr<PageManager> manager_;
  std::optional<BlockTable> table_;
  std::vector<SequenceId> ids_, taking_part_;
  std::mt19937 tokens_drawn_{2};
  int64_t swapped_in_ = 0;  // pages

  Plan plan_, contiguous_plan_;
  Buffer workspace_, q_lens_, kv_lens_;  // of all steps
  PerStep q_, o_, lse_, contiguous_o_, contiguous_lse_;
  Cache k_, v_;
  // The last members, so that work on the stream ends before its memory is freed.
  std::optional<Stream> stream_;  // on a GPU
  std::optional<Graph> graph_;
};

}  // namespace

absl::Status CheckDecode(const DecodeCase& c, Device device) {
  const absl::StatusOr<AttentionProblem> problem = AttentionProblem::Parse(c.problem);
  if (!problem.ok()) return problem.status();
  DecodeLoop loop(*problem, device);
  absl::Status s = loop.Prepare(c);
  if (s.ok()) s = loop.Run();
  if (s.ok()) s = loop.Compare();
  return s;
}

}  // namespace attnlab::paged
