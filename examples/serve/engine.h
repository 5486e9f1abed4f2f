// Continuous batching over a paged KV cache: what a serving engine does with PageManager, BlockTable,
// Append() and Forward().
//
// A step:
//   1. Admits waiting requests while there are rows and pages: Begin() finds what is cached.
//   2. Takes one token of each request that decodes, and a chunk of each that is at its prompt.
//      Append() of the manager gives them pages. If there are too few, the youngest request makes
//      room: it is swapped to the host or, without room there, starts again later.
//   3. Does the copies, sends the changes of the block table, and runs all layers. All requests, at
//      whatever point they are, are one launch of attention (lens=packed).
//   4. Commit(): what was written may now be shared.
//
// Attention and the cache are on the CPU or on a GPU. The rest of the model is on the host
// (model.h), so rows are copied to the device and back in each layer.
#ifndef EXAMPLES_SERVE_ENGINE_H_
#define EXAMPLES_SERVE_ENGINE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/attention.h"
#include "attention/core/device.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "examples/serve/model.h"
#include "paged/block_table.h"
#include "paged/page_manager.h"

namespace attnlab::serve {

struct Request {
  std::vector<int32_t> tokens;  // the prompt, and then what was generated
  int64_t prompt = 0;           // tokens of the prompt
  int64_t generate = 0;
};

struct EngineOptions {
  paged::PageManager::Options cache;
  int64_t chunk = 32;  // tokens of a prompt in one step
  Device device;
};

struct EngineCounts {
  int64_t steps = 0, tokens = 0;  // tokens: that went through the model
  int64_t swapped = 0, restarted = 0;
  int64_t most_pages = 0;
};

class Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const Model& model,
                                                        const EngineOptions& options);

  // InvalidArgument if the request could never run.
  absl::Status Add(Request request);

  // One step; all requests are done if nothing is left.
  absl::Status Step();
  bool Done() const { return waiting_.empty() && running_.empty() && swapped_.empty(); }

  const std::vector<Request>& finished() const { return finished_; }
  const EngineCounts& counts() const { return counts_; }
  const paged::PageManager& cache() const { return *cache_; }

 private:
  struct Running {
    Request request;
    paged::SequenceId id;
    int64_t done = 0;  // tokens whose K and V are in the cache
  };
  // K and V of a layer.
  struct LayerMemory {
    Buffer k, v, host_k, host_v;
  };

  Engine(const Model& model, const EngineOptions& options) : model_(model), options_(options) {}
  absl::Status Allocate();

  absl::Status Admit();
  // Gives pages to the tokens of this step, making room if it must.
  absl::Status TakePages();
  absl::Status MakeRoom();
  absl::Status RunLayers();
  absl::Status CopyToLayers();

  const Model& model_;
  const EngineOptions options_;
  std::unique_ptr<paged::PageManager> cache_;
  std::unique_ptr<paged::BlockTable> table_;
  Plan plan_;
  AttentionTensors tensors_;
  ConstTensorView new_k_, new_v_;
  std::vector<LayerMemory> layers_;
  Buffer workspace_, q_, o_, k_, v_, offsets_;
  std::deque<Request> waiting_;
  std::vector<Running> running_, swapped_;  // the oldest first
  std::vector<int64_t> chunks_;             // tokens of each running request in this step
  std::vector<paged::PageCopy> copies_;
  std::vector<Request> finished_;
  EngineCounts counts_;
};

}  // namespace attnlab::serve

#endif  // EXAMPLES_SERVE_ENGINE_H_
