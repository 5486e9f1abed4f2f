#include "attention/conformance/stream_checks.h"

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/cuda/stream.h"
#include "attention/oracle/bare_memory.h"
#include "attention/oracle/reference.h"
#include "attention/oracle/trial.h"

namespace attnlab::conformance {
namespace {

using cuda_backend::Gate;
using cuda_backend::Graph;
using cuda_backend::PoolUse;
using cuda_backend::Stream;

// The gate opens by itself after this time, so whoever waits for the stream waits this long.
constexpr double kGateSeconds = 1.0;
// Work that does not wait for the gate has this long to become visible.
constexpr auto kHeadStart = std::chrono::milliseconds(20);

// A trial that has run once, so the kernel's first-call setup is done.
struct Ready {
  oracle::Trial trial;
  oracle::Trial::Run plain;
};

absl::StatusOr<Ready> MakeReady(const Subject& subject, const Case& c) {
  absl::StatusOr<Plan> plan = PlanFor(subject, c.problem);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<oracle::Trial> trial = oracle::Trial::Make(*plan, c.inputs, c.with_lse);
  if (!trial.ok()) return NotDeclined(trial.status());
  absl::StatusOr<oracle::Trial::Run> plain = trial->RunOnce();
  if (!plain.ok()) return NotDeclined(plain.status());
  return Ready{*std::move(trial), *std::move(plain)};
}

// "" if a run has the bits of the plain one, and wrote to the same places.
std::string Difference(const Case& c, oracle::Trial& trial, const oracle::Trial::Run& plain,
                       const oracle::Trial::Run& run) {
  if (run.faults != plain.faults) return run.faults;
  const AttentionTensors& t = trial.inputs().host_tensors();
  return oracle::BitDifference(c.problem, t, plain.outputs, run.outputs,
                               oracle::AllRows(c.problem, t));
}

absl::Status OtherNumbers(const AttentionProblem& p, oracle::Inputs& inputs) {
  for (int64_t i = 0; i < p.b; ++i) {
    absl::Status s = inputs.ChangeQ(i, 0, p.sq, oracle::Inputs::Fill::kOtherNumbers);
    if (s.ok()) s = inputs.ChangeKv(i, 0, p.skv, oracle::Inputs::Fill::kOtherNumbers);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<Graph> CaptureForward(oracle::Trial& trial, Stream& stream) {
  absl::StatusOr<Graph> graph = Graph::Capture(stream, [&] { return trial.Start(stream.get()); });
  if (graph.ok()) return graph;
  return absl::InternalError(absl::StrCat(
      "Forward() cannot be captured in a CUDA graph; during capture it must not wait, allocate, or "
      "use another stream without joining it: ",
      graph.status().message()));
}

absl::StatusOr<oracle::Trial::Run> Replay(oracle::Trial& trial, Graph& graph, Stream& stream) {
  // The graph has the addresses of its capture. With bare memory, Prepare() would change them.
  if (!oracle::BareMemory()) {
    if (absl::Status s = trial.Prepare(); !s.ok()) return s;
  }
  if (absl::Status s = graph.Launch(stream); !s.ok()) return s;
  if (absl::Status s = stream.Synchronize(); !s.ok()) return s;
  return trial.Finish();
}

}  // namespace

absl::Status CanBeCaptured(const Subject& subject, const Case& c) {
  absl::StatusOr<Ready> ready = MakeReady(subject, c);
  if (!ready.ok()) return ready.status();
  oracle::Trial& trial = ready->trial;
  absl::StatusOr<Stream> stream = Stream::Create(subject.device.ordinal, Stream::Kind::kOrdinary);
  if (!stream.ok()) return NotDeclined(stream.status());
  if (absl::Status s = trial.Prepare(); !s.ok()) return NotDeclined(s);
  absl::StatusOr<Graph> graph = CaptureForward(trial, *stream);
  if (!graph.ok()) return graph.status();

  absl::StatusOr<oracle::Trial::Run> replayed = Replay(trial, *graph, *stream);
  if (!replayed.ok()) return NotDeclined(replayed.status());
  std::string difference = Difference(c, trial, ready->plain, *replayed);
  if (!difference.empty()) {
    return absl::InternalError(absl::StrCat("a graph of Forward(), replayed: ", difference));
  }

  // Same addresses, other numbers: a graph must read its inputs when it is replayed.
  if (absl::Status s = OtherNumbers(c.problem, trial.inputs()); !s.ok()) return NotDeclined(s);
  replayed = Replay(trial, *graph, *stream);
  if (!replayed.ok()) return NotDeclined(replayed.status());
  absl::StatusOr<oracle::Trial::Run> plain = trial.RunOnce();
  if (!plain.ok()) return NotDeclined(plain.status());
  difference = Difference(c, trial, *plain, *replayed);
  if (difference.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "a graph of Forward(), replayed with other numbers in its inputs: ", difference));
}

absl::Status AllocatesNothing(const Subject& subject, const Case& c) {
  absl::StatusOr<Ready> ready = MakeReady(subject, c);
  if (!ready.ok()) return ready.status();
  const int ordinal = subject.device.ordinal;

  // cudaMallocAsync() shows in the pool that it allocates from…
  absl::StatusOr<Stream> stream = Stream::Create(ordinal, Stream::Kind::kOrdinary);
  if (!stream.ok()) return NotDeclined(stream.status());
  if (absl::Status s = ready->trial.Prepare(); !s.ok()) return NotDeclined(s);
  if (absl::Status s = cuda_backend::ResetPoolPeak(ordinal); !s.ok()) return NotDeclined(s);
  absl::StatusOr<PoolUse> before = cuda_backend::GetPoolUse(ordinal);
  if (!before.ok()) return NotDeclined(before.status());
  if (absl::Status s = ready->trial.Start(stream->get()); !s.ok()) return NotDeclined(s);
  if (absl::Status s = stream->Synchronize(); !s.ok()) return NotDeclined(s);
  absl::StatusOr<PoolUse> after = cuda_backend::GetPoolUse(ordinal);
  if (!after.ok()) return NotDeclined(after.status());
  if (after->peak > before->bytes) {
    return absl::InternalError(absl::StrCat("Forward() takes ", after->peak - before->bytes,
                                            " bytes from the device's memory pool, even after the "
                                            "first call"));
  }

  // …unless it is captured; cudaMalloc() is an error during capture.
  if (absl::Status s = ready->trial.Prepare(); !s.ok()) return NotDeclined(s);
  absl::StatusOr<Graph> graph = CaptureForward(ready->trial, *stream);
  if (!graph.ok()) return graph.status();
  if (graph->allocations() == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a graph of Forward() has ", graph->allocations(),
                                          " allocations among its ", graph->nodes(), " nodes"));
}

absl::Status RunsOnTheCallersStream(const Subject& subject, const Case& c) {
  absl::StatusOr<Ready> ready = MakeReady(subject, c);
  if (!ready.ok()) return ready.status();
  oracle::Trial& trial = ready->trial;
  // An independent stream: the default stream does not wait for its gate, so work there shows.
  absl::StatusOr<Stream> stream =
      Stream::Create(subject.device.ordinal, Stream::Kind::kIndependent);
  if (!stream.ok()) return NotDeclined(stream.status());
  if (absl::Status s = trial.Prepare(); !s.ok()) return NotDeclined(s);
  absl::StatusOr<Gate> gate = Gate::Close(*stream, kGateSeconds);
  if (!gate.ok()) return NotDeclined(gate.status());
  if (absl::Status s = trial.Start(stream->get()); !s.ok()) return NotDeclined(s);
  const bool waited = gate->TimedOut();

  std::this_thread::sleep_for(kHeadStart);
  absl::StatusOr<std::string> written = trial.WrittenTo();
  // False if the machine was busy and we looked only after the gate had opened by itself.
  const bool in_time = !gate->TimedOut();
  gate->Open();
  if (absl::Status s = stream->Synchronize(); !s.ok()) return NotDeclined(s);
  if (!written.ok()) return NotDeclined(written.status());
  if (waited) {
    return absl::InternalError("Forward() waits for earlier work of its stream");
  }
  if (in_time && !written->empty()) {
    return absl::InternalError(
        absl::StrCat("Forward() writes to ", *written,
                     " before earlier work of its stream is done: it uses another stream than "
                     "its caller's"));
  }
  absl::StatusOr<oracle::Trial::Run> run = trial.Finish();
  if (!run.ok()) return NotDeclined(run.status());
  const std::string difference = Difference(c, trial, ready->plain, *run);
  if (difference.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("on another stream: ", difference));
}

}  // namespace attnlab::conformance
