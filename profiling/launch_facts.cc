#include "profiling/launch_facts.h"

#include <cuda.h>

#include <utility>

#include "attention/cuda/call.h"
#include "attention/cuda/driver_function.h"
#include "cuda_runtime_api.h"
#include "profiling/kernel_name.h"

namespace attnlab::profiling {
namespace {

using cuda_backend::ScopedDevice;
using cuda_backend::ToStatus;

// The driver functions that are used.
struct Driver {
  decltype(&cuGraphKernelNodeGetParams) node_params;
  decltype(&cuKernelGetFunction) function_of;
  decltype(&cuFuncGetName) name_of;
  decltype(&cuFuncGetAttribute) attribute_of;
  decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor) most_blocks;
};

template <typename Function>
absl::Status Find(const char* name, unsigned version, Function* function) {
  const absl::StatusOr<Function> found = cuda_backend::DriverFunction<Function>(name, version);
  if (found.ok()) *function = *found;
  return found.status();
}

absl::StatusOr<Driver> FindDriver() {
  Driver driver = {};
  absl::Status s = Find("cuGraphKernelNodeGetParams", 12000, &driver.node_params);
  if (s.ok()) s = Find("cuKernelGetFunction", 12000, &driver.function_of);
  if (s.ok()) s = Find("cuFuncGetName", 12030, &driver.name_of);
  if (s.ok()) s = Find("cuFuncGetAttribute", 2020, &driver.attribute_of);
  if (s.ok()) s = Find("cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050, &driver.most_blocks);
  if (!s.ok()) return s;
  return driver;
}

// Owns a stream and a graph.
struct Recording {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  ~Recording() {
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
};

absl::Status Record(absl::FunctionRef<absl::Status(void* stream)> enqueue, Recording* recording) {
  absl::Status s = ToStatus(cudaStreamCreateWithFlags(&recording->stream, cudaStreamNonBlocking),
                            "cudaStreamCreateWithFlags");
  if (!s.ok()) return s;
  s = ToStatus(cudaStreamBeginCapture(recording->stream, cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
  if (!s.ok()) return s;
  const absl::Status enqueued = enqueue(recording->stream);
  // Always called, because it ends the capture.
  s = ToStatus(cudaStreamEndCapture(recording->stream, &recording->graph), "cudaStreamEndCapture");
  return enqueued.ok() ? s : enqueued;
}

absl::StatusOr<LaunchFacts> FactsOfNode(const Driver& driver, cudaGraphNode_t node,
                                        int64_t threads_per_multiprocessor) {
  CUDA_KERNEL_NODE_PARAMS params = {};
  absl::Status s =
      cuda_backend::DriverStatus(driver.node_params(node, &params), "cuGraphKernelNodeGetParams");
  if (!s.ok()) return s;
  CUfunction function = params.func;
  if (function == nullptr) {
    s = cuda_backend::DriverStatus(driver.function_of(&function, params.kern),
                                   "cuKernelGetFunction");
    if (!s.ok()) return s;
  }
  LaunchFacts facts;
  facts.grid = {params.gridDimX, params.gridDimY, params.gridDimZ};
  facts.block = {params.blockDimX, params.blockDimY, params.blockDimZ};
  facts.dynamic_shared_bytes = params.sharedMemBytes;
  const char* name = nullptr;
  s = cuda_backend::DriverStatus(driver.name_of(&name, function), "cuFuncGetName");
  if (!s.ok()) return s;
  facts.name = Demangled(name);
  int shared = 0, local = 0;
  const std::pair<CUfunction_attribute, int*> attributes[] = {
      {CU_FUNC_ATTRIBUTE_NUM_REGS, &facts.registers},
      {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &shared},
      {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &local},
  };
  for (const auto& [attribute, value] : attributes) {
    s = cuda_backend::DriverStatus(driver.attribute_of(value, attribute, function),
                                   "cuFuncGetAttribute");
    if (!s.ok()) return s;
  }
  facts.static_shared_bytes = shared;
  facts.local_bytes = local;
  const int64_t threads = facts.block[0] * facts.block[1] * facts.block[2];
  s = cuda_backend::DriverStatus(
      driver.most_blocks(&facts.blocks_per_multiprocessor, function, static_cast<int>(threads),
                         params.sharedMemBytes),
      "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  if (!s.ok()) return s;
  facts.theoretical_occupancy =
      OccupancyOf(facts.blocks_per_multiprocessor, threads, threads_per_multiprocessor);
  return facts;
}

}  // namespace

double OccupancyOf(int64_t blocks, int64_t threads, int64_t threads_per_multiprocessor) {
  const int64_t warps = (threads + 31) / 32 * blocks;
  return static_cast<double>(32 * warps) / static_cast<double>(threads_per_multiprocessor);
}

absl::StatusOr<std::vector<LaunchFacts>> FactsOf(
    int ordinal, absl::FunctionRef<absl::Status(void* stream)> enqueue) {
  const ScopedDevice current(ordinal);
  if (!current.status().ok()) return current.status();
  const absl::StatusOr<Driver> driver = FindDriver();
  if (!driver.ok()) return driver.status();
  int threads = 0;
  absl::Status s = ToStatus(
      cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, ordinal), "device");
  if (!s.ok()) return s;
  Recording recording;
  if (s = Record(enqueue, &recording); !s.ok()) return s;

  size_t count = 0;
  s = ToStatus(cudaGraphGetNodes(recording.graph, nullptr, &count), "cudaGraphGetNodes");
  if (!s.ok()) return s;
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) {
    s = ToStatus(cudaGraphGetNodes(recording.graph, nodes.data(), &count), "cudaGraphGetNodes");
    if (!s.ok()) return s;
  }
  std::vector<LaunchFacts> facts;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    s = ToStatus(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    if (!s.ok()) return s;
    if (type != cudaGraphNodeTypeKernel) continue;  // memset or copy
    absl::StatusOr<LaunchFacts> of_node = FactsOfNode(*driver, node, threads);
    if (!of_node.ok()) return of_node.status();
    facts.push_back(*std::move(of_node));
  }
  return facts;
}

}  // namespace attnlab::profiling
