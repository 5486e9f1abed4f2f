// Measures how close the elementwise steps come to the memory bandwidth. Each step is timed at the
// sizes of a problem, beside a plain copy on the device, in the same run.
//
//   bandwidth [--batch=64] [--at_least=0.85] [--json=FILE]
//
// The problem is GPT-2's layer (12 heads of 64, 1024 tokens, packed QKV) with a batch of --batch;
// 64 is eight times the usual. A rate is bytes read plus bytes written over the median time. Inputs
// are random, and some rows of each step's output are checked.
//
// Exit status: 0; 1 if a result is wrong or a step's default block stays below --at_least of the
// copy; 2 if it cannot run; 3 if there is no GPU or no driver, as for attnlab.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/baseline/permute.h"
#include "attention/baseline/softmax.h"
#include "attention/core/mix.h"
#include "attention/core/statistics.h"
#include "attention/cuda/look_for_gpus.h"
#include "tools/lib/arguments.h"
#include "tools/lib/json.h"

namespace attnlab::baseline {
namespace {

constexpr int64_t kHeads = 12, kTokens = 1024, kDim = 64;
constexpr int kRepetitions = 25;

#define CHECK(call)                                                                  \
  do {                                                                               \
    const cudaError_t error = (call);                                                \
    if (error != cudaSuccess) {                                                      \
      std::fprintf(stderr, "bandwidth: %s: %s\n", #call, cudaGetErrorString(error)); \
      std::exit(2);                                                                  \
    }                                                                                \
  } while (false)

// Ends the program if there is no GPU to run on.
void CheckGpu() {
  const char* reason = nullptr;
  if (device::LookForGpus(&reason) == cudaSuccess) return;
  std::fprintf(stderr, "bandwidth: looking for GPUs: %s\n", reason);
  std::exit(3);
}

// A random number of mean 0, computed from an index as a sum of uniforms.
__host__ __device__ float RandomAt(uint64_t index) {
  const uint64_t x = Mix(index * kGolden + 0xD1B54A32D192ED03u);
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>((x >> (16 * i)) & 0xFFFF) / 65536 - 0.5f;
  return 1.7f * sum;
}

__global__ void FillKernel(float* data, int64_t n) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    data[i] = RandomAt(static_cast<uint64_t>(i));
  }
}

void* Allocate(int64_t bytes) {
  void* data = nullptr;
  CHECK(cudaMalloc(&data, static_cast<size_t>(bytes)));
  return data;
}

// The median time of a call, in seconds, between events around single calls.
double MedianSeconds(const std::function<cudaError_t()>& call) {
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  for (int i = 0; i < 3; ++i) CHECK(call());
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions; ++i) {
    float milliseconds = 0;
    CHECK(cudaEventRecord(start));
    CHECK(call());
    CHECK(cudaEventRecord(stop));
    CHECK(cudaEventSynchronize(stop));
    CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
    seconds.push_back(milliseconds * 1e-3);
  }
  CHECK(cudaEventDestroy(start));
  CHECK(cudaEventDestroy(stop));
  return Quantile(std::move(seconds), 0.5);
}

struct Step {
  std::string name;
  double bytes;
  int default_block;
  std::function<cudaError_t(int block)> run;
  std::function<bool()> check;  // after a run
};

template <typename T>
std::vector<T> Fetch(const void* data, int64_t offset, int64_t count) {
  std::vector<T> values(count);
  CHECK(cudaMemcpy(values.data(), static_cast<const T*>(data) + offset, count * sizeof(T),
                   cudaMemcpyDeviceToHost));
  return values;
}

class Bench {
 public:
  explicit Bench(int64_t batch) : batch_(batch) {
    qkv_ = static_cast<float*>(Allocate(batch * kTokens * 3 * kHeads * kDim * 4));
    matrices_ = static_cast<float*>(Allocate(Elements() * 4));
    output_ = static_cast<float*>(Allocate(Elements() * 4));
    source_ = static_cast<float*>(Allocate(Scores() * 4));
    scores_ = static_cast<float*>(Allocate(Scores() * 4));
    target_ = static_cast<float*>(Allocate(Scores() * 4));
    Fill(qkv_, 3 * Elements());
    Fill(matrices_, Elements());
    Fill(source_, Scores());
    CHECK(cudaMemcpy(scores_, source_, Scores() * 4, cudaMemcpyDeviceToDevice));
  }

  double CopyRate() {
    const double seconds = MedianSeconds([this] {
      return cudaMemcpyAsync(target_, source_, Scores() * 4, cudaMemcpyDeviceToDevice);
    });
    return 2 * 4 * static_cast<double>(Scores()) / seconds;
  }

  std::vector<Step> Steps() {
    const auto elements = static_cast<double>(Elements());
    const auto scores = static_cast<double>(Scores());
    return {
        {"permute K of packed QKV", 8 * elements, 128,
         [this](int block) { return baseline::Permute(ToMatrices(), block, nullptr); },
         [this] { return CheckToMatrices(); }},
        {"permute O to BSHD", 8 * elements, 128,
         [this](int block) { return baseline::Permute(ToTensor(), block, nullptr); },
         [this] { return CheckToTensor(); }},
        {"scale and mask", 8 * scores, 32,
         [this](int block) {
           return ScaleAndMask(Rows(), {0.125f, 0}, scores_, kTokens, block, nullptr);
         },
         [] { return true; }},  // in place and repeated: the conformance test checks it
        {"softmax, fp32", 8 * scores, 32,
         [this](int block) {
           return Softmax(SoftmaxOf(device::Element::kFloat32), block, nullptr);
         },
         [this] { return CheckSoftmax<float>(1e-6); }},
        {"softmax, bf16", 6 * scores, 32,
         [this](int block) {
           return Softmax(SoftmaxOf(device::Element::kBFloat16), block, nullptr);
         },
         [this] { return CheckSoftmax<__nv_bfloat16>(1e-2); }},
    };
  }

 private:
  int64_t Elements() const { return batch_ * kTokens * kHeads * kDim; }
  int64_t Scores() const { return batch_ * kHeads * kTokens * kTokens; }

  static void Fill(float* data, int64_t n) {
    FillKernel<<<4096, 256>>>(data, n);
    CHECK(cudaGetLastError());
  }

  PermuteTask Task() const {
    PermuteTask task;
    task.matrices = {matrices_, kTokens * kDim, kDim};
    task.count = batch_ * kHeads;
    task.heads = kHeads;
    task.length = kTokens;
    task.columns = kDim;
    task.sequences.longest = kTokens;
    return task;
  }
  PermuteTask ToMatrices() const {
    PermuteTask task = Task();
    constexpr int64_t kToken = 3 * kHeads * kDim;
    task.tensor = {qkv_ + kHeads * kDim, device::Element::kFloat32, kTokens * kToken, kToken, kDim};
    return task;
  }
  PermuteTask ToTensor() const {
    PermuteTask task = Task();
    task.direction = PermuteTask::Direction::kToTensor;
    constexpr int64_t kToken = kHeads * kDim;
    task.tensor = {output_, device::Element::kFloat32, kTokens * kToken, kToken, kDim};
    return task;
  }

  ScoreRows Rows() const {
    ScoreRows rows;
    rows.count = batch_ * kHeads;
    rows.hq = kHeads;
    rows.sq = rows.skv = kTokens;
    rows.mask = Mask::Causal();
    rows.q.longest = rows.kv.longest = kTokens;
    return rows;
  }
  SoftmaxTask SoftmaxOf(device::Element element) const {
    SoftmaxTask task;
    task.rows = Rows();
    task.scores = source_;
    task.score_stride = kTokens;
    task.probabilities = target_;
    task.element = element;
    task.probability_stride = kTokens;
    return task;
  }

  // Checks some rows (sequence, head, token).
  template <typename Check>
  bool Sampled(const Check& check) const {
    for (uint64_t i = 0; i < 64; ++i) {
      const auto at = [i](int64_t n, uint64_t salt) {
        return static_cast<int64_t>((i * 0x9E3779B97F4A7C15u + salt) >> 33) % n;
      };
      if (!check(at(batch_, 1), at(kHeads, 1u << 20), at(kTokens, 1u << 30))) return false;
    }
    return true;
  }
  bool CheckToMatrices() const {
    return Sampled([this](int64_t b, int64_t h, int64_t t) {
      return Fetch<float>(matrices_, ((b * kHeads + h) * kTokens + t) * kDim, kDim) ==
             Fetch<float>(qkv_, ((b * kTokens + t) * 3 * kHeads + kHeads + h) * kDim, kDim);
    });
  }
  bool CheckToTensor() const {
    return Sampled([this](int64_t b, int64_t h, int64_t t) {
      return Fetch<float>(matrices_, ((b * kHeads + h) * kTokens + t) * kDim, kDim) ==
             Fetch<float>(output_, ((b * kTokens + t) * kHeads + h) * kDim, kDim);
    });
  }
  template <typename T>
  bool CheckSoftmax(double tolerance) const {
    return Sampled([&](int64_t b, int64_t h, int64_t t) {
      const int64_t row = ((b * kHeads + h) * kTokens + t) * kTokens;
      const std::vector<float> scores = Fetch<float>(source_, row, kTokens);
      const std::vector<T> probabilities = Fetch<T>(target_, row, kTokens);
      double sum = 0;
      for (const float s : scores) sum += std::exp(double{s});
      for (int64_t i = 0; i < kTokens; ++i) {
        const double exact = std::exp(double{scores[i]}) / sum;
        const double error =
            std::abs(static_cast<double>(static_cast<float>(probabilities[i])) - exact);
        if (!(error <= tolerance * exact)) return false;
      }
      return true;
    });
  }

  int64_t batch_;
  float *qkv_, *matrices_, *output_, *source_, *scores_, *target_;
};

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "bandwidth: %s\n", status.ToString().c_str());
  return 2;
}

int Main(int argc, char** argv) {
  int64_t batch = 64;
  double at_least = 0;
  std::string json_path;
  ArgumentParser parser("bandwidth",
                        "Compares the baseline's elementwise steps with a plain copy.");
  parser.AddInteger("batch", "N", &batch, 1, 4096, "Batch of GPT-2's layer [64].");
  parser.AddNumber("at_least", "X", &at_least, 0, 1,
                   "Fail if a default block stays below this share of the copy [0].");
  parser.AddString("json", "FILE", &json_path, "Write the rows as JSON, too.");
  if (const std::optional<int> code = parser.ParseMain(argc, argv)) return *code;
  absl::StatusOr<JsonFile> file = JsonFile::Create(json_path);
  if (!file.ok()) return Fail(file.status());
  CheckGpu();
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  Bench bench(batch);
  const double copy = bench.CopyRate();
  std::printf("%s, GPT-2's layer with a batch of %ld; copy %.0f GB/s\n\n", device.name,
              static_cast<long>(batch), copy * 1e-9);
  std::printf("| step | block | GB/s | of the copy |\n|---|---|---|---|\n");
  Json rows = Json::array();
  bool ok = true;
  for (const Step& step : bench.Steps()) {
    for (const int block : {32, 64, 128, 256, 512}) {
      const double rate = step.bytes / MedianSeconds([&] { return step.run(block); });
      const bool is_default = block == step.default_block;
      const bool right = step.check();
      std::printf("| %s | %d%s | %.0f | %.3f |%s\n", step.name.c_str(), block,
                  is_default ? " (default)" : "", rate * 1e-9, rate / copy, right ? "" : " WRONG");
      ok = ok && right && (!is_default || rate >= at_least * copy);
      rows.push_back({{"step", step.name},
                      {"block", block},
                      {"default", is_default},
                      {"gb_per_s", rate * 1e-9},
                      {"of_copy", rate / copy},
                      {"correct", right}});
    }
  }
  const double again = bench.CopyRate();
  std::printf("\ncopy again: %.0f GB/s\n", again * 1e-9);
  const absl::Status s = file->Write({{"gpu", device.name},
                                      {"commit", CommitOfEnvironment()},
                                      {"batch", batch},
                                      {"copy_gb_per_s", copy * 1e-9},
                                      {"copy_again_gb_per_s", again * 1e-9},
                                      {"rows", rows}});
  if (!s.ok()) return Fail(s);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace attnlab::baseline

int main(int argc, char** argv) { return attnlab::baseline::Main(argc, argv); }
