// The CUDA runtime behind stream.h.
#include "attention/cuda/stream.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/cuda/call.h"

namespace attnlab::cuda_backend {
namespace {

cudaStream_t Of(const Stream& stream) { return static_cast<cudaStream_t>(stream.get()); }

absl::StatusOr<cudaMemPool_t> DefaultPool(int ordinal) {
  cudaMemPool_t pool = nullptr;
  absl::Status s =
      ToStatus(cudaDeviceGetDefaultMemPool(&pool, ordinal), absl::StrCat("cuda:", ordinal));
  if (!s.ok()) return s;
  return pool;
}

}  // namespace

absl::StatusOr<Stream> Stream::Create(int ordinal, Kind kind) {
  ScopedDevice device(ordinal);
  if (!device.status().ok()) return device.status();
  cudaStream_t created = nullptr;
  const unsigned flags = kind == Kind::kOrdinary ? cudaStreamDefault : cudaStreamNonBlocking;
  absl::Status s =
      ToStatus(cudaStreamCreateWithFlags(&created, flags), "cudaStreamCreateWithFlags");
  if (!s.ok()) return s;
  Stream stream;
  stream.ordinal_ = ordinal;
  stream.stream_ = created;
  return stream;
}

Stream::Stream(Stream&& other) noexcept
    : ordinal_(other.ordinal_), stream_(std::exchange(other.stream_, nullptr)) {}

Stream::~Stream() {
  if (stream_ == nullptr) return;
  // Ignores errors: whoever waited for the work has seen them, or nobody needs them.
  cudaStreamSynchronize(Of(*this));
  cudaStreamDestroy(Of(*this));
}

absl::Status Stream::Synchronize() {
  return ToStatus(cudaStreamSynchronize(Of(*this)), absl::StrCat("work on cuda:", ordinal_));
}

struct Gate::State {
  // Runs on the stream as a host function, so it must not call CUDA.
  static void Wait(void* data) {
    const std::unique_ptr<std::shared_ptr<State>> held(static_cast<std::shared_ptr<State>*>(data));
    State& state = **held;
    std::unique_lock<std::mutex> lock(state.mutex);
    const bool opened = state.changed.wait_for(lock, std::chrono::duration<double>(state.seconds),
                                               [&state] { return state.open; });
    state.timed_out = !opened;
    state.open = true;
  }

  double seconds = 0;
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false, timed_out = false;
};

absl::StatusOr<Gate> Gate::Close(Stream& stream, double seconds) {
  Gate gate;
  gate.state_ = std::make_shared<State>();
  gate.state_->seconds = seconds;
  auto held = std::make_unique<std::shared_ptr<State>>(gate.state_);
  absl::Status s =
      ToStatus(cudaLaunchHostFunc(Of(stream), State::Wait, held.get()), "cudaLaunchHostFunc");
  if (!s.ok()) return s;
  held.release();  // to Wait()
  return gate;
}

Gate::~Gate() {
  if (state_ != nullptr) Open();
}

void Gate::Open() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->open = true;
  state_->changed.notify_all();
}

bool Gate::TimedOut() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->timed_out;
}

absl::StatusOr<Graph> Graph::Capture(Stream& stream, absl::FunctionRef<absl::Status()> enqueue) {
  ScopedDevice device(stream.ordinal());
  if (!device.status().ok()) return device.status();
  absl::Status s = ToStatus(cudaStreamBeginCapture(Of(stream), cudaStreamCaptureModeGlobal),
                            "cudaStreamBeginCapture");
  if (!s.ok()) return s;
  const absl::Status enqueued = enqueue();
  cudaGraph_t captured = nullptr;
  // Even after an error: this ends the capture.
  s = ToStatus(cudaStreamEndCapture(Of(stream), &captured), "cudaStreamEndCapture");
  Graph graph;
  graph.ordinal_ = stream.ordinal();
  graph.graph_ = captured;
  if (!enqueued.ok()) return enqueued;
  if (!s.ok()) return s;

  size_t count = 0;
  s = ToStatus(cudaGraphGetNodes(captured, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  if (s.ok() && count > 0) {
    s = ToStatus(cudaGraphGetNodes(captured, nodes.data(), &count), "cudaGraphGetNodes");
  }
  for (size_t i = 0; s.ok() && i < count; ++i) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    s = ToStatus(cudaGraphNodeGetType(nodes[i], &type), "cudaGraphNodeGetType");
    graph.allocations_ += type == cudaGraphNodeTypeMemAlloc;
  }
  if (!s.ok()) return s;
  graph.nodes_ = static_cast<int>(count);
  cudaGraphExec_t executable = nullptr;
  s = ToStatus(cudaGraphInstantiate(&executable, captured, 0), "cudaGraphInstantiate");
  if (!s.ok()) return s;
  graph.executable_ = executable;
  return graph;
}

Graph::Graph(Graph&& other) noexcept
    : ordinal_(other.ordinal_),
      graph_(std::exchange(other.graph_, nullptr)),
      executable_(std::exchange(other.executable_, nullptr)),
      nodes_(other.nodes_),
      allocations_(other.allocations_) {}

Graph::~Graph() {
  if (executable_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
  if (graph_ != nullptr) cudaGraphDestroy(static_cast<cudaGraph_t>(graph_));
}

absl::Status Graph::Launch(Stream& stream) {
  ScopedDevice device(ordinal_);
  if (!device.status().ok()) return device.status();
  return ToStatus(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), Of(stream)),
                  "cudaGraphLaunch");
}

absl::Status ResetPoolPeak(int ordinal) {
  absl::StatusOr<cudaMemPool_t> pool = DefaultPool(ordinal);
  if (!pool.ok()) return pool.status();
  uint64_t zero = 0;
  return ToStatus(cudaMemPoolSetAttribute(*pool, cudaMemPoolAttrUsedMemHigh, &zero),
                  "cudaMemPoolSetAttribute");
}

absl::StatusOr<PoolUse> GetPoolUse(int ordinal) {
  absl::StatusOr<cudaMemPool_t> pool = DefaultPool(ordinal);
  if (!pool.ok()) return pool.status();
  uint64_t bytes = 0, peak = 0;
  absl::Status s = ToStatus(cudaMemPoolGetAttribute(*pool, cudaMemPoolAttrUsedMemCurrent, &bytes),
                            "cudaMemPoolGetAttribute");
  if (s.ok()) {
    s = ToStatus(cudaMemPoolGetAttribute(*pool, cudaMemPoolAttrUsedMemHigh, &peak),
                 "cudaMemPoolGetAttribute");
  }
  if (!s.ok()) return s;
  return PoolUse{static_cast<int64_t>(bytes), static_cast<int64_t>(peak)};
}

}  // namespace attnlab::cuda_backend
