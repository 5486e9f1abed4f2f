// The cases of the contract on traffic (docs/profiling.md): traffic_contract_test holds the models
// to the counters of a GPU, traffic_cases_test says which of them the models know.
#ifndef PROFILING_TRAFFIC_CASES_H_
#define PROFILING_TRAFFIC_CASES_H_

#include <cstdint>
#include <ostream>

#include "attention/problem.h"

namespace attnlab::profiling {

struct TrafficCase {
  const char* kernel;
  const char* problem;
};

inline std::ostream& operator<<(std::ostream& out, const TrafficCase& c) {
  return out << c.kernel << " on " << c.problem;
}

// What the contract lets a kernel read: what its model says, with 5 % and 1 MiB to either side.
inline Traffic::Between ContractOf(const Traffic& model) {
  const Traffic::Between reads = model.Reads();
  return {static_cast<int64_t>(0.95 * static_cast<double>(reads.least)) - (1 << 20),
          static_cast<int64_t>(1.05 * static_cast<double>(reads.most)) + (1 << 20)};
}

// Everything is read and written once: what a problem needs fits L2 with room to spare.
inline constexpr TrafficCase kInL2[] = {
    {"baseline", "hq=12,sq=384,d=64,dtype=bf16,mask=causal"},
    {"baseline", "b=2,hq=8,hkv=2,sq=300,skv=500,d=128,dtype=fp32"},
    {"fa1", "hq=12,sq=1500,d=64,dtype=bf16,mask=causal"},
    {"fa1", "b=3,hq=8,hkv=2,sq=1000,d=96,dtype=fp32"},
    {"fa2", "hq=12,sq=1500,d=64,dtype=bf16,mask=causal"},
    {"fa2", "b=3,hq=8,hkv=2,sq=1000,d=96,dtype=fp16"},
    {"fa2", "b=2,hq=6,sq=1200,d=64,dtype=fp32,mask=causal"},
    // K and V under way: 29 % and 44 % of what L2 has room for; of FA2's groups of two heads 59 %.
    {"fa1", "hq=16,sq=3000,d=64,dtype=bf16"},
    {"fa1", "hq=15,sq=4900,d=64,dtype=bf16,mask=causal"},
    {"fa2", "hq=4,sq=18000,d=128,dtype=bf16,mask=causal"},
};

// Far beyond: S and P of the baseline, which grow with the square of the length; K and V of FA1's
// heads, of which each tile reads what it sees; and FA2, which reads them once all the same.
inline constexpr TrafficCase kBeyondL2[] = {
    {"baseline", "hq=12,sq=3000,d=64,dtype=bf16,mask=causal"},
    {"baseline", "hq=20,hkv=5,sq=2500,d=128,dtype=fp16"},
    {"baseline", "b=3,hq=8,sq=2200,d=64,dtype=fp32"},
    {"baseline", "hq=2,sq=20000,d=64,dtype=bf16"},  // rows that are read twice
    {"fa1", "b=5,hq=20,sq=5000,d=64,dtype=bf16"},
    {"fa1", "b=5,hq=28,sq=6000,d=64,dtype=bf16,mask=causal"},
    {"fa1", "b=4,hq=40,sq=3000,d=128,dtype=fp32,mask=causal"},
    {"fa1", "b=4,hq=40,sq=7000,d=64,dtype=bf16,mask=window:3000:0"},
    {"fa2", "b=5,hq=20,sq=5000,d=64,dtype=bf16"},
    {"fa2", "b=5,hq=28,sq=6000,d=64,dtype=bf16,mask=causal"},
    {"fa2", "b=4,hq=40,sq=3000,d=128,dtype=fp16,mask=causal"},
    {"fa2", "b=4,hq=40,hkv=8,sq=3000,d=128,dtype=bf16,mask=none"},
    {"fa2", "b=4,hq=40,sq=3000,d=128,dtype=bf16,mask=none"},
    {"fa2", "b=2,hq=30,sq=10000,d=128,dtype=bf16,mask=causal"},
    {"fa2", "b=2,hq=20,sq=7000,d=256,dtype=bf16,mask=causal"},
    {"fa2", "hq=24,sq=12000,d=64,dtype=bf16,mask=window:2000:0"},
    // On CUDA cores the first keys of all heads once more, for the short blocks at the end.
    {"fa2", "b=4,hq=31,sq=2500,d=32,dtype=fp32,mask=causal"},
    {"fa2", "b=4,hq=33,sq=2100,d=64,dtype=fp32,mask=causal"},
    {"fa2", "b=3,hq=20,sq=2500,d=96,dtype=fp32,mask=causal"},
    {"fa2", "b=3,hq=40,sq=2300,d=192,dtype=fp32,mask=causal"},
    {"fa2", "b=2,hq=45,sq=3500,d=256,dtype=fp32,mask=causal"},
};

// One query: K and V are read once, whatever the kernel.
inline constexpr TrafficCase kDecode[] = {
    {"fa1", "b=30,hq=32,hkv=8,sq=1,skv=5000,d=128,dtype=bf16"},
    {"fa2", "b=30,hq=32,hkv=8,sq=1,skv=5000,d=128,dtype=bf16"},
};

// Where the models say that they do not know: about as much as L2 holds, and blocks that may get
// out of step.
inline constexpr TrafficCase kInDoubt[] = {
    {"fa1", "hq=16,sq=8100,d=64,dtype=bf16"},               // 79 %
    {"fa1", "hq=24,sq=4100,d=128,dtype=bf16"},              // 120 %
    {"baseline", "hq=16,sq=800,d=64,dtype=bf16"},           // S alone
    {"baseline", "hq=2,sq=32768,d=64,dtype=bf16"},          // rows under way: 83 %
    {"fa2", "hq=4,sq=27000,d=128,dtype=bf16,mask=causal"},  // two heads of 44 %
    {"fa2", "hq=4,sq=48000,d=128,dtype=bf16,mask=causal"},  // a head of 78 %
    {"fa2", "hq=4,sq=70000,d=128,dtype=bf16"},              // a head of 114 %
    {"fa1", "b=3,hq=44,hkv=11,sq=9000,d=128,dtype=bf16"},   // four heads of a group
};

}  // namespace attnlab::profiling

#endif  // PROFILING_TRAFFIC_CASES_H_
