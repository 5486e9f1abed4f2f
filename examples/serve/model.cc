#include "examples/serve/model.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace attnlab::serve {
namespace {

constexpr int64_t kInner = 2 * Model::kDim;

std::vector<float> RandomMatrix(int64_t rows, int64_t columns, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(columns)));
  std::vector<float> matrix(rows * columns);
  for (float& x : matrix) x = normal(random);
  return matrix;
}

// y = matrix x; `rows` follows from the matrix.
void Multiply(const std::vector<float>& matrix, const float* x, int64_t columns, float* y) {
  for (size_t row = 0; row * columns < matrix.size(); ++row) {
    float sum = 0;
    for (int64_t i = 0; i < columns; ++i) sum += matrix[row * columns + i] * x[i];
    y[row] = sum;
  }
}

std::vector<float> Normalized(const float* x) {
  float squares = 1e-6f;
  for (int64_t i = 0; i < Model::kDim; ++i) squares += x[i] * x[i] / Model::kDim;
  std::vector<float> y(x, x + Model::kDim);
  for (float& value : y) value /= std::sqrt(squares);
  return y;
}

}  // namespace

Model::Model(uint64_t seed) {
  std::mt19937_64 random(seed);
  embedding_ = RandomMatrix(kVocabulary, kDim, random);
  output_ = RandomMatrix(kVocabulary, kDim, random);
  for (int64_t i = 0; i < kLayers; ++i) {
    Layer layer;
    layer.q = RandomMatrix(kHq * kD, kDim, random);
    layer.k = RandomMatrix(kHkv * kD, kDim, random);
    layer.v = RandomMatrix(kHkv * kD, kDim, random);
    layer.o = RandomMatrix(kDim, kHq * kD, random);
    layer.up = RandomMatrix(kInner, kDim, random);
    layer.down = RandomMatrix(kDim, kInner, random);
    layers_.push_back(std::move(layer));
  }
}

void Model::Embed(int32_t token, float* x) const {
  std::copy_n(&embedding_[token * kDim], kDim, x);
}

void Model::Project(int64_t layer, const float* x, float* q, float* k, float* v) const {
  const std::vector<float> y = Normalized(x);
  Multiply(layers_[layer].q, y.data(), kDim, q);
  Multiply(layers_[layer].k, y.data(), kDim, k);
  Multiply(layers_[layer].v, y.data(), kDim, v);
}

void Model::Finish(int64_t layer, const float* attended, float* x) const {
  float added[kDim], inner[kInner];
  Multiply(layers_[layer].o, attended, kHq * kD, added);
  for (int64_t i = 0; i < kDim; ++i) x[i] += added[i];
  Multiply(layers_[layer].up, Normalized(x).data(), kDim, inner);
  for (float& value : inner) value = std::max(value, 0.0f);
  Multiply(layers_[layer].down, inner, kInner, added);
  for (int64_t i = 0; i < kDim; ++i) x[i] += added[i];
}

int32_t Model::Next(const float* x) const {
  float scores[kVocabulary];
  Multiply(output_, Normalized(x).data(), kDim, scores);
  return static_cast<int32_t>(std::max_element(scores, scores + kVocabulary) - scores);
}

}  // namespace attnlab::serve
