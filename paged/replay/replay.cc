#include "paged/replay/replay.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attnlab::paged {
namespace {

// Keeps samples of bounded number: each covers a time that doubles whenever there are too many.
class Timeline {
 public:
  Timeline(double step, ReplayReport* report) : report_(*report) {
    report_.sample_seconds = step;
    half_step_ = step / 2;
  }

  // A step that begins `seconds` after the first arrival. Until the next one all stays as it is.
  void Add(double seconds, const ReplayReport::Sample& sample) {
    // The middle of the step: its ends may lie on either side of a border, by rounding.
    const double at = seconds + half_step_;
    while (at >= report_.sample_seconds * static_cast<double>(ReplayReport::kMostSamples)) Halve();
    std::vector<ReplayReport::Sample>& samples = report_.samples;
    const auto index = static_cast<size_t>(at / report_.sample_seconds);
    if (index >= samples.size()) {
      samples.resize(index, last_);
      samples.push_back(sample);
    } else {
      Merge(sample, &samples[index]);
    }
    last_ = sample;
  }

 private:
  static void Merge(const ReplayReport::Sample& from, ReplayReport::Sample* into) {
    const int64_t running = std::max(into->running, from.running);
    if (from.used > into->used) *into = from;
    into->running = running;
  }

  void Halve() {
    std::vector<ReplayReport::Sample>& samples = report_.samples;
    for (size_t i = 0; i < samples.size(); ++i) {
      if (i % 2 == 0) {
        samples[i / 2] = samples[i];
      } else {
        Merge(samples[i], &samples[i / 2]);
      }
    }
    samples.resize((samples.size() + 1) / 2);
    report_.sample_seconds *= 2;
  }

  ReplayReport& report_;
  ReplayReport::Sample last_;
  double half_step_;
};

class Engine {
 public:
  Engine(absl::Span<const Request> requests, const ReplayOptions& options, PageManager& cache,
         ReplayReport* report)
      : requests_(requests),
        options_(options),
        cache_(cache),
        page_(cache.options().page),
        report_(*report),
        timeline_(options.step, report) {}

  absl::Status Run();

 private:
  struct Sequence {
    int32_t request = 0;    // also each token that is its own
    int64_t generated = 0;  // tokens
    int64_t left = 0;       // tokens to generate
    int64_t room = 0;       // slots of its last page without a token
    SequenceId id;
  };

  absl::Status Prepare();
  bool Idle() const { return running_.empty() && swapped_.empty() && preempted_.empty(); }
  double Arrival(size_t i) const { return requests_[order_[i]].arrival - first_arrival_; }
  double Now() const { return skipped_to_ + static_cast<double>(steps_since_) * options_.step; }
  int64_t Available() const;
  int64_t Tokens(const Sequence& s) const { return requests_[s.request].context + s.generated; }

  absl::Status SwapInAndAdmit();
  absl::StatusOr<bool> Start(Sequence* sequence);
  absl::Status Generate();
  absl::Status Preempt();
  void Measure();
  absl::Status FreeFinished();
  void Report();

  const absl::Span<const Request> requests_;
  const ReplayOptions& options_;
  PageManager& cache_;
  const int64_t page_;
  ReplayReport& report_;
  Timeline timeline_;

  std::vector<int32_t> order_;  // requests that are not rejected, by arrival
  size_t next_ = 0;             // of order_
  double first_arrival_ = 0;
  double skipped_to_ = 0;  // when the last time without requests ended
  int64_t steps_since_ = 0;

  std::vector<Sequence> running_;              // the one that was admitted last is at the end
  std::vector<Sequence> swapped_, preempted_;  // the one that is next is at the end
  // What is next does not fit before as many pages are available. It takes long to try.
  int64_t retry_at_ = 0;

  // Sums over the steps.
  int64_t sequences_sum_ = 0, pages_sum_ = 0, empty_sum_ = 0, tokens_sum_ = 0;
  int64_t tokens_ = 0;  // of the running sequences

  // Kept for their memory.
  std::vector<int32_t> prompt_;
  std::vector<PageManager::NewTokens> batch_;
  std::vector<SequenceId> ids_;
  std::vector<PageCopy> copies_;
};

absl::Status Engine::Prepare() {
  report_.requests = static_cast<int64_t>(requests_.size());
  report_.page = page_;
  report_.pages = cache_.options().pages;
  int64_t longest = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    const Request& r = requests_[i];
    if (absl::Status s = Validate(r); !s.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("request ", i, ": ", s.message()));
    }
    const int64_t tokens = r.context + r.generated, pages = (tokens + page_ - 1) / page_;
    if (pages > report_.pages) {
      if (report_.rejected++ > 0) continue;
      report_.first_rejection = absl::StrCat("request ", i, ": ", tokens, " tokens need ", pages,
                                             " pages, the pool has ", report_.pages);
      continue;
    }
    longest = std::max(longest, tokens);
    order_.push_back(static_cast<int32_t>(i));
  }
  if (options_.longest > 0 && options_.longest < longest) {
    return absl::InvalidArgumentError(absl::StrCat("longest: ", options_.longest,
                                                   " is less than the ", longest,
                                                   " tokens of the longest request"));
  }
  report_.longest = options_.longest > 0 ? options_.longest : longest;
  std::stable_sort(order_.begin(), order_.end(), [this](int32_t a, int32_t b) {
    return requests_[a].arrival < requests_[b].arrival;
  });
  if (!order_.empty()) first_arrival_ = requests_[order_[0]].arrival;
  return absl::OkStatus();
}

absl::Status Engine::Run() {
  absl::Status s = Prepare();
  constexpr int64_t kAskEvery = 256;
  for (; s.ok(); s = FreeFinished()) {
    if (Idle()) {
      if (next_ == order_.size()) break;
      if (Arrival(next_) > Now()) {
        timeline_.Add(Now(), {0, cache_.counts().evictable, 0});
        skipped_to_ = Arrival(next_);
        steps_since_ = 0;
      }
    }
    if (report_.steps % kAskEvery == 0) {
      if (options_.progress) options_.progress(report_.done + report_.rejected);
      report_.stopped = options_.stopped && options_.stopped();
      if (report_.stopped) break;
    }
    s = SwapInAndAdmit();
    if (s.ok() && running_.empty()) s = absl::InternalError("no request can run");
    if (s.ok()) s = Generate();
    if (!s.ok()) break;
    Measure();
    ++report_.steps;
    ++steps_since_;
  }
  Report();
  return s;
}

int64_t Engine::Available() const {
  const PageCounts counts = cache_.counts();
  return counts.free + counts.evictable;
}

absl::Status Engine::SwapInAndAdmit() {
  while (!swapped_.empty() && Available() >= retry_at_) {
    const absl::Status s = cache_.SwapIn({swapped_.back().id}, &copies_);
    if (absl::IsResourceExhausted(s)) {
      retry_at_ = Available() + 1;
      break;
    }
    if (!s.ok()) return s;
    running_.push_back(swapped_.back());
    tokens_ += Tokens(swapped_.back());
    swapped_.pop_back();
    retry_at_ = 0;
  }
  while (swapped_.empty() && static_cast<int64_t>(running_.size()) < cache_.options().sequences) {
    const bool again = !preempted_.empty();
    if (!again && (next_ == order_.size() || Arrival(next_) > Now())) break;
    if (Available() < retry_at_) break;
    Sequence sequence;
    if (again) {
      sequence = preempted_.back();
    } else {
      sequence.request = order_[next_];
      sequence.left = requests_[sequence.request].generated;
    }
    const absl::StatusOr<bool> fits = Start(&sequence);
    if (!fits.ok()) return fits.status();
    if (!*fits) break;
    if (again) {
      preempted_.pop_back();
    } else {
      ++next_;
    }
    running_.push_back(sequence);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Engine::Start(Sequence* sequence) {
  const int64_t context = Tokens(*sequence);
  MakeTokens(requests_[sequence->request], sequence->request, context, &prompt_);
  const auto prompt = absl::MakeConstSpan(prompt_);
  const absl::StatusOr<SequenceId> id = cache_.Begin(prompt.first(context - 1));
  if (!id.ok()) return id.status();
  const absl::StatusOr<int64_t> cached = cache_.Tokens(*id);
  if (!cached.ok()) return cached.status();
  absl::Status s = cache_.Append({{*id, prompt.subspan(*cached)}}, &copies_);
  if (absl::IsResourceExhausted(s)) {
    if (s = cache_.Free({*id}); !s.ok()) return s;
    retry_at_ = Available() + 1;
    return false;
  }
  if (s.ok()) s = cache_.Commit({*id});
  if (!s.ok()) return s;
  sequence->id = *id;
  sequence->room = (page_ - context % page_) % page_;
  tokens_ += context;
  report_.prompt_tokens += context;
  report_.cached_tokens += *cached;
  retry_at_ = 0;
  return true;
}

absl::Status Engine::Generate() {
  batch_.clear();
  for (const Sequence& s : running_) {
    if (s.left > 0) batch_.push_back({s.id, {&s.request, 1}});
  }
  absl::Status status;
  while (absl::IsResourceExhausted(status = cache_.Append(batch_, &copies_))) {
    if (batch_.back().id == running_.back().id) batch_.pop_back();
    if (status = Preempt(); !status.ok()) return status;
  }
  if (!status.ok()) return status;
  ids_.clear();
  for (Sequence& s : running_) {
    if (s.left == 0) continue;
    --s.left;
    ++s.generated;
    s.room = (s.room == 0 ? page_ : s.room) - 1;
    if (s.room == 0) ids_.push_back(s.id);  // others have no page to share yet
  }
  tokens_ += static_cast<int64_t>(batch_.size());
  report_.generated_tokens += static_cast<int64_t>(batch_.size());
  return cache_.Commit(ids_);
}

absl::Status Engine::Preempt() {
  const Sequence& last = running_.back();
  tokens_ -= Tokens(last);
  retry_at_ = 0;
  absl::Status s = cache_.SwapOut({last.id}, &copies_);
  if (s.ok()) {
    ++report_.swapped;
    swapped_.push_back(last);
  } else if (absl::IsResourceExhausted(s)) {
    ++report_.recomputed;
    preempted_.push_back(last);
    s = cache_.Free({last.id});
  }
  running_.pop_back();
  return s;
}

void Engine::Measure() {
  const PageCounts counts = cache_.counts();
  int64_t empty = 0;
  for (const Sequence& s : running_) empty += s.room;
  const auto sequences = static_cast<int64_t>(running_.size());
  const Load load = {static_cast<double>(sequences), static_cast<double>(counts.used()),
                     static_cast<double>(empty), static_cast<double>(tokens_)};
  if (load.pages > report_.peak.pages) report_.peak = load;
  if (load.sequences > report_.crowd.sequences) report_.crowd = load;
  sequences_sum_ += sequences;
  pages_sum_ += counts.used();
  empty_sum_ += empty;
  tokens_sum_ += tokens_;
  timeline_.Add(Now(), {counts.used(), counts.evictable, sequences});
  for (const PageCopy& copy : copies_) {
    report_.pages_to_host += copy.kind == PageCopy::kToHost ? 1 : 0;
    report_.pages_from_host += copy.kind == PageCopy::kFromHost ? 1 : 0;
  }
  copies_.clear();
}

absl::Status Engine::FreeFinished() {
  ids_.clear();
  for (const Sequence& s : running_) {
    if (s.left > 0) continue;
    ids_.push_back(s.id);
    tokens_ -= Tokens(s);
  }
  if (ids_.empty()) return absl::OkStatus();
  running_.erase(std::remove_if(running_.begin(), running_.end(),
                                [](const Sequence& s) { return s.left == 0; }),
                 running_.end());
  report_.done += static_cast<int64_t>(ids_.size());
  return cache_.Free(ids_);
}

void Engine::Report() {
  const auto steps = static_cast<double>(std::max<int64_t>(report_.steps, 1));
  report_.average = {
      static_cast<double>(sequences_sum_) / steps, static_cast<double>(pages_sum_) / steps,
      static_cast<double>(empty_sum_) / steps, static_cast<double>(tokens_sum_) / steps};
  report_.seconds = Now();
  const PageCounts counts = cache_.counts();
  report_.evictions = counts.evictions;
  report_.copies = counts.copies;
}

}  // namespace

absl::StatusOr<ReplayReport> Replay(absl::Span<const Request> requests,
                                    const ReplayOptions& options, PageManager& cache) {
  if (!(options.step >= 1e-6 && options.step <= 1e6)) {
    return absl::InvalidArgumentError(
        absl::StrCat("step: ", options.step, " is not in [1e-6, 1e6]"));
  }
  ReplayReport report;
  const absl::Status s = Engine(requests, options, cache, &report).Run();
  if (!s.ok()) return s;
  return report;
}

}  // namespace attnlab::paged
