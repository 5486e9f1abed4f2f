#include "attention/attention.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attention/cuda/machine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace attnlab {
namespace {

using ::testing::HasSubstr;

// A kernel that writes its mark into O[0] and supports head dims up to a limit.
class FakeKernel : public Kernel {
 public:
  FakeKernel(std::string name, int preference, int64_t max_head_dim, int64_t workspace, float mark)
      : max_head_dim_(max_head_dim), workspace_(workspace), mark_(mark) {
    traits_.name = std::move(name);
    traits_.preference = preference;
  }

  const KernelTraits& traits() const override { return traits_; }
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& p, const DeviceInfo&, const LaunchConfig& config) const override {
    ++prepared_;
    if (absl::Status s = config.CheckKeys({"tile"}); !s.ok()) return s;
    if (p.hq == 5) return absl::ResourceExhaustedError("memory: five heads do not fit a fake");
    if (p.hq == 3) return absl::UnimplementedError("hq: three heads are too many for a fake");
    if (p.d > max_head_dim_) return absl::UnimplementedError("d: too large for a fake");
    return PreparedAs(workspace_, [workspace = workspace_, mark = mark_](const AttentionTensors& t,
                                                                         const Launch& launch) {
      if (workspace > 0) static_cast<char*>(launch.workspace.data)[workspace - 1] = 1;
      static_cast<float*>(t.o.data)[0] = mark;
      return absl::OkStatus();
    });
  }

  int prepared() const { return prepared_; }

 private:
  KernelTraits traits_;
  int64_t max_head_dim_, workspace_;
  float mark_;
  mutable std::atomic<int> prepared_{0};
};

class Slow : public FakeKernel {
 public:
  Slow() : FakeKernel("slow", 0, 512, 0, 1) {}
};
class Fast : public FakeKernel {
 public:
  Fast() : FakeKernel("fast", 10, 64, 1000, 2) {}
};
ATTNLAB_REGISTER_KERNEL(Slow);
ATTNLAB_REGISTER_KERNEL(Fast);

// The best one, which takes only tensors whose Q begins at a multiple of 64 bytes.
class Picky : public FakeKernel {
 public:
  Picky() : FakeKernel("picky", 20, 32, 500, 3) {
    traits_ = FakeKernel::traits();
    traits_.needs_aligned_rows = true;
  }
  const KernelTraits& traits() const override { return traits_; }
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& p, const DeviceInfo& device,
      const LaunchConfig& config) const override {
    class OfPicky : public Prepared {
     public:
      explicit OfPicky(std::unique_ptr<const Prepared> inner) : inner_(std::move(inner)) {}
      int64_t WorkspaceBytes() const override { return inner_->WorkspaceBytes(); }
      absl::Status Accepts(const AttentionTensors& t) const override {
        if (reinterpret_cast<uintptr_t>(t.q.data) % 64 == 0) return absl::OkStatus();
        return absl::UnimplementedError("q: not at a multiple of 64 bytes");
      }
      absl::Status Run(const AttentionTensors& t, const Launch& launch) const override {
        return inner_->Run(t, launch);
      }

     private:
      std::unique_ptr<const Prepared> inner_;
    };
    absl::StatusOr<std::unique_ptr<const Prepared>> inner = FakeKernel::Prepare(p, device, config);
    if (!inner.ok()) return inner.status();
    return std::make_unique<const OfPicky>(*std::move(inner));
  }

 private:
  KernelTraits traits_;
};
ATTNLAB_REGISTER_KERNEL(Picky);

class ForwardTest : public ::testing::Test {
 protected:
  ForwardTest() : in_(64), out_(64) {
    problem_.sq = problem_.skv = 1;
    problem_.dtype = DType::kFloat32;
    tensors_.q = BshdView(in_.data(), DType::kFloat32, Device::Cpu(), 1, 1, 1, 64);
    tensors_.k = tensors_.v = tensors_.q;
    tensors_.o = BshdView(out_.data(), DType::kFloat32, Device::Cpu(), 1, 1, 1, 64);
  }

  AttentionProblem problem_;
  std::vector<float> in_, out_;
  AttentionTensors tensors_;
};

TEST_F(ForwardTest, TakesTheSupportedKernelOfHighestPreference) {
  EXPECT_TRUE(ForwardOnce(problem_, tensors_).ok());
  EXPECT_EQ(out_[0], 2);
  problem_.d = problem_.dv = 65;
  absl::StatusOr<Plan> plan = MakePlan(problem_, Device::Cpu());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kernel->traits().name, "slow");
}

TEST_F(ForwardTest, TakesTheNamedKernel) {
  EXPECT_TRUE(ForwardOnce(problem_, tensors_, "slow").ok());
  EXPECT_EQ(out_[0], 1);
  const absl::Status unknown = ForwardOnce(problem_, tensors_, "faster");
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(unknown.message(),
            "kernel: \"faster\" is not linked into this program; it has fast, picky, slow");
  problem_.d = problem_.dv = 65;
  EXPECT_EQ(MakePlan(problem_, Device::Cpu(), "fast").status().message(),
            "fast: d: too large for a fake");
}

TEST_F(ForwardTest, TakesAnotherKernelForTensorsThatTheBestDoesNotAccept) {
  problem_.d = problem_.dv = 32;
  alignas(64) float q[64];
  alignas(256) char scratch[1024];
  const auto at = [&](const float* data) {
    AttentionTensors t = tensors_;
    t.q = t.k = t.v = BshdView(data, DType::kFloat32, Device::Cpu(), 1, 1, 1, 32);
    t.o = BshdView(out_.data(), DType::kFloat32, Device::Cpu(), 1, 1, 1, 32);
    return t;
  };
  const absl::StatusOr<Plan> plan = MakePlan(problem_, Device::Cpu());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kernel->traits().name, "picky");
  EXPECT_EQ(plan->workspace_bytes, 1000);  // enough for either
  ASSERT_TRUE(Forward(*plan, at(q), {scratch, 1000}).ok());
  EXPECT_EQ(out_[0], 3);
  ASSERT_TRUE(Forward(*plan, at(q + 1), {scratch, 1000}).ok());
  EXPECT_EQ(out_[0], 2);  // "fast"
  const absl::StatusOr<Plan> named = MakePlan(problem_, Device::Cpu(), "picky");
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(Forward(*named, at(q + 1), {scratch, 1000}),
            absl::UnimplementedError("picky: q: not at a multiple of 64 bytes"));
}

TEST_F(ForwardTest, SaysWhyNoKernelWillDo) {
  LaunchConfig config;
  config.Set("colour", "red");
  const absl::Status s = MakePlan(problem_, Device::Cpu(), "", config).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(s.message()), HasSubstr("no kernel of this program supports b=1,hq=1"));
  EXPECT_THAT(std::string(s.message()), HasSubstr("\n  fast: config: unknown key \"colour\""));
  EXPECT_THAT(std::string(s.message()), HasSubstr("\n  slow: "));
  problem_.d = 512;
  problem_.hq = problem_.hkv = 3;
  EXPECT_EQ(MakePlan(problem_, Device::Cpu()).status().code(), absl::StatusCode::kUnimplemented);
  problem_.hq = problem_.hkv = 5;
  EXPECT_EQ(MakePlan(problem_, Device::Cpu()).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(ForwardTest, GivesIntermediatesOfKernelsThatFormThem) {
  const absl::StatusOr<Plan> plan = MakePlan(problem_, Device::Cpu(), "slow");
  ASSERT_TRUE(plan.ok());
  float scores[1] = {};
  Intermediates wanted;
  wanted.scores = BshdView(scores, DType::kFloat32, Device::Cpu(), 1, 1, 1, 1);
  const absl::Status s = Forward(*plan, tensors_, {}, nullptr, wanted);
  EXPECT_EQ(s.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(s.message(), "intermediates: slow does not provide them");
}

TEST_F(ForwardTest, AddsOnlyByKernelsThatCan) {
  const absl::StatusOr<Plan> plan = MakePlan(problem_, Device::Cpu(), "slow");
  ASSERT_TRUE(plan.ok());
  const absl::Status s = ForwardAdding(*plan, tensors_);
  EXPECT_EQ(s.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(s.message(), "slow: cannot add to O of other keys");
  EXPECT_EQ(out_[0], 0);
}

TEST_F(ForwardTest, RejectsBadArguments) {
  absl::StatusOr<Plan> plan = MakePlan(problem_, Device::Cpu(), "fast");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->workspace_bytes, 1000);
  alignas(256) char scratch[1024 + 256];
  EXPECT_TRUE(Forward(*plan, tensors_, {scratch, 1000}).ok());
  EXPECT_EQ(Forward(*plan, tensors_).message(), "workspace: 0 bytes, but 1000 are needed");
  EXPECT_EQ(Forward(*plan, tensors_, {scratch, 999}).message(),
            "workspace: 999 bytes, but 1000 are needed");
  EXPECT_THAT(std::string(Forward(*plan, tensors_, {scratch + 16, 1000}).message()),
              HasSubstr("is not a multiple of 256"));
  EXPECT_EQ(Forward(Plan{}, tensors_).message(), "plan: has no kernel; MakePlan() makes plans");
  tensors_.o.data = nullptr;
  EXPECT_EQ(Forward(*plan, tensors_, {scratch, 1000}).message(), "o: the data pointer is null");
  problem_.b = 0;
  EXPECT_EQ(MakePlan(problem_, Device::Cpu()).status().message(), "b: 0 is not in 1..2147483647");
}

TEST_F(ForwardTest, PreparesOnceForAllCopiesThreadsAndCalls) {
  const auto* fast = static_cast<const FakeKernel*>(*Registry::Global().Find("fast"));
  absl::StatusOr<Plan> plan = MakePlan(problem_, Device::Cpu(), "fast");
  ASSERT_TRUE(plan.ok()) << plan.status();
  const int prepared = fast->prepared();
  const Plan copy = *plan;
  *plan = Plan{};  // the prepared object lives as long as any plan that shares it
  EXPECT_EQ(copy.workspace_bytes, copy.prepared->WorkspaceBytes());
  std::vector<std::thread> threads;
  std::array<float, 4> marks = {};
  for (float& mark : marks) {
    threads.emplace_back([&, out = std::vector<float>(64)]() mutable {
      AttentionTensors t = tensors_;
      t.o.data = out.data();
      alignas(256) char scratch[1024];
      for (int call = 0; call < 100; ++call) {
        out[0] = 0;
        if (!Forward(copy, t, {scratch, sizeof(scratch)}).ok()) return;
      }
      mark = out[0];
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const float mark : marks) EXPECT_EQ(mark, 2);
  EXPECT_EQ(fast->prepared(), prepared);
}

// Allocations would show in the host time that //attention/bench:host_cost measures.
TEST_F(ForwardTest, AllocatesNothing) {
  problem_.lens = Lengths::kPacked;
  const absl::StatusOr<Plan> plan = MakePlan(problem_, Device::Cpu(), "fast");
  ASSERT_TRUE(plan.ok()) << plan.status();
  const int32_t offsets[] = {0, 1};
  tensors_.cu_seqlens_q = tensors_.cu_seqlens_kv = {offsets, 2};
  float lse = 0;
  tensors_.lse = LseView(&lse, Device::Cpu(), 1, 1, 1);
  alignas(256) char scratch[1024];
  const int64_t before = allocations;
  const absl::Status s = Forward(*plan, tensors_, {scratch, sizeof(scratch)});
  EXPECT_EQ(allocations, before);
  EXPECT_TRUE(s.ok()) << s;
}

TEST_F(ForwardTest, PlansAKernelThatIsNotRegistered) {
  const FakeKernel own("own", 0, 64, 512, 3);
  const absl::StatusOr<Plan> plan = MakePlan(own, problem_, CpuInfo());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->workspace_bytes, 512);
  alignas(256) char scratch[512];
  EXPECT_TRUE(Forward(*plan, tensors_, {scratch, sizeof(scratch)}).ok());
  EXPECT_EQ(out_[0], 3);
  problem_.d = 65;
  const absl::Status s = MakePlan(own, problem_, CpuInfo()).status();
  EXPECT_EQ(s.message(), "d: too large for a fake");
  EXPECT_EQ(own.Supports(problem_, CpuInfo(), {}), s);
}

// A kernel whose scratch overlaps its inputs or outputs would silently compute something else.
TEST_F(ForwardTest, RejectsAWorkspaceThatSharesMemoryWithATensor) {
  absl::StatusOr<Plan> plan = MakePlan(problem_, Device::Cpu(), "fast");
  ASSERT_TRUE(plan.ok());
  alignas(256) char memory[2048] = {};
  tensors_.k.data = memory + 1000;
  EXPECT_TRUE(Forward(*plan, tensors_, {memory, 1000}).ok());
  for (const char* name : {"k", "o"}) {
    if (name[0] == 'o') {
      tensors_.k = tensors_.q;
      tensors_.o.data = memory + 1000;
    }
    const absl::Status s = Forward(*plan, tensors_, {memory, 1001});
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(s.message()), HasSubstr("workspace: 1001 bytes at 0x"));
    EXPECT_THAT(std::string(s.message()), HasSubstr(std::string("share memory with ") + name));
  }
  // A kernel that needs no scratch ignores the workspace.
  plan = MakePlan(problem_, Device::Cpu(), "slow");
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(Forward(*plan, tensors_, {memory, 1001}).ok());
}

TEST_F(ForwardTest, RejectsTensorsOfAnotherDevice) {
  absl::StatusOr<Plan> plan = MakePlan(problem_, Device::Cpu(), "slow");
  ASSERT_TRUE(plan.ok());
  for (ConstTensorView* view : {&tensors_.q, &tensors_.k, &tensors_.v}) {
    view->device = Device::Cuda(0);
  }
  tensors_.o.device = Device::Cuda(0);
  EXPECT_EQ(Forward(*plan, tensors_).message(), "q: on cuda:0, but the plan is for cpu");
}

TEST(RegistryTest, ListsInAlphabeticalOrder) {
  const std::vector<const Kernel*> all = Registry::Global().All();
  ASSERT_EQ(all.size(), 3);
  EXPECT_EQ(all[0]->traits().name, "fast");
  EXPECT_EQ(all[1]->traits().name, "picky");
  EXPECT_EQ(all[2]->traits().name, "slow");
  EXPECT_TRUE(Registry::Global().Check().ok());
}

TEST(RegistryTest, ReportsRepeatedNames) {
  Registry registry;
  EXPECT_TRUE(registry.Register(std::make_unique<Slow>()).ok());
  EXPECT_TRUE(registry.Find("slow").ok());
  EXPECT_EQ(registry.Register(std::make_unique<Slow>()).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(registry.Find("slow").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(registry.Check().message(), "kernel: two kernels of this program are named \"slow\"");
  EXPECT_EQ(registry.Find("other").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace attnlab
