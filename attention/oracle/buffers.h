// Memory that shows what a kernel does with it: filled with poison before a run, surrounded by
// fences, and checked after.
//
// With bare_memory.h there are no fences, and poison only where the kernel must not write.
//
// Poison is a NaN with bits that no arithmetic gives. An element that still has these bits was not
// written, and a place outside the tensor that has other bits was. The inputs' NaNs (inputs.h) have
// different bits, so the two can be told apart.
#ifndef ATTENTION_ORACLE_BUFFERS_H_
#define ATTENTION_ORACLE_BUFFERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "attention/oracle/layout.h"
#include "attention/oracle/reference.h"

namespace attnlab::oracle {

// A NaN of fp16 and of bf16; two in a row are a NaN of fp32. Signalling, except in fp16.
constexpr uint16_t kPoison = 0x7FA5;
// Workspace content for a second run: small finite numbers, which are out of range as indices.
constexpr uint16_t kOtherPoison = 0x3C3C;

constexpr int64_t kFence = 16384;  // bytes of poison on each side

// Bytes [begin, end).
struct ByteRange {
  int64_t begin, end;
};

// Scratch memory between fences.
class FencedBuffer {
 public:
  static absl::StatusOr<FencedBuffer> Make(Device device, int64_t bytes);

  void* data();  // aligned to 256 bytes
  int64_t bytes() const { return bytes_; }
  int64_t fence() const { return fence_; }  // bytes on each side: kFence, or 0

  // Fills the buffer with `content`, and its fences with kPoison.
  absl::Status Poison(uint16_t content = kPoison);

  // Allocates it again and poisons everything except these ranges, which stay uninitialised. The
  // ranges are in order and do not overlap.
  absl::Status Renew(absl::Span<const ByteRange> unwritten);

  // The whole buffer, fences included, as 16-bit words.
  absl::StatusOr<std::vector<uint16_t>> ToHost() const;

  // "", or which byte outside was written: "workspace: writes 4 bytes beyond its end of 1000".
  absl::StatusOr<std::string> FenceFault(const std::string& name) const;

 private:
  Buffer buffer_;
  int64_t bytes_ = 0;
  int64_t fence_ = 0;
};

// O and LSE of one run, on the host.
struct HostOutputs {
  std::vector<uint16_t> o_storage, lse_storage;  // with their fences
  TensorView o, lse;                             // point into these; lse.data is null without LSE

  HostOutputs() = default;
  HostOutputs(HostOutputs&&) = default;
  HostOutputs& operator=(HostOutputs&&) = default;
  HostOutputs(const HostOutputs&) = delete;
};

// O and LSE for a problem, in device memory.
class Outputs {
 public:
  // `inputs` determines shapes and device.
  static absl::StatusOr<Outputs> Make(const AttentionProblem& problem,
                                      const AttentionTensors& inputs, Layout layout, bool with_lse);

  // `inputs` with these outputs.
  AttentionTensors Attach(AttentionTensors inputs);

  // Poisons everything. With bare memory, allocates it again and poisons all but the rows in use.
  // `host_inputs` gives the lengths.
  absl::Status Prepare(const AttentionProblem& problem, const AttentionTensors& host_inputs);
  absl::StatusOr<HostOutputs> ToHost() const;

 private:
  FencedBuffer o_, lse_;
  TensorView o_view_, lse_view_;
};

// Every fault in what a kernel wrote, one line each: rows in use that it did not write, and writes
// where it must not write (fences, gaps between strides, rows that no sequence uses). Empty if
// there is none. `host_inputs` gives the lengths.
std::string WriteFaults(const AttentionProblem& problem, const AttentionTensors& host_inputs,
                        const HostOutputs& outputs);

// The results of the rows, widened to double.
Result ValuesOf(const AttentionProblem& problem, const AttentionTensors& host_inputs,
                const HostOutputs& outputs, absl::Span<const Row> rows);

// "", or the first of the rows whose bits differ between two runs, with both values. Compares LSE
// only if both runs have it.
std::string BitDifference(const AttentionProblem& problem, const AttentionTensors& host_inputs,
                          const HostOutputs& a, const HostOutputs& b, absl::Span<const Row> rows);

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_BUFFERS_H_
