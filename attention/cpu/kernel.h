// "cpu": tiled attention with the online softmax (Dao et al., "FlashAttention", 2022), on the
// threads and the vector instructions of the processor. It is the default if there is no GPU.
//
// How it works. The rows of all query heads that share a KV head are cut into tiles. One thread
// computes a tile from start to end:
//
//   schedule     tiles and, for decoding, chunks of keys, for any number of threads
//   panels-inl   a tile of many rows: Sᵀ = K Qᵀ, softmax, O += P V, for each 96 keys or so
//   few_rows-inl a tile of up to 4 rows: dot products, at the speed of memory
//   matmul-inl   the two products, 24 sums in registers
//   softmax-inl  maxima, 2^x and sums; masks by row
//   exp-inl      2^x and tanh
//   convert-inl  fp16, bf16 and fp8 to floats, and back; packing
//   rows         where the rows of queries and keys lie; pages
//   tile         the above for each instruction set, chosen at run time
//
// Everything between load and store is fp32, including P, unless Q is fp8. Scores are in base 2:
// Q is multiplied once by scale * log2(e), and the result must stay within the range of a float. The
// scale of fp8 K is part of that factor, and the scale of V is part of the one that divides O. Scales
// of blocks of keys are applied to scores and to weights instead.
//
// With fp8 Q the arithmetic is that of a GPU's fp8 tensor cores, for studies of accuracy: P is rounded
// to fp8_e4m3 too, as multiples of 1/256 of what the row's largest score gives, and only the sum has it
// unrounded.
//
// Pages cut the keys into runs of rows that lie one stride apart; without pages there is one run. All
// else is the same, so pages do not change a bit of the result.
//
// Where the time goes. A vector of 16 scores costs d + dv vector multiply-adds in the products and
// about 14 vector instructions in the softmax. Measured with d = dv = 64 and 1024 keys under
// AVX-512: 41 % scores, 43 % outputs, 11 % softmax, 5 % packing and bookkeeping. The products run
// at about nine tenths of the multiply-add units' peak. K is read in place and never transposed,
// because the kernel computes Sᵀ. Copying or converting a row of V costs two instructions per
// vector, where the products have tile_q multiply-adds. Decoding reads K and V once, in place.
//
// Configuration: threads (default: the device's), tile_q (query rows per tile; default 64 to 256,
// so that there is work for all threads), tile_kv (keys at a time; default 96). The result's bits
// depend on tile_kv, not on the others.
#ifndef ATTENTION_CPU_KERNEL_H_
#define ATTENTION_CPU_KERNEL_H_

#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"

namespace attnlab::cpu {

// FLOPs are the multiply-adds of the visible pairs. Q is read once and O written once. Each tile of
// rows reads the K and V that it sees once (and the page table, which counts once in all). But if the K and V that all threads work on at a time
// fit the last-level cache together, they are read only once in all. The states of chunks are
// written and read once.
absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& problem, const DeviceInfo& device,
                                        const LaunchConfig& config);

}  // namespace attnlab::cpu

#endif  // ATTENTION_CPU_KERNEL_H_
