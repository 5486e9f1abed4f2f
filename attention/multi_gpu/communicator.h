// Ranks that compute one problem together, each with a part of its data. Rank 0 to ranks() - 1 are threads
// (memory_communicator.h) or GPUs (gpus/).
//
//   Communicator& c = …;                                    // of this rank
//   absl::Status s = c.Start({mine, next, others, previous, bytes, others_bytes});
//   …                                                       // compute; neither memory may change
//   if (s.ok()) s = c.Wait("K and V of step 1");
//
// All ranks make the same calls in the same order. No call waits for ever: if a rank has left, others get
// Unavailable, and if nothing comes within the time limit, DeadlineExceeded. Both say which rank was waited
// for, and for what. After an error a Communicator is of no more use, and what other ranks have got from a call in which
// one failed is not to be used.
#ifndef ATTENTION_MULTI_GPU_COMMUNICATOR_H_
#define ATTENTION_MULTI_GPU_COMMUNICATOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "attention/core/device.h"

namespace attnlab::multi_gpu {

// From this rank to rank `to`, and from rank `from` to this one.
struct Transfer {
  const void* send = nullptr;
  int to = 0;
  void* receive = nullptr;
  int from = 0;
  int64_t send_bytes = 0, receive_bytes = 0;
  // Memory on a GPU: a cudaStream_t. The transfer begins after its work so far, as of Start(). What it gets after
  // Wait() finds the data, and may write what was sent.
  void* stream = nullptr;
};

// For implementations: what Start() refuses, and what Wait() says where another rank sends other bytes.
absl::Status CheckTransfer(const Transfer& transfer, int ranks);
absl::Status OtherSize(absl::string_view what, const Transfer& transfer, int rank, int64_t sent);

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // Where memory of transfers may lie, besides in host memory.
  virtual Device device() const { return Device::Cpu(); }

  // Starts a transfer. InvalidArgument for a rank that does not exist.
  virtual absl::Status Start(const Transfer& transfer) = 0;
  // Waits for all transfers that were started; for those of memory on a GPU it may return before they are done.
  // `what` they are, for messages. InvalidArgument if another rank sends another number of bytes, which NCCL does not
  // always tell (gpus/nccl_communicator.h).
  virtual absl::Status Wait(absl::string_view what) = 0;
};

// What each rank has, in the order of ranks: `bytes` of each, at `all`. In host memory.
absl::Status Gather(Communicator& c, absl::string_view what, const void* mine, int64_t bytes,
                    void* all);

// Checks that all ranks have the same text, before any data moves. InvalidArgument names the first rank that
// differs from rank 0, and both texts. At most kMostAgreed characters are compared.
constexpr int64_t kMostAgreed = 1024;
absl::Status Agree(Communicator& c, absl::string_view what, absl::string_view text);
// The same, where `mine` is what this rank's own checks have found. If it is an error, the others get its text,
// and this rank gets the error.
absl::Status Agree(Communicator& c, absl::string_view what, absl::string_view text,
                   const absl::Status& mine);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_COMMUNICATOR_H_
