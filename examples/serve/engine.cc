#include "examples/serve/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "paged/append.h"
#include "paged/copy_pages.h"

namespace attnlab::serve {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kKvFloats = Model::kHkv * Model::kD, kQFloats = Model::kHq * Model::kD;

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const Model& model,
                                                       const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine(model, options));
  if (absl::Status s = engine->Allocate(); !s.ok()) return s;
  return engine;
}

absl::Status Engine::Allocate() {
  const paged::PageManager::Options& cache = options_.cache;
  absl::StatusOr<std::unique_ptr<paged::PageManager>> manager = paged::PageManager::Create(cache);
  if (!manager.ok()) return manager.status();
  cache_ = *std::move(manager);
  absl::StatusOr<paged::BlockTable> table = paged::BlockTable::Create(options_.device, *cache_);
  if (!table.ok()) return table.status();
  table_ = std::make_unique<paged::BlockTable>(*std::move(table));

  // One problem fits every step: as many sequences as rows, each with up to a chunk of queries.
  AttentionProblem p;
  p.b = cache.sequences;
  p.hq = Model::kHq;
  p.hkv = Model::kHkv;
  p.sq = options_.chunk;
  p.skv = cache_->most_tokens();
  p.d = p.dv = Model::kD;
  p.dtype = DType::kFloat32;
  p.mask = Mask::Causal();
  p.lens = Lengths::kPacked;
  p.page = cache.page;
  absl::StatusOr<Plan> plan = MakePlan(p, options_.device);
  if (!plan.ok()) return plan.status();
  plan_ = *std::move(plan);

  const int64_t rows = p.b * p.sq, page_bytes = p.page * kKvFloats * kFloat;
  absl::Status status;
  const auto allocate = [&](Device device, int64_t bytes) {
    absl::StatusOr<Buffer> buffer = Buffer::Allocate(device, bytes);
    if (buffer.ok() && status.ok()) status = buffer->Fill(0);  // no NaN in the rest of a page
    if (!buffer.ok()) status.Update(buffer.status());
    return buffer.ok() ? *std::move(buffer) : Buffer();
  };
  for (int64_t i = 0; i < Model::kLayers; ++i) {
    LayerMemory layer;
    layer.k = allocate(options_.device, cache.pages * page_bytes);
    layer.v = allocate(options_.device, cache.pages * page_bytes);
    layer.host_k = allocate(Device::Cpu(), cache.host_pages * page_bytes);
    layer.host_v = allocate(Device::Cpu(), cache.host_pages * page_bytes);
    layers_.push_back(std::move(layer));
  }
  workspace_ = allocate(options_.device, plan_.workspace_bytes);
  q_ = allocate(options_.device, rows * kQFloats * kFloat);
  o_ = allocate(options_.device, rows * kQFloats * kFloat);
  k_ = allocate(options_.device, rows * kKvFloats * kFloat);
  v_ = allocate(options_.device, rows * kKvFloats * kFloat);
  offsets_ = allocate(options_.device, (p.b + 1) * int64_t{sizeof(int32_t)});
  if (!status.ok()) return status;

  const auto view = [&](Buffer& buffer, int64_t heads) {
    return BshdView(buffer.data(), DType::kFloat32, options_.device, 1, rows, heads, Model::kD);
  };
  tensors_.q = view(q_, Model::kHq);
  tensors_.o = view(o_, Model::kHq);
  new_k_ = view(k_, Model::kHkv);
  new_v_ = view(v_, Model::kHkv);
  tensors_.cu_seqlens_q = {static_cast<const int32_t*>(offsets_.data()), p.b + 1};
  tensors_.page_table = table_->pages();
  tensors_.kv_len = table_->lengths();
  return absl::OkStatus();
}

absl::Status Engine::Add(Request request) {
  const int64_t most = std::min(cache_->most_tokens(), options_.cache.pages * options_.cache.page);
  const auto tokens = static_cast<int64_t>(request.tokens.size());
  if (tokens < 1 || request.generate < 1 || tokens + request.generate > most) {
    return absl::InvalidArgumentError(absl::StrCat("request: ", tokens, " and ", request.generate,
                                                   " tokens; must be 1 or more each, and at most ",
                                                   most, " together, with ", options_.cache.pages,
                                                   " pages of ", options_.cache.page, " tokens"));
  }
  for (const int32_t token : request.tokens) {
    if (token >= 0 && token < Model::kVocabulary) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("request: token ", token, " is not in [0, ", Model::kVocabulary, ")"));
  }
  request.prompt = tokens;
  waiting_.push_back(std::move(request));
  return absl::OkStatus();
}

absl::Status Engine::Admit() {
  // Those that were swapped out come first.
  while (!swapped_.empty()) {
    absl::Status s = cache_->SwapIn({swapped_.front().id}, &copies_);
    if (absl::IsResourceExhausted(s) && !running_.empty()) return absl::OkStatus();
    if (!s.ok()) return s;
    running_.push_back(std::move(swapped_.front()));
    swapped_.erase(swapped_.begin());
  }
  while (!waiting_.empty()) {
    Request& request = waiting_.front();
    const auto tokens = static_cast<int64_t>(request.tokens.size());
    // The prompt should fit, with a page left for each request that runs. What is cached of it needs
    // no page, but may be counted twice here: a request then waits a little longer.
    const paged::PageCounts counts = cache_->counts();
    const int64_t pages = (tokens + options_.cache.page - 1) / options_.cache.page;
    const auto running = static_cast<int64_t>(running_.size());
    const int64_t available = counts.free + counts.evictable;
    if (running > 0 && (running == options_.cache.sequences || pages + running > available)) break;
    // The last token goes through the model in any case, because its output is wanted.
    const absl::StatusOr<paged::SequenceId> id =
        cache_->Begin(absl::MakeConstSpan(request.tokens).first(tokens - 1));
    if (!id.ok()) return id.status();
    running_.push_back({std::move(request), *id, cache_->Tokens(*id).value()});
    waiting_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status Engine::MakeRoom() {
  Running youngest = std::move(running_.back());
  running_.pop_back();
  absl::Status s = cache_->SwapOut({youngest.id}, &copies_);
  if (s.ok()) {
    ++counts_.swapped;
    swapped_.insert(swapped_.begin(), std::move(youngest));
    return s;
  }
  if (!absl::IsResourceExhausted(s)) return s;
  ++counts_.restarted;
  waiting_.push_front(std::move(youngest.request));
  return cache_->Free({youngest.id});
}

absl::Status Engine::TakePages() {
  while (true) {
    chunks_.clear();
    std::vector<paged::PageManager::NewTokens> batch;
    for (const Running& r : running_) {
      const auto tokens = absl::MakeConstSpan(r.request.tokens).subspan(r.done, options_.chunk);
      batch.push_back({r.id, tokens});
      chunks_.push_back(static_cast<int64_t>(tokens.size()));
    }
    absl::Status s = cache_->Append(batch, &copies_);
    if (!absl::IsResourceExhausted(s) || running_.size() == 1) return s;
    if (s = MakeRoom(); !s.ok()) return s;
  }
}

absl::Status Engine::CopyToLayers() {
  const int64_t page_bytes = options_.cache.page * kKvFloats * kFloat;
  for (LayerMemory& layer : layers_) {
    const std::pair<Buffer*, Buffer*> kTensors[] = {{&layer.k, &layer.host_k},
                                                    {&layer.v, &layer.host_v}};
    for (const auto& [pool, host] : kTensors) {
      absl::Status s =
          paged::CopyPages(copies_, {options_.device, pool->data(), host->data(), page_bytes,
                                     options_.cache.pages, options_.cache.host_pages});
      if (!s.ok()) return s;
    }
  }
  copies_.clear();
  return absl::OkStatus();
}

absl::Status Engine::RunLayers() {
  // Rows of the batch are in the order of the block table's rows.
  std::vector<int32_t> offsets(options_.cache.sequences + 1);
  for (size_t n = 0; n < running_.size(); ++n) {
    offsets[running_[n].id.row + 1] = static_cast<int32_t>(chunks_[n]);
  }
  for (size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
  absl::Status s = offsets_.CopyFromHost(offsets.data(), offsets_.bytes());
  if (s.ok()) s = table_->Update(*cache_);
  if (!s.ok()) return s;

  const int64_t rows = offsets.back();
  std::vector<float> x(rows * Model::kDim), q(rows * kQFloats), o(q.size());
  std::vector<float> k(rows * kKvFloats), v(k.size());
  for (size_t n = 0; n < running_.size(); ++n) {
    for (int64_t j = 0; j < chunks_[n]; ++j) {
      const int64_t row = offsets[running_[n].id.row] + j;
      model_.Embed(running_[n].request.tokens[running_[n].done + j], &x[row * Model::kDim]);
    }
  }
  for (int64_t layer = 0; layer < Model::kLayers; ++layer) {
    for (int64_t row = 0; row < rows; ++row) {
      model_.Project(layer, &x[row * Model::kDim], &q[row * kQFloats], &k[row * kKvFloats],
                     &v[row * kKvFloats]);
    }
    LayerMemory& memory = layers_[layer];
    const auto pages = [&](Buffer& buffer) {
      return BshdView(buffer.data(), DType::kFloat32, options_.device, options_.cache.pages,
                      options_.cache.page, Model::kHkv, Model::kD);
    };
    tensors_.k = pages(memory.k);
    tensors_.v = pages(memory.v);
    paged::NewTokens added;
    added.k = new_k_;
    added.v = new_v_;
    const auto bytes = [](const std::vector<float>& values) {
      return static_cast<int64_t>(values.size()) * kFloat;
    };
    s = q_.CopyFromHost(q.data(), bytes(q));
    if (s.ok()) s = k_.CopyFromHost(k.data(), bytes(k));
    if (s.ok()) s = v_.CopyFromHost(v.data(), bytes(v));
    if (s.ok()) s = paged::Append(plan_.problem, tensors_, added);
    if (s.ok()) s = Forward(plan_, tensors_, {workspace_.data(), workspace_.bytes()});
    if (s.ok()) s = o_.CopyToHost(o.data(), bytes(o));
    if (!s.ok()) return s;
    for (int64_t row = 0; row < rows; ++row) {
      model_.Finish(layer, &o[row * kQFloats], &x[row * Model::kDim]);
    }
  }
  // The output of a request's last token is its next one.
  for (size_t n = 0; n < running_.size(); ++n) {
    Running& r = running_[n];
    r.done += chunks_[n];
    if (r.done < static_cast<int64_t>(r.request.tokens.size())) continue;
    const int64_t last = offsets[r.id.row] + chunks_[n] - 1;
    r.request.tokens.push_back(model_.Next(&x[last * Model::kDim]));
  }
  ++counts_.steps;
  counts_.tokens += rows;
  return absl::OkStatus();
}

absl::Status Engine::Step() {
  absl::Status s = Admit();
  if (s.ok() && !running_.empty()) s = TakePages();
  if (s.ok()) s = CopyToLayers();
  if (!s.ok() || running_.empty()) return s;
  if (s = RunLayers(); !s.ok()) return s;
  counts_.most_pages = std::max(counts_.most_pages, cache_->counts().used());

  std::vector<paged::SequenceId> written, ended;
  for (const Running& r : running_) written.push_back(r.id);
  if (s = cache_->Commit(written); !s.ok()) return s;
  const auto is_done = [](const Running& r) {
    return static_cast<int64_t>(r.request.tokens.size()) == r.request.prompt + r.request.generate;
  };
  for (Running& r : running_) {
    if (!is_done(r)) continue;
    ended.push_back(r.id);
    finished_.push_back(r.request);
  }
  running_.erase(std::remove_if(running_.begin(), running_.end(), is_done), running_.end());
  return cache_->Free(ended);
}

}  // namespace attnlab::serve
