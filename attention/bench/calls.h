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
#include "benchmark/benchmark.h"

namespace attnlab::bench {

// The first GPU or, without one, the CPU.
inline Device AnyDevice() {
  const auto gpus = cuda_backend::Devices();
  return gpus.ok() && !gpus->empty() ? Device::Cuda(0) : Device::Cpu();
}

// Calls `work`, which moves so many bytes and returns a Status, until the time is up. On a GPU it is called
// 20 times in a row, and the time is the GPU's: each call but the first is queued when the one before it
// ends, so the host's part does not count. With UseManualTime().
template <typename Work>
void RunCalls(benchmark::State& state, Device device, int64_t bytes, const Work& work) {
  const bool on_gpu = device.kind == DeviceKind::kCuda;
  absl::StatusOr<cuda_backend::Timer> timer =
      on_gpu ? cuda_backend::Timer::Create(device.ordinal)
             : absl::StatusOr<cuda_backend::Timer>(absl::UnavailableError("no GPU"));
  if (on_gpu && !timer.ok()) {
    state.SkipWithError(std::string(timer.status().message()).c_str());
    return;
  }
  const int calls = on_gpu ? 20 : 1;
  for (auto _ : state) {
    absl::Status s = on_gpu ? timer->Start(nullptr) : absl::OkStatus();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls && s.ok(); ++i) s = work();
    const std::chrono::duration<double> host = std::chrono::steady_clock::now() - start;
    const absl::StatusOr<double> seconds =
        on_gpu && s.ok() ? timer->StopSeconds(nullptr) : absl::StatusOr<double>(host.count());
    if (!s.ok() || !seconds.ok()) {
      state.SkipWithError(std::string(s.ok() ? seconds.status().message() : s.message()).c_str());
      return;
    }
    state.SetIterationTime(*seconds / calls);
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}

}  // namespace attnlab::bench

#endif  // ATTENTION_BENCH_CALLS_H_
