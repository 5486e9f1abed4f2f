#include "attention/c/attention_c.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/c/attention_c_internal.h"
#include "attention/core/problem.h"
#include "attention/cuda/backend.h"

namespace attnlab::c {
namespace {

// The existing plans. Handles count up and are never reused, so a handle of a destroyed plan is
// not taken for a newer plan.
class Plans {
 public:
  static Plans& Global() {
    static Plans* const kPlans = new Plans;  // never destroyed: callers may outlive static objects
    return *kPlans;
  }

  attnlab_plan* Add(Plan plan) {
    auto shared = std::make_shared<const Plan>(std::move(plan));
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    plans_.emplace(++last_, std::move(shared));
    return reinterpret_cast<attnlab_plan*>(last_);
  }

  // The returned shared_ptr keeps the plan alive while another thread destroys it.
  absl::StatusOr<std::shared_ptr<const Plan>> Find(const attnlab_plan* handle) {
    if (handle == nullptr) return Invalid("plan", "is null");
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto it = plans_.find(reinterpret_cast<uintptr_t>(handle));
    if (it == plans_.end()) return Unknown();
    return it->second;
  }

  absl::Status Remove(const attnlab_plan* handle) {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    return plans_.erase(reinterpret_cast<uintptr_t>(handle)) == 1 ? absl::OkStatus() : Unknown();
  }

 private:
  static absl::Status Unknown() { return Invalid("plan", "is not a plan, or was destroyed"); }

  std::shared_mutex mutex_;
  std::unordered_map<uintptr_t, std::shared_ptr<const Plan>> plans_;
  uintptr_t last_ = 0;
};

// The process that has computed on a kind of device; 0: none has.
std::atomic<pid_t>& Owner(DeviceKind kind) {
  static std::atomic<pid_t> owners[2];
  return owners[static_cast<int>(kind)];
}

// Whether this process was made by fork() since the library was loaded. If not, there is no need to
// ask the system for the process id.
std::atomic<bool> forked{false};
// If the handler could not be registered, we always ask.
const bool kToldOfForks = pthread_atfork(nullptr, nullptr, [] { forked = true; }) == 0;

// A forked child has neither its parent's CPU threads nor its CUDA context: a call there would
// never return. So only the first process that computes on a kind of device may do so.
absl::Status CheckNotForked(DeviceKind kind) {
  if (kToldOfForks && !forked) return absl::OkStatus();
  const pid_t mine = getpid(), owner = Owner(kind).load();
  if (owner == 0 || owner == mine) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("process ", mine, ": was forked after process ", owner,
                   " had computed attention on ", kind == DeviceKind::kCpu ? "the CPU" : "a GPU",
                   ", and has lost what it set up there; start child processes with exec, or fork "
                   "before the first call"));
}

// Checks that the addresses are memory of the plan's GPU. A kernel that follows any other address
// would destroy the CUDA context of the process.
absl::Status CheckAddresses(int ordinal, const AttentionTensors& t, const Workspace& workspace) {
  const struct {
    absl::string_view name;
    const void* data;
  } kAddresses[] = {{"q", t.q.data},
                    {"k", t.k.data},
                    {"v", t.v.data},
                    {"o", t.o.data},
                    {"lse", t.lse.data},
                    {"cu_seqlens_q", t.cu_seqlens_q.data},
                    {"cu_seqlens_kv", t.cu_seqlens_kv.data},
                    {"q_len", t.q_len.data},
                    {"kv_len", t.kv_len.data},
                    {"page_table", t.page_table.data},
                    {"q_scale", t.q_scale.data},
                    {"k_scale", t.k_scale.data},
                    {"v_scale", t.v_scale.data},
                    {"workspace", workspace.data}};
  for (const auto& address : kAddresses) {
    if (address.data == nullptr) continue;
    absl::Status s = cuda_backend::CheckAddress(ordinal, address.data);
    if (!s.ok()) return absl::Status(s.code(), absl::StrCat(address.name, ": ", s.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> MakePlan(const attnlab_problem* problem_in, Device device, const char* kernel,
                              const char* config_line) {
  absl::StatusOr<AttentionProblem> problem = ReadProblem(problem_in);
  if (!problem.ok()) return problem.status();
  absl::StatusOr<LaunchConfig> config =
      LaunchConfig::Parse(config_line == nullptr ? "" : config_line);
  if (!config.ok()) return config.status();
  return attnlab::MakePlan(*problem, device, kernel == nullptr ? "" : kernel, *config);
}

absl::StatusOr<Plan> PlanOf(const attnlab_forward_args& args) {
  absl::StatusOr<TensorView> q = ReadTensor("q", args.q);
  if (!q.ok()) return q.status();
  return MakePlan(args.problem, q->device, args.kernel, args.config);
}

// `sizes`: the name of the function that says how large the workspace must be.
absl::Status Run(const Plan& plan, const attnlab_forward_args& args, absl::string_view sizes) {
  absl::StatusOr<AttentionTensors> tensors = ReadTensors(plan.problem, args);
  if (!tensors.ok()) return tensors.status();
  const Workspace workspace{args.workspace, args.workspace_bytes};
  const Device device = plan.device.device;
  // Comes before any question to CUDA about addresses: a forked child must not call CUDA.
  if (absl::Status s = CheckNotForked(device.kind); !s.ok()) return s;
  if (device.kind == DeviceKind::kCuda && tensors->q.device == device) {
    // Reports tensors that do not fit before addresses that are wrong.
    if (absl::Status s = ValidateTensors(plan.problem, *tensors); !s.ok()) return s;
    if (absl::Status s = CheckAddresses(device.ordinal, *tensors, workspace); !s.ok()) return s;
  }
  if (plan.workspace_bytes > 0 && workspace.data == nullptr && tensors->q.device == device) {
    return Invalid("workspace", absl::StrCat("is null, but ", plan.workspace_bytes,
                                             " bytes are needed; ", sizes, "() says how many"));
  }
  const absl::Status done = attnlab::Forward(plan, *tensors, workspace, args.stream);
  if (done.ok() && Owner(device.kind).load() == 0) Owner(device.kind).store(getpid());
  return done;
}

absl::Status WorkspaceBytes(const attnlab_forward_args* from, int64_t* bytes) {
  absl::StatusOr<attnlab_forward_args> args = Read("args", from);
  if (!args.ok()) return args.status();
  if (bytes == nullptr) return Invalid("bytes", "is null");
  absl::StatusOr<Plan> plan = PlanOf(*args);
  if (!plan.ok()) return plan.status();
  *bytes = plan->workspace_bytes;
  return absl::OkStatus();
}

absl::Status Forward(const attnlab_forward_args* from) {
  absl::StatusOr<attnlab_forward_args> args = Read("args", from);
  if (!args.ok()) return args.status();
  absl::StatusOr<Plan> plan = PlanOf(*args);
  if (!plan.ok()) return plan.status();
  return Run(*plan, *args, "attnlab_workspace_bytes");
}

absl::Status PlanCreate(const attnlab_plan_args* from, attnlab_plan** to) {
  if (to == nullptr) return Invalid("plan", "is null");
  *to = nullptr;
  absl::StatusOr<attnlab_plan_args> args = Read("args", from);
  if (!args.ok()) return args.status();
  absl::StatusOr<Device> device = ReadDevice(args->device_kind, args->device_ordinal);
  if (!device.ok()) return device.status();
  absl::StatusOr<Plan> plan = MakePlan(args->problem, *device, args->kernel, args->config);
  if (!plan.ok()) return plan.status();
  *to = Plans::Global().Add(*std::move(plan));
  return absl::OkStatus();
}

absl::Status PlanForward(const attnlab_plan* handle, const attnlab_forward_args* from) {
  absl::StatusOr<std::shared_ptr<const Plan>> plan = Plans::Global().Find(handle);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<attnlab_forward_args> args = Read("args", from);
  if (!args.ok()) return args.status();
  if (args->problem != nullptr) return Invalid("problem", "is given, but the plan has its own");
  const auto given = [](const char* text) { return text != nullptr && *text != '\0'; };
  if (given(args->kernel)) return Invalid("kernel", "is given, but the plan has its own");
  if (given(args->config)) return Invalid("config", "is given, but the plan has its own");
  return Run(**plan, *args, "attnlab_plan_workspace_bytes");
}

absl::Status PlanWorkspaceBytes(const attnlab_plan* handle, int64_t* bytes) {
  absl::StatusOr<std::shared_ptr<const Plan>> plan = Plans::Global().Find(handle);
  if (!plan.ok()) return plan.status();
  if (bytes == nullptr) return Invalid("bytes", "is null");
  *bytes = (*plan)->workspace_bytes;
  return absl::OkStatus();
}

absl::Status PlanInfo(const attnlab_plan* handle, attnlab_plan_info* to) {
  absl::StatusOr<std::shared_ptr<const Plan>> found = Plans::Global().Find(handle);
  if (!found.ok()) return found.status();
  const Plan& plan = **found;
  absl::StatusOr<Traffic> expected =
      plan.kernel->ExpectedTraffic(plan.problem, plan.device, plan.config);
  if (!expected.ok()) return expected.status();
  const Traffic compulsory = CompulsoryTraffic(plan.problem);
  attnlab_plan_info info = {};
  info.kernel = plan.kernel->traits().name.c_str();
  info.workspace_bytes = plan.workspace_bytes;
  info.flops = compulsory.flops;
  info.compulsory_bytes = compulsory.Bytes();
  info.expected_flops = expected->flops;
  info.expected_bytes_read = expected->bytes_read;
  info.expected_bytes_written = expected->bytes_written;
  return Write("info", info, to);
}

}  // namespace
}  // namespace attnlab::c

extern "C" {

using attnlab::c::Report;

int32_t attnlab_abi_version(void) { return ATTNLAB_ABI_VERSION; }

const char* attnlab_last_error(void) { return attnlab::c::LastError(); }

int32_t attnlab_workspace_bytes(const attnlab_forward_args* args, int64_t* bytes) {
  return Report([&] { return attnlab::c::WorkspaceBytes(args, bytes); });
}

int32_t attnlab_forward(const attnlab_forward_args* args) {
  return Report([&] { return attnlab::c::Forward(args); });
}

int32_t attnlab_plan_create(const attnlab_plan_args* args, attnlab_plan** plan) {
  return Report([&] { return attnlab::c::PlanCreate(args, plan); });
}

int32_t attnlab_plan_destroy(attnlab_plan* plan) {
  if (plan == nullptr) return ATTNLAB_OK;
  return Report([&] { return attnlab::c::Plans::Global().Remove(plan); });
}

int32_t attnlab_plan_workspace_bytes(const attnlab_plan* plan, int64_t* bytes) {
  return Report([&] { return attnlab::c::PlanWorkspaceBytes(plan, bytes); });
}

int32_t attnlab_plan_forward(const attnlab_plan* plan, const attnlab_forward_args* args) {
  return Report([&] { return attnlab::c::PlanForward(plan, args); });
}

int32_t attnlab_plan_get_info(const attnlab_plan* plan, attnlab_plan_info* info) {
  return Report([&] { return attnlab::c::PlanInfo(plan, info); });
}

}  // extern "C"
