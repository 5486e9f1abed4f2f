// Problems that find bugs: sizes at the edges of tiles, odd head dims, empty sequences, every
// mask, and other edge cases.
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
  int number = 0;             // its index in the suite
  bool every_config = false;  // run all configurations of a kernel on it, or one in turn

  // The complete case in one line: "b=1,…,seed=3,layout=odd,values=large,lse=no".
  std::string ToString() const;
};

// `count` problems drawn from `seed`, each so small that the oracle takes at most a tenth of a
// second. The values of each field are dealt like cards: all of them before any comes again. A few
// dozen problems therefore have every value of
//   sq, skv     0, 1, 2, tile - 1, tile, tile + 1 (of 16, 32, 64, 128), primes
//   hq / hkv    1, 2, 3, 4, 7, 8, 12, with 1, 2 and 3 KV heads
//   d, dv       1 to 512, at and off the multiples of 8 and 64; dv often differs from d
//   mask        none, causal, windows of 0, a few, and more keys than there are
//   scale       the default, 0, 1, small
//   softcap     none, small, usual
//   lens        fixed, packed, padded, with sequences of length 0
//   dtype, layout, values (inputs.h), with LSE or without
std::vector<Case> EdgeCases(uint64_t seed, int count);

// Cases chosen by hand that chance does not find soon: one very long sequence, decoding, many
// sequences, only empty sequences, far more queries than keys and the reverse.
std::vector<Case> SpecialCases();

// For each dtype and each range of head dims that has its own tile, a problem with several tiles of
// rows and of keys. It runs with every configuration of a kernel. Together these problems reach
// every tile of a kernel.
std::vector<Case> TileCases();

// Several query tiles for each block of the largest GPU, the last of a head with few rows; and few that walk several
// tiles of keys, with large scores or a wide window.
std::vector<Case> ManyTileCases();

// Small problems with a few more query tiles than an H200 has multiprocessors, and several tiles of keys: blocks may
// share them. They run with every configuration, too.
std::vector<Case> SharedTileCases();

// Of fp8: V may be transposed by a kernel of its own, before. They run with every configuration, too.
std::vector<Case> PretransposedCases();

// Several query tiles of a head, which blocks may share copies for, over pages of keys that are shorter than a tile.
// They run with every configuration, too.
std::vector<Case> PagedTileCases();

// K and V of fp8, with scales, under 16-bit queries.
std::vector<Case> Fp8CacheCases();

// Q, K and V of fp8, with scales of heads and of blocks, for each feature of a problem.
std::vector<Case> Fp8Cases();

// Paged K and V: pages of 1 to 256 tokens, token-major and head-major, sequences that end at and
// beside the edges of pages, and pages longer than the sequences; decoding, and prefill after a
// prefix that is in the cache.
std::vector<Case> PagedCases();

// What the conformance suite runs: SpecialCases(), TileCases(), EdgeCases(seed, count),
// ManyTileCases(), Fp8CacheCases(), PagedCases(), Fp8Cases(), SharedTileCases(),
// PretransposedCases(), PagedTileCases().
std::vector<Case> ConformanceCases(uint64_t seed = 1, int count = 320);

// The case for a kernel that needs aligned rows (KernelTraits): with a layout whose rows lie at
// multiples of 16 bytes if that of the case does not.
Case WithAlignedRows(Case c);

// A few dozen small problems, for code of older GPUs and for tools that make a GPU 10 to 50 times
// slower. They are TileCases() and a selection of EdgeCases(). The selection has every possible
// pair of values of dtype, mask, lens and layout. It also has every other property of a problem,
// including sizes of more than one tile and of zero. At the end are some of PagedCases(), some of fp8,
// SharedTileCases(), and the first of PretransposedCases() and PagedTileCases().
std::vector<Case> ReducedCases();

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_PROBLEMS_H_
