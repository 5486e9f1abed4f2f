// Streams, graphs and memory pools of a GPU, for tests of when and on which stream kernels run, and for
// benchmarks of short calls.
//
// Like backend.h, it has two implementations. Without a CUDA toolkit, Create() returns an error
// that says so.
//
//   absl::StatusOr<Stream> stream = Stream::Create(0, Stream::Kind::kIndependent);
//   absl::StatusOr<Gate> gate = Gate::Close(*stream, 2.0);
//   …enqueue work on stream->get(): it waits…
//   gate->Open();
//   stream->Synchronize();
#ifndef ATTENTION_CUDA_STREAM_H_
#define ATTENTION_CUDA_STREAM_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnlab::cuda_backend {

// A stream. At the end of its life it waits for its work and is destroyed.
class Stream {
 public:
  enum class Kind {
    kOrdinary,     // synchronises with the legacy default stream
    kIndependent,  // synchronises with no other stream (cudaStreamNonBlocking)
  };
  static absl::StatusOr<Stream> Create(int ordinal, Kind kind);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;
  ~Stream();

  void* get() const { return stream_; }  // cudaStream_t
  int ordinal() const { return ordinal_; }

  // Waits for the work of this stream, and returns its error, if any.
  absl::Status Synchronize();

 private:
  Stream() = default;
  int ordinal_ = 0;
  void* stream_ = nullptr;
};

// Holds back whatever is enqueued on a stream after it, until it is opened or its time is up. The
// time limit releases a caller that waits for the stream while the gate is closed. It opens at the
// end of its life. It is a host function, so it takes no room on the GPU.
class Gate {
 public:
  static absl::StatusOr<Gate> Close(Stream& stream, double seconds);
  Gate(Gate&&) noexcept = default;
  Gate& operator=(Gate&&) = delete;
  ~Gate();

  void Open();
  // Whether it opened because its time was up.
  bool TimedOut() const;

 private:
  struct State;
  Gate() = default;
  std::shared_ptr<State> state_;
};

// Work that was recorded instead of done (stream capture). It can be launched any number of times.
class Graph {
 public:
  // Calls `enqueue` and records what it puts on the stream. During the call, CUDA calls that may
  // wait or allocate, such as cudaMalloc() and cudaDeviceSynchronize(), are errors on every thread
  // of the process (cudaStreamCaptureModeGlobal). Errors: `enqueue`'s and the recording's.
  static absl::StatusOr<Graph> Capture(Stream& stream, absl::FunctionRef<absl::Status()> enqueue);
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&&) = delete;
  ~Graph();

  absl::Status Launch(Stream& stream);
  int nodes() const { return nodes_; }
  int allocations() const { return allocations_; }  // cudaMallocAsync() and similar

 private:
  Graph() = default;
  int ordinal_ = 0;
  void* graph_ = nullptr;       // cudaGraph_t
  void* executable_ = nullptr;  // cudaGraphExec_t
  int nodes_ = 0, allocations_ = 0;
};

// Use of the device's default memory pool, from which cudaMallocAsync() allocates.
struct PoolUse {
  int64_t bytes = 0;  // in use now
  int64_t peak = 0;   // the most since ResetPoolPeak()
};
absl::Status ResetPoolPeak(int ordinal);
absl::StatusOr<PoolUse> GetPoolUse(int ordinal);

}  // namespace attnlab::cuda_backend

#endif  // ATTENTION_CUDA_STREAM_H_
