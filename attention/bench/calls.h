// For Google Benchmarks of functions that run on the CPU, or on a GPU's stream.
#ifndef ATTENTION_BENCH_CALLS_H_
#define ATTENTION_BENCH_CALLS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/stream.h"
#include "benchmark/benchmark.h"

namespace attnlab::bench {

// The first GPU or, without one, the CPU.
inline Device AnyDevice() {
  const auto gpus = cuda_backend::Devices();
  return gpus.ok() && !gpus->empty() ? Device::Cuda(0) : Device::Cpu();
}

// The seconds of one call on a GPU, of 20 in a row. They wait at a gate until the last is queued: a short
// call takes the GPU less time than the host.
template <typename Work>
absl::StatusOr<double> SecondsOnGpu(int ordinal, const Work& work) {
  using cuda_backend::Gate, cuda_backend::Stream, cuda_backend::Timer;
  constexpr int kCalls = 20;
  constexpr double kMostSeconds = 10;  // at the gate
  absl::StatusOr<Stream> stream = Stream::Create(ordinal, Stream::Kind::kOrdinary);
  if (!stream.ok()) return stream.status();
  absl::StatusOr<Timer> timer = Timer::Create(ordinal);
  if (!timer.ok()) return timer.status();
  absl::StatusOr<Gate> gate = Gate::Close(*stream, kMostSeconds);
  if (!gate.ok()) return gate.status();
  absl::Status s = timer->Start(stream->get());
  for (int i = 0; i < kCalls && s.ok(); ++i) s = work(stream->get());
  if (s.ok()) s = timer->Stop(stream->get());
  if (!s.ok()) return s;
  if (gate->TimedOut()) return absl::DeadlineExceededError("a call waits for the GPU");
  gate->Open();
  const absl::StatusOr<double> seconds = timer->Seconds();
  if (!seconds.ok()) return seconds.status();
  return *seconds / kCalls;
}

// Calls `work`, which takes a stream, moves so many bytes and returns a Status, until the time is up.
// On a GPU the time is the GPU's alone. With UseManualTime().
template <typename Work>
void RunCalls(benchmark::State& state, Device device, int64_t bytes, const Work& work) {
  const auto seconds = [&]() -> absl::StatusOr<double> {
    if (device.kind == DeviceKind::kCuda) return SecondsOnGpu(device.ordinal, work);
    const auto start = std::chrono::steady_clock::now();
    if (absl::Status s = work(nullptr); !s.ok()) return s;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  // The first call may load a kernel, which waits for other work, such as a gate.
  absl::Status s = work(nullptr);
  for (auto _ : state) {
    const absl::StatusOr<double> time = s.ok() ? seconds() : absl::StatusOr<double>(s);
    if (!time.ok()) {
      state.SkipWithError(std::string(time.status().message()).c_str());
      return;
    }
    state.SetIterationTime(*time);
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}

}  // namespace attnlab::bench

#endif  // ATTENTION_BENCH_CALLS_H_
