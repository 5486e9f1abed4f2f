// Serves a batch of requests with continuous batching over a paged KV cache:
//
//   ./bazelw run //examples/serve                                on the CPU
//   ./bazelw run //examples/serve -- --device=cuda:0             on a GPU
//   ./bazelw run //examples/serve -- --pages=20 --host-pages=20  with too few pages for all at once
//
// The requests share a system prompt. The model is small and its weights are random (model.h); what
// is to be seen is the cache. With --check, each request is computed again alone, in a cache of its
// own, and must give the same tokens.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "examples/serve/engine.h"
#include "examples/serve/model.h"
#include "tools/lib/arguments.h"

namespace attnlab::serve {
namespace {

struct Flags {
  int64_t requests = 32, system = 96, prompt = 40, generate = 48;
  int64_t pages = 256, page = 16, host_pages = 0, rows = 8, chunk = 32;
  std::string device = "cpu";
  bool check = false;
};

std::vector<Request> MakeRequests(const Flags& f) {
  std::mt19937_64 random(7);
  const auto draw = [&](int64_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % Model::kVocabulary);
    return tokens;
  };
  const std::vector<int32_t> system = draw(f.system);
  std::vector<Request> requests;
  for (int64_t i = 0; i < f.requests; ++i) {
    Request request;
    request.tokens = system;
    for (const int32_t token : draw(1 + random() % f.prompt)) request.tokens.push_back(token);
    request.generate = 1 + static_cast<int64_t>(random() % f.generate);
    requests.push_back(std::move(request));
  }
  return requests;
}

absl::Status RunAll(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& request : requests) {
    if (absl::Status s = engine.Add(request); !s.ok()) return s;
  }
  while (!engine.Done()) {
    if (absl::Status s = engine.Step(); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// Computes each finished request alone.
absl::Status Check(const Model& model, EngineOptions options, const Engine& engine) {
  options.cache.sequences = 1;
  options.cache.prefix_caching = false;
  for (const Request& done : engine.finished()) {
    Request request = done;
    request.tokens.resize(done.prompt);
    absl::StatusOr<std::unique_ptr<Engine>> alone = Engine::Create(model, options);
    if (!alone.ok()) return alone.status();
    if (absl::Status s = RunAll(**alone, {request}); !s.ok()) return s;
    if ((*alone)->finished()[0].tokens != done.tokens) {
      return absl::InternalError("check: a request gives other tokens alone");
    }
  }
  return absl::OkStatus();
}

// Checks what the parser did not.
absl::Status CheckFlags(const Flags& f, Device* device) {
  if ((f.page & (f.page - 1)) != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("--page: %d is not a power of two", f.page));
  }
  const absl::StatusOr<Device> parsed = ParseDevice(f.device);
  if (!parsed.ok()) return parsed.status();
  *device = *parsed;
  return absl::OkStatus();
}

absl::Status Main(const Flags& f, Device device) {
  EngineOptions options;
  options.cache.pages = f.pages;
  options.cache.page = f.page;
  options.cache.host_pages = f.host_pages;
  options.cache.sequences = f.rows;
  options.cache.most_tokens = f.system + f.prompt + f.generate;
  options.chunk = f.chunk;
  options.device = device;
  const Model model(/*seed=*/1);
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(model, options);
  if (!engine.ok()) return engine.status();
  const std::vector<Request> requests = MakeRequests(f);
  const auto start = std::chrono::steady_clock::now();
  if (absl::Status s = RunAll(**engine, requests); !s.ok()) return s;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  const EngineCounts& counts = (*engine)->counts();
  const paged::PageCounts cache = (*engine)->cache().counts();
  std::cout
      << absl::StreamFormat("requests          %d\n", (*engine)->finished().size())
      << absl::StreamFormat("steps             %d in %.2f s\n", counts.steps, seconds.count())
      << absl::StreamFormat(
             "tokens            %d through the model, %d found in the cache (%.0f %% of prompts)\n",
             counts.tokens, cache.cached_tokens,
             100.0 * static_cast<double>(cache.cached_tokens) /
                 static_cast<double>(std::max<int64_t>(1, cache.prompt_tokens)))
      << absl::StreamFormat("pages             at most %d of %d in use, %d evicted, %d copied\n",
                            counts.most_pages, cache.pages, cache.evictions, cache.copies)
      << absl::StreamFormat("out of pages      %d swapped out, %d started again\n", counts.swapped,
                            counts.restarted);
  if (f.check) {
    if (absl::Status s = Check(model, options, **engine); !s.ok()) return s;
    std::cout << "check             every request gives the same tokens alone\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace attnlab::serve

int main(int argc, char** argv) {
  attnlab::serve::Flags f;
  attnlab::ArgumentParser parser("serve", "Serves requests from a paged KV cache.");
  parser.AddGroup("Requests");
  parser.AddInteger("requests", "N", &f.requests, 1, 1'000'000, "how many [32]");
  parser.AddInteger("system", "N", &f.system, 0, 1'000'000, "tokens that all share [96]");
  parser.AddInteger("prompt", "N", &f.prompt, 1, 1'000'000, "most tokens of its own [40]");
  parser.AddInteger("generate", "N", &f.generate, 1, 1'000'000, "most tokens to generate [48]");
  parser.AddGroup("Cache and engine");
  parser.AddInteger("pages", "N", &f.pages, 1, 1 << 20, "pages of the cache [256]");
  parser.AddInteger("page", "N", &f.page, 1, 256, "tokens per page, a power of two [16]");
  parser.AddInteger("host-pages", "N", &f.host_pages, 0, 1 << 20, "pages on the host [0]");
  parser.AddInteger("rows", "N", &f.rows, 1, 1024, "requests that run at a time [8]");
  parser.AddInteger("chunk", "N", &f.chunk, 1, 4096, "tokens of a prompt in one step [32]");
  parser.AddString("device", "D", &f.device, "cpu, or cuda:N [cpu]");
  parser.AddBool("check", &f.check, "compute each request again alone, and compare [false]");
  absl::Status s = parser.Parse(std::vector<std::string>(argv + 1, argv + argc));
  if (s.ok() && parser.help_wanted()) {
    std::cout << parser.Help();
    return 0;
  }
  attnlab::Device device;
  if (s.ok()) s = attnlab::serve::CheckFlags(f, &device);
  const bool usage = !s.ok();
  if (s.ok()) s = attnlab::serve::Main(f, device);
  if (s.ok()) return 0;
  std::cerr << "serve: " << s.message() << "\n";
  return usage ? 2 : 1;
}
