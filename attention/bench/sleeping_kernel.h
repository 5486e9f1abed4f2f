// For tests of estimates: a kernel whose time is known.
#ifndef ATTENTION_BENCH_SLEEPING_KERNEL_H_
#define ATTENTION_BENCH_SLEEPING_KERNEL_H_

#include <chrono>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/kernel.h"
#include "attention/core/problem.h"

namespace attnlab::bench {

// Takes a second per 20 GFLOP, however busy the machine is, and computes nothing.
class SleepingKernel : public Kernel {
 public:
  static double Seconds(const AttentionProblem& p) { return CompulsoryTraffic(p).flops / 20e9; }

  const KernelTraits& traits() const override { return traits_; }
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(const AttentionProblem& p,
                                                          const DeviceInfo&,
                                                          const LaunchConfig&) const override {
    return PreparedAs(/*workspace_bytes=*/0, [p](const AttentionTensors&, const Launch&) {
      std::this_thread::sleep_for(std::chrono::duration<double>(Seconds(p)));
      return absl::OkStatus();
    });
  }

 private:
  KernelTraits traits_;
};

}  // namespace attnlab::bench

#endif  // ATTENTION_BENCH_SLEEPING_KERNEL_H_
