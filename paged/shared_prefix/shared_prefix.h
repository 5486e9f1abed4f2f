// Decoding where sequences of a batch share their first pages: K and V of the prefix are read once for
// all of them, and not once for each.
//
//   const auto prefixes = cache.SharedPrefixes(ids);      // ids[i] is sequence i of the batch
//   absl::StatusOr<SharedPrefixPlan> plan = SharedPrefixPlan::Make(problem, device, *prefixes);
//   absl::Status s = plan->Run(t, {scratch.data(), scratch.bytes()}, stream);
//
// The queries of all members of a prefix are one long query over the prefix. Its keys are divided into
// chunks, as many as keep the device busy, and the chunks are the sequences of one call. Each member's
// own keys are another call. A last launch merges the parts of each row by their LSE
// (docs/split_k.md). O of a part is rounded to the dtype once more.
#ifndef PAGED_SHARED_PREFIX_SHARED_PREFIX_H_
#define PAGED_SHARED_PREFIX_SHARED_PREFIX_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention/attention.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "paged/page_manager.h"

namespace attnlab::paged {

class SharedPrefixPlan {
 public:
  // `problem`: of the whole batch; paged, lens = fixed or padded, mask none or causal. `prefixes`: their
  // members are indices into the batch, that is, rows of the page table. No sequence is in two. Only
  // neighbours in the batch share: of other members each is computed as usual.
  //
  // InvalidArgument names what does not fit; the errors of MakePlan().
  static absl::StatusOr<SharedPrefixPlan> Make(const AttentionProblem& problem, Device device,
                                               absl::Span<const SharedPrefix> prefixes);

  int64_t WorkspaceBytes() const { return workspace_bytes_; }

  // As Forward(): on a GPU asynchronous on the stream, allocates nothing, can be captured. Lengths and
  // table may change between calls. At each call, of the members of a prefix
  //   - the table's first `pages` entries are the same;
  //   - each has kv_len of at least the prefix and its q_len;
  //   - k_scale and v_scale are the same.
  // This is not checked: the first member's entries and scales are used for all.
  absl::Status Run(const AttentionTensors& t, Workspace workspace, void* stream = nullptr) const;

 private:
  // Sequences [first, first + count), with a shared prefix or without.
  struct Group {
    int64_t first = 0, count = 0;
    int64_t keys = 0;  // of the prefix; 0: none, and `own` is all
    int64_t chunks = 0, chunk_pages = 0;
    Plan prefix, own;
    // Bytes from the workspace's beginning.
    int64_t own_lengths = 0, chunk_lengths = 0, q = 0, o = 0, lse = 0, scratch = 0;
  };

  absl::Status AddGroup(int64_t first, int64_t count, int64_t keys);
  absl::Status RunGroup(const Group& group, const AttentionTensors& t, char* workspace,
                        void* stream) const;

  AttentionProblem problem_;
  DeviceInfo device_;
  std::vector<Group> groups_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace attnlab::paged

#endif  // PAGED_SHARED_PREFIX_SHARED_PREFIX_H_
