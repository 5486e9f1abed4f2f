// Kernels for tests of the command:
//   "wrong"     computes something else
//   "failing"   fails
//   "tunable"   is slow; x=fast is not, x=wrong computes something else, x=crash ends the process
//   "picky"     supports only fp16 with head dims 64 and 128
//   "ctrl_c"    raises SIGINT, as that key does, when it gets 130 padded queries
//   "via_host"  is a GPU kernel that computes on the CPU, so that tests of what the command does
//               around a GPU kernel need no real one
#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/dtype.h"
#include "attention/core/kernel.h"
#include "attention/core/registry.h"
#include "attention/core/supports.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/machine.h"
#include "attention/cuda/memory.h"

namespace attnlab {
namespace {

// The oracle's kernel under another name. It is looked up on first use, because kernels register in
// no particular order.
class Wrapper : public Kernel {
 public:
  explicit Wrapper(const char* name, int preference) {
    traits_.name = name;
    traits_.summary = "for tests of the command";
    traits_.preference = preference;
  }
  const KernelTraits& traits() const override { return traits_; }
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(const AttentionProblem& p,
                                                          const DeviceInfo& d,
                                                          const LaunchConfig& c) const override {
    absl::StatusOr<std::unique_ptr<const Prepared>> inner = Inner().Prepare(p, d, c);
    if (!inner.ok()) return inner.status();
    const int64_t bytes = (*inner)->WorkspaceBytes();
    return PreparedAs(
        bytes, [this, p, inner = *std::move(inner)](const AttentionTensors& t, const Launch& l) {
          return Run(p, *inner, t, l);
        });
  }
  absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& d,
                                          const LaunchConfig& c) const override {
    return Inner().ExpectedTraffic(p, d, c);
  }

 protected:
  virtual absl::Status Run(const AttentionProblem&, const Prepared& inner,
                           const AttentionTensors& t, const Launch& l) const {
    return inner.Run(t, l);
  }
  static const Kernel& Inner() { return **Registry::Global().Find("reference"); }
  KernelTraits traits_;
};

class Wrong : public Wrapper {
 public:
  Wrong() : Wrapper("wrong", 1) {}

 private:
  absl::Status Run(const AttentionProblem&, const Prepared& inner, const AttentionTensors& t,
                   const Launch& l) const override {
    absl::Status s = inner.Run(t, l);
    if (t.o.NumElements() > 0) {
      StoreElement(t.o.data, t.o.dtype, 0, LoadElement(t.o.data, t.o.dtype, 0) + 1);
    }
    return s;
  }
};

class Tunable : public Wrapper {
 public:
  Tunable() : Wrapper("tunable", 1) {
    traits_.config_keys = {"x: fast, wrong or crash"};
    traits_.tunable = {{"x", {"crash", "wrong", "fast"}}};
  }
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(const AttentionProblem& p,
                                                          const DeviceInfo& d,
                                                          const LaunchConfig& c) const override {
    absl::StatusOr<std::unique_ptr<const Prepared>> inner = Inner().Prepare(p, d, {});
    if (!inner.ok()) return inner.status();
    const int64_t bytes = (*inner)->WorkspaceBytes();
    return PreparedAs(bytes, [x = c.Get("x", ""), inner = *std::move(inner)](
                                 const AttentionTensors& t, const Launch& l) {
      if (x == "crash") abort();
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
      while (x.empty() && std::chrono::steady_clock::now() < end) {
      }
      absl::Status s = inner->Run(t, l);
      if (x == "wrong") {
        StoreElement(t.o.data, t.o.dtype, 0, LoadElement(t.o.data, t.o.dtype, 0) + 1);
      }
      return s;
    });
  }
  absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& p, const DeviceInfo&,
                                          const LaunchConfig&) const override {
    return CompulsoryTraffic(p);
  }
};

class Failing : public Wrapper {
 public:
  Failing() : Wrapper("failing", 1) {}

 private:
  absl::Status Run(const AttentionProblem&, const Prepared&, const AttentionTensors&,
                   const Launch&) const override {
    return absl::InternalError("out of luck");
  }
};

class CtrlC : public Wrapper {
 public:
  CtrlC() : Wrapper("ctrl_c", 1) {}

 private:
  absl::Status Run(const AttentionProblem& p, const Prepared& inner, const AttentionTensors& t,
                   const Launch& l) const override {
    // A second signal would end the process. Estimates of the time use fixed lengths.
    static bool raised = false;
    if (p.sq == 130 && p.lens == Lengths::kPadded && !raised) {
      raised = true;
      raise(SIGINT);
    }
    return inner.Run(t, l);
  }
};

class Picky : public Wrapper {
 public:
  Picky() : Wrapper("picky", 2) { traits_.config_keys = {"tile_q: rows of Q in a tile"}; }
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(const AttentionProblem& p,
                                                          const DeviceInfo& d,
                                                          const LaunchConfig& c) const override {
    if (absl::Status s = c.CheckKeys({"tile_q"}); !s.ok()) return s;
    if (p.dtype != DType::kFloat16) return absl::UnimplementedError("dtype: is not fp16");
    if (p.d != 64 && p.d != 128) return absl::UnimplementedError("d: is neither 64 nor 128");
    if (p.lens != Lengths::kFixed) return absl::UnimplementedError("lens: is not fixed");
    if (absl::Status s = CheckDtypeAndPage(p); !s.ok()) return s;
    return Wrapper::Prepare(p, d, {});
  }
  absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& d,
                                          const LaunchConfig&) const override {
    return Wrapper::ExpectedTraffic(p, d, {});
  }
};

class ViaHost : public Wrapper {
 public:
  ViaHost() : Wrapper("via_host", 3) {
    traits_.device = DeviceKind::kCuda;
    traits_.compute_capabilities = {75, 80, 86, 89, 90, 100, 103, 120};
    traits_.config_keys = {"block: threads per block, 32 to 512 [128]"};
  }
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(const AttentionProblem& p,
                                                          const DeviceInfo& d,
                                                          const LaunchConfig& c) const override {
    if (absl::Status s = c.CheckKeys({"block"}); !s.ok()) return s;
    if (absl::Status s = c.GetInteger("block", 128, 32, 512).status(); !s.ok()) return s;
    // Scales and page tables stay on the device.
    if (absl::Status s = CheckDtypeAndPage(p); !s.ok()) return s;
    absl::StatusOr<std::unique_ptr<const Prepared>> inner = Inner().Prepare(p, CpuInfo(), {});
    if (!inner.ok()) return inner.status();
    return PreparedAs(/*workspace_bytes=*/0,
                      [inner = *std::move(inner), ordinal = d.device.ordinal](
                          const AttentionTensors& t, const Launch&) {
                        return ComputeOnHost(*inner, ordinal, t);
                      });
  }
  absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& d,
                                          const LaunchConfig&) const override {
    return Inner().ExpectedTraffic(p, d, {});
  }

 private:
  static absl::Status ComputeOnHost(const Prepared& inner, int ordinal,
                                    const AttentionTensors& device) {
    AttentionTensors host = device;
    std::vector<Buffer> buffers;
    // Copies to the host everything that the view at `data` covers. O and LSE are copied too,
    // because the kernel does not write all of it.
    const auto fetch = [&](const void* data, int64_t bytes) -> absl::StatusOr<void*> {
      absl::StatusOr<Buffer> copy = Buffer::Allocate(Device::Cpu(), bytes);
      if (!copy.ok()) return copy.status();
      absl::Status s = cuda_backend::CopyToHost(ordinal, copy->data(), data, bytes);
      if (!s.ok()) return s;
      buffers.push_back(*std::move(copy));
      return buffers.back().data();
    };
    for (ConstTensorView* view : {&host.q, &host.k, &host.v}) {
      absl::StatusOr<void*> data = fetch(view->data, Reach(*view));
      if (!data.ok()) return data.status();
      view->data = *data;
      view->device = Device::Cpu();
    }
    for (TensorView* view : {&host.o, &host.lse}) {
      if (view->data == nullptr) continue;
      absl::StatusOr<void*> data = fetch(view->data, Reach(*view));
      if (!data.ok()) return data.status();
      view->data = *data;
      view->device = Device::Cpu();
    }
    for (LengthsView* view : {&host.cu_seqlens_q, &host.cu_seqlens_kv, &host.q_len, &host.kv_len}) {
      if (view->data == nullptr) continue;
      absl::StatusOr<void*> data = fetch(view->data, view->count * 4);
      if (!data.ok()) return data.status();
      view->data = static_cast<const int32_t*>(*data);
    }
    const int64_t bytes = inner.WorkspaceBytes();
    absl::StatusOr<Buffer> workspace = Buffer::Allocate(Device::Cpu(), bytes);
    if (!workspace.ok()) return workspace.status();
    absl::Status s = inner.Run(host, {{workspace->data(), bytes}});
    if (s.ok()) s = cuda_backend::CopyToDevice(ordinal, device.o.data, host.o.data, Reach(host.o));
    if (s.ok() && device.lse.data != nullptr) {
      s = cuda_backend::CopyToDevice(ordinal, device.lse.data, host.lse.data, Reach(host.lse));
    }
    return s;
  }

  // Bytes from the first element to the end of the last.
  static int64_t Reach(const ConstTensorView& view) {
    if (view.NumElements() == 0) return 0;
    return (view.Offset(view.shape[0] - 1, view.shape[1] - 1, view.shape[2] - 1,
                        view.shape[3] - 1) +
            1) *
           SizeOf(view.dtype);
  }
};

ATTNLAB_REGISTER_KERNEL(ViaHost);
ATTNLAB_REGISTER_KERNEL(Wrong);
ATTNLAB_REGISTER_KERNEL(Tunable);
ATTNLAB_REGISTER_KERNEL(Failing);
ATTNLAB_REGISTER_KERNEL(Picky);
ATTNLAB_REGISTER_KERNEL(CtrlC);

}  // namespace
}  // namespace attnlab
