// With a CUDA toolkit: a launch observer that asks the runtime about each function.
#include "attention/conformance/launched_code.h"

#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/cuda/launch.h"
#include "cuda_runtime_api.h"

namespace attnlab::conformance {
namespace {

std::string NameOf(const void* function) {
#if CUDART_VERSION >= 12030
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, function) == cudaSuccess && mangled != nullptr) {
    int status = 0;
    char* const plain = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
    const std::string name = status == 0 ? plain : mangled;
    std::free(plain);
    return name;
  }
#endif
  return absl::StrCat("the kernel at ", reinterpret_cast<uintptr_t>(function));
}

int CapabilityOfCurrentGpu() {
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
    return 0;
  }
  return 10 * major + minor;
}

class Watch : public device::LaunchObserver {
 public:
  explicit Watch(const CapabilityLimits& limits) : limits_(limits) {}

  void OnLaunch(const device::LaunchRecord& record) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++launches_;
    const Function& function = Find(record.function);
    if (!function.error.empty()) return Add(function.error);
    LaunchFacts facts = function.facts;
    facts.shared_bytes += static_cast<int64_t>(record.shared_bytes);
    facts.threads = int64_t{record.block.x} * record.block.y * record.block.z;
    Add(LaunchFault(facts, limits_));
  }

  LaunchReport Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    LaunchReport report{launches_, std::move(faults_)};
    launches_ = 0;
    faults_.clear();
    return report;
  }

 private:
  struct Function {
    LaunchFacts facts;  // shared_bytes: static only
    std::string error;
  };

  const Function& Find(const void* address) {
    const auto found = functions_.find(address);
    if (found != functions_.end()) return found->second;
    // The launch may be part of a stream capture, and asking about the function may load it, which
    // a capture forbids in its default mode.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    Function function;
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, address);
    function.facts.function = NameOf(address);
    function.facts.gpu_capability = CapabilityOfCurrentGpu();
    cudaThreadExchangeStreamCaptureMode(&mode);
    if (error != cudaSuccess) {
      cudaGetLastError();  // the launch reports the error again, to its caller
      function.error = absl::StrCat(function.facts.function, ": ", cudaGetErrorString(error));
    } else {
      function.facts.code_capability = attributes.ptxVersion;
      function.facts.binary_capability = attributes.binaryVersion;
      function.facts.shared_bytes = static_cast<int64_t>(attributes.sharedSizeBytes);
    }
    return functions_.emplace(address, std::move(function)).first->second;
  }

  void Add(const std::string& fault) {
    if (!fault.empty() && known_faults_.insert(fault).second) faults_.push_back(fault);
  }

  const CapabilityLimits limits_;
  std::mutex mutex_;
  int64_t launches_ = 0;
  std::map<const void*, Function> functions_;
  std::set<std::string> known_faults_;
  std::vector<std::string> faults_;
};

Watch* watch = nullptr;  // never freed: launches may come until the process ends

}  // namespace

absl::Status WatchLaunches(int compute_capability) {
  const absl::StatusOr<CapabilityLimits> limits = LimitsOf(compute_capability);
  if (!limits.ok()) return limits.status();
  watch = new Watch(*limits);
  device::SetLaunchObserver(watch);
  return absl::OkStatus();
}

LaunchReport TakeLaunchReport() { return watch == nullptr ? LaunchReport() : watch->Take(); }

}  // namespace attnlab::conformance
