// A build without a CUDA toolkit: there are no streams.
#include "attention/cuda/stream.h"

namespace attnlab::cuda_backend {
namespace {

absl::Status NotBuilt() {
  return absl::UnimplementedError("this program was built without a CUDA toolkit");
}

}  // namespace

absl::StatusOr<Stream> Stream::Create(int, Kind) { return NotBuilt(); }
Stream::Stream(Stream&&) noexcept = default;
Stream::~Stream() = default;
absl::Status Stream::Synchronize() { return NotBuilt(); }

struct Gate::State {};
absl::StatusOr<Gate> Gate::Close(Stream&, double) { return NotBuilt(); }
Gate::~Gate() = default;
void Gate::Open() {}
bool Gate::TimedOut() const { return false; }

absl::StatusOr<Graph> Graph::Capture(Stream&, absl::FunctionRef<absl::Status()>) {
  return NotBuilt();
}
Graph::Graph(Graph&&) noexcept = default;
Graph::~Graph() = default;
absl::Status Graph::Launch(Stream&) { return NotBuilt(); }

absl::Status ResetPoolPeak(int) { return NotBuilt(); }
absl::StatusOr<PoolUse> GetPoolUse(int) { return NotBuilt(); }

}  // namespace attnlab::cuda_backend
