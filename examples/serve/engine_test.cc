#include "examples/serve/engine.h"

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/serve/model.h"
#include "gtest/gtest.h"

namespace attnlab::serve {
namespace {

// Requests that share a beginning, served with so many pages.
std::unique_ptr<Engine> Serve(const Model& model, int64_t pages, int64_t host_pages, int64_t rows,
                              int first = 0, int last = 6) {
  EngineOptions options;
  options.cache.pages = pages;
  options.cache.page = 4;
  options.cache.host_pages = host_pages;
  options.cache.sequences = rows;
  options.cache.most_tokens = 64;
  options.chunk = 7;
  std::unique_ptr<Engine> engine = Engine::Create(model, options).value();
  for (int i = first; i < last; ++i) {
    Request request;
    for (int32_t t = 0; t < 20; ++t) request.tokens.push_back(t < 10 ? t : t + 10 * i);
    request.generate = 12 + i;
    EXPECT_TRUE(engine->Add(request).ok());
  }
  for (int step = 0; !engine->Done() && step < 10000; ++step) {
    const absl::Status s = engine->Step();
    EXPECT_TRUE(s.ok()) << s;
    EXPECT_EQ(engine->cache().Inconsistency(), "");
    if (!s.ok()) break;
  }
  EXPECT_EQ(engine->finished().size(), static_cast<size_t>(last - first));
  EXPECT_EQ(engine->cache().counts().used(), 0);
  return engine;
}

std::set<std::vector<int32_t>> TokensOf(const Engine& engine) {
  std::set<std::vector<int32_t>> tokens;
  for (const Request& request : engine.finished()) tokens.insert(request.tokens);
  return tokens;
}

TEST(Engine, TokensDependOnNeitherCompanyNorMemory) {
  const Model model(1);
  std::set<std::vector<int32_t>> alone;
  for (int i = 0; i < 6; ++i) {
    alone.merge(TokensOf(*Serve(model, 16, 0, 1, i, i + 1)));
  }
  const std::unique_ptr<Engine> ample = Serve(model, 100, 0, 6);
  EXPECT_EQ(TokensOf(*ample), alone);

  const std::unique_ptr<Engine> restarting = Serve(model, 16, 0, 6);
  EXPECT_EQ(TokensOf(*restarting), alone);
  EXPECT_GT(restarting->counts().restarted, 0);
  EXPECT_GT(restarting->cache().counts().cached_tokens, 0);

  const std::unique_ptr<Engine> swapping = Serve(model, 16, 100, 6);
  EXPECT_EQ(TokensOf(*swapping), alone);
  EXPECT_GT(swapping->counts().swapped, 0);
  EXPECT_EQ(swapping->counts().restarted, 0);
}

TEST(Engine, DeclinesWhatCannotRun) {
  const Model model(1);
  EngineOptions options;
  options.cache.pages = 2;
  options.cache.page = 4;
  const std::unique_ptr<Engine> engine = Engine::Create(model, options).value();
  EXPECT_EQ(
      engine->Add({{1, 2, 3, 4, 5}, 0, 4}).message(),
      "request: 5 and 4 tokens; must be 1 or more each, and at most 8 together, with 2 pages of 4 "
      "tokens");
  EXPECT_EQ(engine->Add({{1, 256}, 0, 1}).message(), "request: token 256 is not in [0, 256)");
}

}  // namespace
}  // namespace attnlab::serve
