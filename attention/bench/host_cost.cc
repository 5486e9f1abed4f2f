// What a call costs the host without the launch: from Forward(), from C, and step by step.
//
//   bazel run //attention/bench:host_cost
//
// Needs no GPU: plans are for a described GPU, tensors are addresses that nobody dereferences, and
// launches do nothing (host_cost_launch.cc). The linked kernels must therefore launch only through
// device::Launch(). warp_specialized makes tensor maps by a function of the driver, and reports an
// error where there is no driver. On the CPU it calls "nothing", a kernel that computes nothing, also from C.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/c/attention_c.h"
#include "attention/core/kernel.h"
#include "attention/core/problem.h"
#include "attention/core/registry.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/machine.h"
#include "benchmark/benchmark.h"

namespace attnlab::bench {
namespace {

class Nothing : public Kernel {
 public:
  Nothing() {
    traits_.name = "nothing";
    traits_.summary = "computes nothing";
  }
  const KernelTraits& traits() const override { return traits_; }
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(const AttentionProblem&,
                                                          const DeviceInfo&,
                                                          const LaunchConfig&) const override {
    return PreparedAs(/*workspace_bytes=*/1024,
                      [](const AttentionTensors&, const Launch&) { return absl::OkStatus(); });
  }
  absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& p, const DeviceInfo&,
                                          const LaunchConfig&) const override {
    return CompulsoryTraffic(p);
  }

 private:
  KernelTraits traits_;
};
ATTNLAB_REGISTER_KERNEL(Nothing);

DeviceInfo Hopper() {
  DeviceInfo gpu;
  gpu.device = Device::Cuda(0);
  gpu.compute_capability = 90;
  gpu.memory_bytes = int64_t{80} << 30;
  gpu.last_level_cache_bytes = 50 << 20;
  gpu.multiprocessors = 132;
  gpu.shared_memory_per_block = 227 << 10;
  gpu.registers_per_multiprocessor = 65536;
  return gpu;
}

// Fake addresses, 1 TiB apart.
template <typename T = void>
T* Address(int index) {
  return reinterpret_cast<T*>(uintptr_t(index + 1) << 40);
}

AttentionTensors TensorsOf(const AttentionProblem& p, Device device) {
  AttentionTensors t;
  const bool packed = p.lens == Lengths::kPacked;
  const int64_t b = packed ? 1 : p.b, sq = packed ? p.b * p.sq : p.sq,
                skv = packed ? p.b * p.skv : p.skv;
  t.q = BshdView(Address(0), p.dtype, device, b, sq, p.hq, p.d);
  t.k = BshdView(Address(1), p.dtype, device, b, skv, p.hkv, p.d);
  t.v = BshdView(Address(2), p.dtype, device, b, skv, p.hkv, p.dv);
  t.o = BshdView(Address(3), p.ODType(), device, b, sq, p.hq, p.dv);
  t.lse = LseView(Address<float>(4), device, b, sq, p.hq);
  if (packed) {
    t.cu_seqlens_q = {Address<const int32_t>(5), p.b + 1};
    t.cu_seqlens_kv = {Address<const int32_t>(6), p.b + 1};
  }
  return t;
}

const Workspace kWorkspace = {Address(7), 1024};

// A failed call is reported as an error, without a time.
void Check(benchmark::State& state, const absl::Status& status) {
  if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
}

void Forwards(benchmark::State& state, const Plan& plan) {
  const AttentionTensors t = TensorsOf(plan.problem, plan.device.device);
  for (auto _ : state) Check(state, Forward(plan, t, kWorkspace));
}

void Runs(benchmark::State& state, const Plan& plan) {
  const AttentionTensors t = TensorsOf(plan.problem, plan.device.device);
  for (auto _ : state) Check(state, plan.prepared->Run(t, {kWorkspace}));
}

void MakesPlans(benchmark::State& state, const Plan& plan) {
  for (auto _ : state) {
    Check(state, MakePlan(*plan.kernel, plan.problem, plan.device, plan.config).status());
  }
}

void ValidatesTensors(benchmark::State& state, const char* line) {
  const AttentionProblem p = *AttentionProblem::Parse(line);
  const AttentionTensors t = TensorsOf(p, Device::Cuda(0));
  for (auto _ : state) Check(state, ValidateTensors(p, t));
}

void ValidatesScratch(benchmark::State& state, const char* line) {
  const AttentionTensors t = TensorsOf(*AttentionProblem::Parse(line), Device::Cuda(0));
  for (auto _ : state) Check(state, ValidateScratch(t, "workspace", kWorkspace.data, 1024));
}

// Calls from C with the same tensors, through attnlab_plan_forward() if `planned`, else
// attnlab_forward().
void CallsFromC(benchmark::State& state, const char* line, bool planned) {
  const AttentionTensors t = TensorsOf(*AttentionProblem::Parse(line), Device::Cpu());
  attnlab_problem problem = {};
  problem.size = sizeof(problem);
  attnlab_problem_parse(line, &problem);
  const ConstTensorView views[] = {t.q, t.k, t.v, t.o, t.lse};
  attnlab_tensor tensors[5] = {};
  for (int i = 0; i < 5; ++i) {
    tensors[i].size = sizeof(tensors[i]);
    tensors[i].dtype = static_cast<int32_t>(views[i].dtype);
    tensors[i].data = const_cast<void*>(views[i].data);
    std::copy(views[i].shape.begin(), views[i].shape.end(), tensors[i].shape);
    std::copy(views[i].strides.begin(), views[i].strides.end(), tensors[i].strides);
  }
  attnlab_forward_args args = {};
  args.size = sizeof(args);
  args.q = &tensors[0];
  args.k = &tensors[1];
  args.v = &tensors[2];
  args.o = &tensors[3];
  args.lse = &tensors[4];
  args.workspace = kWorkspace.data;
  args.workspace_bytes = kWorkspace.bytes;
  attnlab_plan* plan = nullptr;
  if (planned) {
    attnlab_plan_args plan_args = {};
    plan_args.size = sizeof(plan_args);
    plan_args.problem = &problem;
    plan_args.kernel = "nothing";
    attnlab_plan_create(&plan_args, &plan);
  } else {
    args.problem = &problem;
    args.kernel = "nothing";
  }
  for (auto _ : state) {
    const int32_t code = planned ? attnlab_plan_forward(plan, &args) : attnlab_forward(&args);
    if (code != ATTNLAB_OK) return state.SkipWithError(attnlab_last_error());
  }
  attnlab_plan_destroy(plan);
}

constexpr std::pair<const char*, const char*> kProblems[] = {
    {"prefill", "b=4,hq=32,hkv=8,sq=4096,d=128,dtype=bf16,mask=causal"},
    {"decode", "b=64,hq=32,hkv=8,sq=1,skv=4096,d=128,dtype=bf16"},
    {"packed", "b=16,hq=32,hkv=8,sq=1024,d=64,dtype=fp16,lens=packed"},
    {"fp32", "b=4,hq=12,sq=1024,d=64,dtype=fp32,mask=causal"},
};

void Register(const std::string& name, const std::function<void(benchmark::State&)>& run) {
  benchmark::RegisterBenchmark(name.c_str(), run);
}

int Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const Kernel* kernel : Registry::Global().All()) {
    const bool gpu = kernel->traits().device == DeviceKind::kCuda;
    for (const auto& [name, line] : kProblems) {
      const std::string of = absl::StrCat(kernel->traits().name, "/", name);
      // On the CPU the length lists would be read, and their addresses are fake.
      if (!gpu && absl::StrContains(line, "packed")) continue;
      const absl::StatusOr<Plan> plan =
          MakePlan(*kernel, *AttentionProblem::Parse(line), gpu ? Hopper() : CpuInfo());
      if (!plan.ok()) continue;
      Register("Forward/" + of, [plan](benchmark::State& state) { Forwards(state, *plan); });
      Register("Run/" + of, [plan](benchmark::State& state) { Runs(state, *plan); });
      Register("MakePlan/" + of, [plan](benchmark::State& state) { MakesPlans(state, *plan); });
    }
  }
  for (const auto& [name, line] : kProblems) {
    const auto of = [name = name](const char* what) { return absl::StrCat(what, "/", name); };
    Register(of("ValidateTensors"), [l = line](auto& state) { ValidatesTensors(state, l); });
    Register(of("ValidateScratch"), [l = line](auto& state) { ValidatesScratch(state, l); });
    if (absl::StrContains(line, "packed")) continue;
    Register(of("attnlab_plan_forward/nothing"), [l = line](auto& s) { CallsFromC(s, l, true); });
    Register(of("attnlab_forward/nothing"), [l = line](auto& s) { CallsFromC(s, l, false); });
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace attnlab::bench

int main(int argc, char** argv) { return attnlab::bench::Main(argc, argv); }
