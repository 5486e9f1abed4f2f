// Runs the kernel of planted.h and compares its O with double precision, as the conformance suite
// does, but in a file that a debugger shows in full.
//
//   planted BUG [--print_row=N]
//
// BUG is one of the names below. Prints what is wrong. Exit code 0: O is right (maybe by luck),
// otherwise 1; 2: bad command line; 3: no GPU, no driver or another CUDA error; 4: not enough GPU
// memory.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "attention/cuda/look_for_gpus.h"
#include "ci/debugging/planted.h"
#include "cuda_runtime_api.h"
#include "tools/lib/arguments.h"

namespace attnlab::debugging {
namespace {

constexpr int kNoBugFound = 0, kWrong = 1, kUsage = 2, kCudaError = 3, kNoMemory = 4;
constexpr int64_t kRows = 5;

struct Name {
  const char* name;
  Bug bug;
};
constexpr Name kNames[] = {
    {"none", Bug::kNone},
    {"out_of_bounds", Bug::kOutOfBounds},
    {"misaligned", Bug::kMisaligned},
    {"uninitialized", Bug::kUninitialized},
    {"missing_barrier", Bug::kMissingBarrier},
    {"divergent_barrier", Bug::kDivergentBarrier},
    {"warp_mask", Bug::kWarpMask},
    {"index_overflow", Bug::kIndexOverflow},
    {"stale_maximum", Bug::kStaleMaximum},
};

[[noreturn]] void Stop(const char* what, cudaError_t error) {
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(error == cudaErrorMemoryAllocation ? kNoMemory : kCudaError);
}

void Check(const char* what, cudaError_t error) {
  if (error != cudaSuccess) Stop(what, error);
}

// Exits with 3 if there is no usable GPU.
void CheckGpu() {
  const char* reason = nullptr;
  const cudaError_t error = attnlab::device::LookForGpus(&reason);
  if (error != cudaErrorInsufficientDriver && error != cudaErrorNoDevice) {
    Check("looking for GPUs", error);
    return;
  }
  std::fprintf(stderr, "planted: looking for GPUs: %s\n", reason);
  std::exit(kCudaError);
}

// GPU memory of exactly this size, so that a sanitizer sees accesses past its end.
class DeviceArray {
 public:
  explicit DeviceArray(int64_t floats) {
    Check("cudaMalloc", cudaMalloc(&data_, static_cast<size_t>(floats) * sizeof(float)));
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }
  float* data() { return static_cast<float*>(data_); }

 private:
  void* data_ = nullptr;
};

// Numbers in [-2, 2), the same every time.
std::vector<float> Numbers(int64_t count, uint32_t seed) {
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) {
    seed = seed * 1664525u + 1013904223u;
    number = static_cast<float>(seed >> 8) * 0x1p-22f - 2;
  }
  return numbers;
}

// O in double precision.
std::vector<double> Exact(const std::vector<float>& q, const std::vector<float>& k,
                          const std::vector<float>& v, int64_t keys) {
  std::vector<double> o(kRows * kDim, 0.0);
  for (int64_t row = 0; row < kRows; ++row) {
    std::vector<double> scores(static_cast<size_t>(keys), 0.0);
    double max = -INFINITY, sum = 0;
    for (int64_t key = 0; key < keys; ++key) {
      for (int c = 0; c < kDim; ++c) {
        scores[key] += static_cast<double>(q[row * kDim + c]) * k[key * kDim + c] / std::sqrt(kDim);
      }
      max = std::fmax(max, scores[key]);
    }
    for (double& score : scores) sum += score = std::exp(score - max);
    for (int64_t key = 0; key < keys; ++key) {
      for (int c = 0; c < kDim; ++c) o[row * kDim + c] += scores[key] / sum * v[key * kDim + c];
    }
  }
  return o;
}

// Prints how many elements are wrong, and the first of them.
int Compare(const std::vector<float>& o, const std::vector<double>& exact) {
  int64_t wrong = 0;
  for (size_t i = 0; i < o.size(); ++i) {
    if (std::fabs(o[i] - exact[i]) <= 1e-5) continue;  // false for NaN
    if (wrong++ == 0) {
      std::printf("o: row %zu, dim %zu: %g, where %g is right\n", i / kDim, i % kDim, o[i],
                  exact[i]);
    }
  }
  std::printf("o: %lld of %zu elements are wrong\n", static_cast<long long>(wrong), o.size());
  return wrong == 0 ? kNoBugFound : kWrong;
}

int Run(Bug bug, int64_t print_row) {
  CheckGpu();
  // The keys are no multiple of the tile, and the rows of K are not aligned to 16 bytes.
  int64_t keys = 77, k_stride = kDim + 1;
  if (bug == Bug::kIndexOverflow) keys = 20, k_stride = (int64_t{1} << 26) + kDim;  // 5 GiB
  const std::vector<float> q = Numbers(kRows * kDim, 1), k = Numbers(keys * kDim, 2),
                           v = Numbers(keys * kDim, 3);
  DeviceArray device_q(kRows * kDim), device_k((keys - 1) * k_stride + kDim), device_v(keys * kDim),
      device_o(kRows * kDim), workspace(kRows);
  constexpr size_t kRow = kDim * sizeof(float);
  Check("copying Q", cudaMemcpy(device_q.data(), q.data(), kRows * kRow, cudaMemcpyHostToDevice));
  Check("copying V", cudaMemcpy(device_v.data(), v.data(), keys * kRow, cudaMemcpyHostToDevice));
  for (int64_t key = 0; key < keys; ++key) {
    Check("copying K", cudaMemcpy(device_k.data() + key * k_stride, k.data() + key * kDim, kRow,
                                  cudaMemcpyHostToDevice));
  }
  Check("launch",
        Attention(bug, {device_q.data(), device_k.data(), device_v.data(), device_o.data(),
                        workspace.data(), kRows, keys, k_stride, print_row}));
  Check("kernel", cudaDeviceSynchronize());
  std::vector<float> o(kRows * kDim);
  Check("copying O", cudaMemcpy(o.data(), device_o.data(), kRows * kRow, cudaMemcpyDeviceToHost));
  return Compare(o, Exact(q, k, v, keys));
}

int Main(int argc, char** argv) {
  int64_t print_row = -1;
  std::vector<std::string> bugs, names;
  ArgumentParser parser("planted", "Attention with a bug planted in it, for debuggers to find.");
  parser.AddPositional("BUG", &bugs);
  parser.AddInteger("print_row", "N", &print_row, 0, kRows - 1, "Print this row from the kernel.");
  for (const Name& name : kNames) names.push_back(name.name);
  parser.AddSection("BUG is one of", absl::StrJoin(names, ", "));
  if (const std::optional<int> code = parser.ParseMain(argc, argv)) return *code;
  const auto bug = std::find_if(std::begin(kNames), std::end(kNames), [&bugs](const Name& name) {
    return bugs.size() == 1 && bugs[0] == name.name;
  });
  if (bug != std::end(kNames)) return Run(bug->bug, print_row);
  std::fprintf(stderr, "planted: BUG is not one of %s\n", absl::StrJoin(names, ", ").c_str());
  return kUsage;
}

}  // namespace
}  // namespace attnlab::debugging

int main(int argc, char** argv) { return attnlab::debugging::Main(argc, argv); }
