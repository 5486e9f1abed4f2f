// Attention in a few lines: one problem, its tensors, one call.
#include <iostream>
#include <vector>

#include "attention/attention.h"

int main() {
  const auto p = attnlab::AttentionProblem::Parse("hq=8,sq=512,d=64,dtype=fp32,mask=causal");
  if (!p.ok()) return std::cerr << p.status() << "\n", 1;
  std::vector<float> q(512 * 8 * 64, 0.5f), k(q), v(q), o(q.size());  // [batch, seq, head, dim]
  const auto view = [&](std::vector<float>& x) {
    return attnlab::BshdView(x.data(), p->dtype, attnlab::Device::Cpu(), p->b, p->sq, p->hq, p->d);
  };
  attnlab::AttentionTensors tensors;
  tensors.q = view(q), tensors.k = view(k), tensors.v = view(v), tensors.o = view(o);
  const absl::Status done = attnlab::ForwardOnce(*p, tensors);
  std::cout << done << ", o[0] = " << o[0] << "\n";  // OK, o[0] = 0.5
  return done.ok() ? 0 : 1;
}
