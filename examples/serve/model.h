// A small language model with random weights, so that a server has something to serve. Its matrices
// are multiplied on the host, one token at a time; attention is the server's.
#ifndef EXAMPLES_SERVE_MODEL_H_
#define EXAMPLES_SERVE_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace attnlab::serve {

class Model {
 public:
  static constexpr int64_t kVocabulary = 256, kLayers = 2, kDim = 128;
  static constexpr int64_t kHq = 4, kHkv = 2, kD = 32;

  explicit Model(uint64_t seed);

  // The state of a token between layers: kDim numbers.
  void Embed(int32_t token, float* x) const;

  // What attention of a layer needs of a token: kHq kD, kHkv kD and kHkv kD numbers.
  void Project(int64_t layer, const float* x, float* q, float* k, float* v) const;

  // The rest of the layer: adds what attention gave, kHq kD numbers, and the feed-forward network.
  void Finish(int64_t layer, const float* attended, float* x) const;

  // The most likely next token.
  int32_t Next(const float* x) const;

 private:
  struct Layer {
    std::vector<float> q, k, v, o, up, down;
  };
  std::vector<float> embedding_, output_;
  std::vector<Layer> layers_;
};

}  // namespace attnlab::serve

#endif  // EXAMPLES_SERVE_MODEL_H_
