// Streams, graphs and memory pools of a GPU, for checks of when and where kernels work.
//
// As backend.h, it is implemented twice: Create() says so where a program was built without a
// CUDA toolkit.
//
//   absl::StatusOr<Stream> stream = Stream::Create(0, Stream::Kind::kIndependent);
//   absl::StatusOr<Gate> gate = Gate::Close(*stream, 2.0);
//   …enqueue work in stream->get(): it waits…
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

// A stream of its own; waits for its work and is gone at the end of its life.
class Stream {
 public:
  enum class Kind {
    kOrdinary,     // takes turns with the legacy default stream
    kIndependent,  // of all other streams (cudaStreamNonBlocking)
  };
  static absl::StatusOr<Stream> Create(int ordinal, Kind kind);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;
  ~Stream();

  void* get() const { return stream_; }  // cudaStream_t
  int ordinal() const { return ordinal_; }

  // Waits for the work of this stream, and returns the error that it had, if any.
  absl::Status Synchronize();

 private:
  Stream() = default;
  int ordinal_ = 0;
  void* stream_ = nullptr;
};

// Holds back whatever is put into a stream behind it until it is opened, or until its time is up:
// so that whoever waits for the stream while the gate is closed gets out again. Opens at the end of
// its life. It is a host function, and so needs no room on the GPU.
class Gate {
 public:
  static absl::StatusOr<Gate> Close(Stream& stream, double seconds);
  Gate(Gate&&) noexcept = default;
  Gate& operator=(Gate&&) = delete;
  ~Gate();

  void Open();
  // It opened because its time was up.
  bool TimedOut() const;

 private:
  struct State;
  Gate() = default;
  std::shared_ptr<State> state_;
};

// Work that was recorded instead of done (stream capture), to be done any number of times.
class Graph {
 public:
  // Calls `enqueue` and records what it puts into the stream. Meanwhile calls that may wait or
  // allocate are errors on every thread of the process (cudaStreamCaptureModeGlobal), cudaMalloc()
  // and cudaDeviceSynchronize() among them. The error is that of `enqueue`, or of the recording.
  static absl::StatusOr<Graph> Capture(Stream& stream, absl::FunctionRef<absl::Status()> enqueue);
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&&) = delete;
  ~Graph();

  absl::Status Launch(Stream& stream);
  int nodes() const { return nodes_; }
  int allocations() const { return allocations_; }  // cudaMallocAsync() and its kin

 private:
  Graph() = default;
  int ordinal_ = 0;
  void* graph_ = nullptr;       // cudaGraph_t
  void* executable_ = nullptr;  // cudaGraphExec_t
  int nodes_ = 0, allocations_ = 0;
};

// The device's default memory pool, which cudaMallocAsync() takes from.
struct PoolUse {
  int64_t bytes = 0;  // in use now
  int64_t peak = 0;   // the most since ResetPoolPeak()
};
absl::Status ResetPoolPeak(int ordinal);
absl::StatusOr<PoolUse> GetPoolUse(int ordinal);

}  // namespace attnlab::cuda_backend

#endif  // ATTENTION_CUDA_STREAM_H_
