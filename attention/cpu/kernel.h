// "cpu": tiled attention with the online softmax (Dao et al., "FlashAttention", 2022), on the
// threads and the vector instructions of the processor. The default where there is no GPU.
//
// How it goes. The rows of all query heads that share a KV head are cut into tiles; a tile is one
// thread's work, start to end:
//
//   schedule     tiles and, for decoding, chunks of keys; which thread does what does not matter
//   panels-inl   a tile of many rows: Sᵀ = K Qᵀ, softmax, O += P V, for each 96 keys or so
//   few_rows-inl a tile of up to 4 rows: dot products, at the speed of memory
//   matmul-inl   the two products, 24 sums in registers
//   softmax-inl  maxima, 2^x and sums; masks by row
//   exp-inl      2^x and tanh
//   convert-inl  fp16 and bf16 to floats and back; packing
//   tile         the above for each instruction set, chosen at run time
//
// Everything between load and store is fp32, P too, whatever the dtype. Scores are kept in units
// of log2: Q is multiplied by scale * log2(e) once, which must stay within the range of a float.
//
// Where the time goes. A vector of 16 scores costs d + dv multiply-adds of vectors in the products
// and about 14 vector instructions in the softmax. Measured with d = dv = 64 and 1024 keys under
// AVX-512: 41 % scores, 43 % outputs, 11 % softmax, 5 % packing and bookkeeping; the blocks of the
// products run at about nine tenths of the peak of the multiply-add units. K is read in place and
// never transposed, because Sᵀ is what is computed; copying a row of V, or converting one, costs
// two instructions a vector where the products have tile_q multiply-adds. Decoding reads K and V
// once, where they lie.
//
// Configuration: threads (default: the device's), tile_q (query rows a tile; default 64 to 256,
// so that there is work for all threads), tile_kv (keys at a time, 96). The bits of the result
// depend on tile_kv, not on the others.
#ifndef ATTENTION_CPU_KERNEL_H_
#define ATTENTION_CPU_KERNEL_H_

#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"

namespace attnlab::cpu {

// Multiply-adds of the visible pairs. Q is read once and O written once. K and V are read once by
// each tile of rows that sees them, unless those that the threads work on at a time fit the last
// level of cache together: then once. States of chunks are written and read once.
absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& problem, const DeviceInfo& device,
                                        const LaunchConfig& config);

}  // namespace attnlab::cpu

#endif  // ATTENTION_CPU_KERNEL_H_
