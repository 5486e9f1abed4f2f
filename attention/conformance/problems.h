// Problems that find bugs: sizes at the edges of tiles, odd head dims, empty sequences, every
// mask, and the rest of what a problem can be.
#ifndef ATTENTION_CONFORMANCE_PROBLEMS_H_
#define ATTENTION_CONFORMANCE_PROBLEMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "attention/core/problem.h"
#include "attention/oracle/inputs.h"

namespace attnlab::conformance {

struct Case {
  AttentionProblem problem;
  oracle::InputOptions inputs;
  bool with_lse = true;
  int number = 0;             // its place among the cases of a suite
  bool every_config = false;  // whether all configurations of a kernel are for it, or one in turn

  // "b=1,…,seed=3,layout=odd,values=large,lse=no": all that there is to know.
  std::string ToString() const;
};

// `count` problems drawn from `seed`, each small enough for the oracle to do in a tenth of a
// second. The values of each field are dealt like cards, all of them before any comes again, so
// that a few dozen problems have every value of
//   sq, skv     0, 1, 2, tile - 1, tile, tile + 1 (of 16, 32, 64, 128), primes
//   hq / hkv    1, 2, 3, 4, 7, 8, 12, with 1, 2 and 3 KV heads
//   d, dv       1 to 512, at and off the multiples of 8 and 64; dv often another than d
//   mask        none, causal, windows of 0, a few and more keys than there are
//   scale       the default, 0, 1, small
//   softcap     none, small, usual
//   lens        fixed, packed, padded, with sequences of length 0
//   dtype, layout, values (inputs.h), with LSE or without
std::vector<Case> EdgeCases(uint64_t seed, int count);

// What chance does not find soon, by hand: one very long sequence, decoding, many sequences, all
// sequences empty, far more queries than keys and the reverse.
std::vector<Case> SpecialCases();

// For each dtype and each range of head dims that kernels have tiles for, a problem of several
// tiles of rows and of keys, with every configuration of a kernel: together they reach each of its
// tiles.
std::vector<Case> TileCases();

// What the conformance suite runs: SpecialCases(), TileCases(), EdgeCases(seed, count).
std::vector<Case> ConformanceCases(uint64_t seed = 1, int count = 320);

// A few dozen small ones, for code of older GPUs and for tools under which a GPU takes ten or fifty
// times as long: TileCases(), and of EdgeCases() so many that any two values of dtype, mask, lens
// and layout that can come together do, and so does each other thing that a problem can have, sizes
// of more than one tile and of none among them.
std::vector<Case> ReducedCases();

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_PROBLEMS_H_
