// Runs a problem with this project's kernel and with attnlab's oracle, and prints the largest
// difference.
//
//   bazel run //:compare -- b=2,hq=4,hkv=2,sq=100,skv=120,d=64,dtype=fp32,mask=causal
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/attention.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"

namespace {

std::vector<float> Random(int64_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

absl::StatusOr<float> LargestDifference(const attnlab::AttentionProblem& p) {
  const attnlab::Device cpu = attnlab::Device::Cpu();
  const std::vector<float> q = Random(p.b * p.sq * p.hq * p.d, 1);
  const std::vector<float> k = Random(p.b * p.skv * p.hkv * p.d, 2);
  const std::vector<float> v = Random(p.b * p.skv * p.hkv * p.dv, 3);
  std::vector<float> mine(p.b * p.sq * p.hq * p.dv);
  std::vector<float> oracle(mine.size());

  attnlab::AttentionTensors tensors;
  tensors.q = attnlab::BshdView(q.data(), p.dtype, cpu, p.b, p.sq, p.hq, p.d);
  tensors.k = attnlab::BshdView(k.data(), p.dtype, cpu, p.b, p.skv, p.hkv, p.d);
  tensors.v = attnlab::BshdView(v.data(), p.dtype, cpu, p.b, p.skv, p.hkv, p.dv);
  tensors.o = attnlab::BshdView(mine.data(), p.dtype, cpu, p.b, p.sq, p.hq, p.dv);
  if (absl::Status s = attnlab::ForwardOnce(p, tensors, "two_pass"); !s.ok()) return s;
  tensors.o.data = oracle.data();
  if (absl::Status s = attnlab::ForwardOnce(p, tensors, "reference"); !s.ok()) return s;

  float largest = 0;
  for (size_t i = 0; i < mine.size(); ++i) {
    const float difference = std::abs(mine[i] - oracle[i]);
    if (!(difference <= largest)) largest = difference;  // keeps NaN
  }
  return largest;
}

}  // namespace

int main(int argc, char** argv) {
  const char* line =
      argc > 1 ? argv[1] : "b=2,hq=4,hkv=2,sq=100,skv=120,d=64,dtype=fp32,mask=causal";
  const absl::StatusOr<attnlab::AttentionProblem> problem = attnlab::AttentionProblem::Parse(line);
  if (!problem.ok()) {
    std::cerr << problem.status() << "\n";
    return 2;
  }
  const absl::StatusOr<float> difference = LargestDifference(*problem);
  if (!difference.ok()) {
    std::cerr << difference.status() << "\n";
    return 2;
  }
  std::cout << problem->ToString() << ": two_pass differs from the oracle by at most "
            << *difference << "\n";
  return *difference <= 1e-5f ? 0 : 1;
}
