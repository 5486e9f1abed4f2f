/* The C interface on CUDA tensors: every linked CUDA kernel against the oracle on the host, on a
 * stream of its own, in a graph, and with bad input, after which the GPU still works. */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attention/c/attention_c_expect.h"
#include "cuda_runtime_api.h"

#define CUDA(call) ExpectCuda((call), #call, __LINE__)
static void ExpectCuda(cudaError_t error, const char* what, int line) {
  if (error == cudaSuccess) return;
  printf("%s:%d: %s: %s\n", __FILE__, line, what, cudaGetErrorString(error));
  ++failures;
}

enum { kMaxElements = 1 << 16 };

/* One problem with its data on the host and on cuda:0: q, k, v, o and lse. */
typedef struct {
  attnlab_problem problem;
  attnlab_tensor host[5], device[5];
  attnlab_forward_args args; /* of the device */
  attnlab_plan* plan;
  int32_t *host_cu, *device_cu;
} Call;

static size_t Bytes(const attnlab_tensor* t) {
  const size_t elements = (size_t)(t->shape[0] * t->strides[0]);
  return elements * (t->dtype == ATTNLAB_FP32 ? 4 : 2);
}

static float Load(const attnlab_tensor* t, size_t i) {
  if (t->dtype == ATTNLAB_FP32) return ((const float*)t->data)[i];
  const uint16_t bits = ((const uint16_t*)t->data)[i];
  if (t->dtype == ATTNLAB_BF16) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
  }
  _Float16 half;
  memcpy(&half, &bits, sizeof half);
  return (float)half;
}

static void Store(const attnlab_tensor* t, size_t i, float value) {
  if (t->dtype == ATTNLAB_FP32) {
    ((float*)t->data)[i] = value;
  } else if (t->dtype == ATTNLAB_BF16) {
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    ((uint16_t*)t->data)[i] = (uint16_t)(wide >> 16);
  } else {
    const _Float16 half = (_Float16)value;
    memcpy((uint16_t*)t->data + i, &half, sizeof half);
  }
}

static size_t Elements(const attnlab_tensor* t) {
  return (size_t)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]);
}

/* Uniform numbers in -2..2, the same for the same seed. */
static void Randomize(Call* call, uint32_t seed) {
  for (int i = 0; i < 3; ++i) {
    for (size_t j = 0; j < Elements(&call->host[i]); ++j) {
      seed = seed * 1664525u + 1013904223u;
      Store(&call->host[i], j, (float)(seed >> 8) / (1 << 22) - 2);
    }
  }
}

static attnlab_tensor Contiguous(int32_t dtype, int64_t b, int64_t s, int64_t h, int64_t d) {
  attnlab_tensor t = {.size = sizeof t, .dtype = dtype, .shape = {b, s, h, d}};
  const int64_t strides[4] = {s * h * d, h * d, d, 1};
  memcpy(t.strides, strides, sizeof strides);
  return t;
}

/* Makes the call of that line on cuda:0, or returns 0 where the kernel declines the problem. The
 * host's tensors are pinned, so that copies of them are asynchronous. */
static int Make(Call* call, const char* kernel, const char* line) {
  memset(call, 0, sizeof *call);
  attnlab_problem* const p = &call->problem;
  p->size = sizeof *p;
  EXPECT(attnlab_problem_parse(line, p) == ATTNLAB_OK);
  const attnlab_plan_args plan_args = {
      .size = sizeof plan_args, .problem = p, .device_kind = ATTNLAB_CUDA, .kernel = kernel};
  const int32_t code = attnlab_plan_create(&plan_args, &call->plan);
  if (code == ATTNLAB_UNIMPLEMENTED) {
    printf("declined: %s\n", attnlab_last_error());
    return 0;
  }
  EXPECT(code == ATTNLAB_OK);
  if (code != ATTNLAB_OK) return 0;
  const int packed = p->lens == ATTNLAB_LENS_PACKED;
  const int64_t b = packed ? 1 : p->b;
  const int64_t sq = packed ? p->b * p->sq : p->sq, skv = packed ? p->b * p->skv : p->skv;
  call->host[0] = Contiguous(p->dtype, b, sq, p->hq, p->d);
  call->host[1] = Contiguous(p->dtype, b, skv, p->hkv, p->d);
  call->host[2] = Contiguous(p->dtype, b, skv, p->hkv, p->dv);
  call->host[3] = Contiguous(p->dtype, b, sq, p->hq, p->dv);
  call->host[4] = Contiguous(ATTNLAB_FP32, b, sq, p->hq, 1);
  for (int i = 0; i < 5; ++i) {
    CUDA(cudaMallocHost(&call->host[i].data, Bytes(&call->host[i])));
    call->device[i] = call->host[i];
    call->device[i].device_kind = ATTNLAB_CUDA;
    CUDA(cudaMalloc(&call->device[i].data, Bytes(&call->host[i])));
  }
  call->args.size = sizeof call->args;
  call->args.q = &call->device[0];
  call->args.k = &call->device[1];
  call->args.v = &call->device[2];
  call->args.o = &call->device[3];
  call->args.lse = &call->device[4];
  if (packed) { /* the first sequence has all its rows, the others one less, the last ends early */
    const size_t bytes = (size_t)(p->b + 1) * 2 * sizeof(int32_t);
    CUDA(cudaMallocHost((void**)&call->host_cu, bytes));
    CUDA(cudaMalloc((void**)&call->device_cu, bytes));
    int32_t* const cu_kv = call->host_cu + p->b + 1;
    call->host_cu[0] = cu_kv[0] = 0;
    for (int64_t i = 0; i < p->b; ++i) {
      call->host_cu[i + 1] = call->host_cu[i] + (int32_t)p->sq - (i > 0);
      cu_kv[i + 1] = cu_kv[i] + (int32_t)p->skv - (i > 0);
    }
    CUDA(cudaMemcpy(call->device_cu, call->host_cu, bytes, cudaMemcpyHostToDevice));
    call->args.cu_seqlens_q = call->device_cu;
    call->args.cu_seqlens_kv = call->device_cu + p->b + 1;
  }
  EXPECT(attnlab_plan_workspace_bytes(call->plan, &call->args.workspace_bytes) == ATTNLAB_OK);
  if (call->args.workspace_bytes > 0) {
    CUDA(cudaMalloc(&call->args.workspace, (size_t)call->args.workspace_bytes));
    CUDA(cudaMemset(call->args.workspace, 0xFF, (size_t)call->args.workspace_bytes));
    CUDA(cudaDeviceSynchronize()); /* other streams do not wait for cudaMemset */
  }
  return 1;
}

static void Free(Call* call) {
  EXPECT(attnlab_plan_destroy(call->plan) == ATTNLAB_OK);
  for (int i = 0; i < 5; ++i) {
    CUDA(cudaFreeHost(call->host[i].data));
    CUDA(cudaFree(call->device[i].data));
  }
  CUDA(cudaFreeHost(call->host_cu));
  CUDA(cudaFree(call->device_cu));
  CUDA(cudaFree(call->args.workspace));
}

/* Puts the inputs, NaN in place of the outputs, attention and the way back into the stream. */
static void CopyIn(Call* call, cudaStream_t stream) {
  for (int i = 0; i < 5; ++i) {
    if (i >= 3) memset(call->host[i].data, 0xFF, Bytes(&call->host[i]));
    CUDA(cudaMemcpyAsync(call->device[i].data, call->host[i].data, Bytes(&call->host[i]),
                         cudaMemcpyHostToDevice, stream));
  }
}

static void CopyOut(Call* call, cudaStream_t stream) {
  for (int i = 3; i < 5; ++i) {
    CUDA(cudaMemcpyAsync(call->host[i].data, call->device[i].data, Bytes(&call->host[i]),
                         cudaMemcpyDeviceToHost, stream));
  }
}

/* The outputs on the host against the oracle's; rows of no sequence must still be NaN. */
static void Check(const Call* call, const char* what) {
  attnlab_tensor exact[2] = {call->host[3], call->host[4]};
  attnlab_forward_args on_host = {.size = sizeof on_host, .problem = &call->problem};
  on_host.q = &call->host[0];
  on_host.k = &call->host[1];
  on_host.v = &call->host[2];
  on_host.o = &exact[0];
  on_host.lse = &exact[1];
  on_host.kernel = "reference";
  if (call->host_cu != NULL) {
    on_host.cu_seqlens_q = call->host_cu;
    on_host.cu_seqlens_kv = call->host_cu + call->problem.b + 1;
  }
  EXPECT(attnlab_workspace_bytes(&on_host, &on_host.workspace_bytes) == ATTNLAB_OK);
  void* const scratch = aligned_alloc(256, (size_t)on_host.workspace_bytes / 256 * 256 + 256);
  on_host.workspace = scratch;
  /* P and O are rounded to the dtype, with |V| up to 2; LSE is fp32 in every dtype. */
  const float o_bounds[3] = {2e-5f, 3e-3f, 2e-2f};
  for (int i = 0; i < 2; ++i) {
    exact[i].data = malloc(Bytes(&exact[i]));
    memset(exact[i].data, 0xFF, Bytes(&exact[i]));
  }
  EXPECT(attnlab_forward(&on_host) == ATTNLAB_OK);
  for (int i = 0; i < 2; ++i) {
    const float bound = i == 0 ? o_bounds[call->problem.dtype] : 2e-5f;
    int wrong = 0;
    for (size_t j = 0; j < Elements(&exact[i]); ++j) {
      const float want = Load(&exact[i], j), got = Load(&call->host[3 + i], j);
      const int same = isnan(want) ? isnan(got) : want == got;
      if (same || fabsf(got - want) <= bound) continue;
      if (++wrong == 1) {
        printf("%s: %s[%zu] is %g where the oracle has %g\n", what, i == 0 ? "o" : "lse", j, got,
               want);
      }
    }
    failures += wrong > 0;
    free(exact[i].data);
  }
  free(scratch);
}

static void TestValues(const char* kernel) {
  const char* const kLines[] = {
      "b=2,hq=4,hkv=2,sq=37,skv=70,d=64,dtype=fp32,mask=causal",
      "b=2,hq=4,hkv=2,sq=37,skv=70,d=64,dtype=fp16,mask=causal",
      "b=2,hq=4,hkv=2,sq=37,skv=70,d=64,dtype=bf16,mask=causal",
      "b=1,hq=3,hkv=3,sq=65,skv=65,d=40,dtype=fp32,mask=none,softcap=5",
      "b=2,hq=4,hkv=1,sq=33,skv=33,d=32,dtype=fp16,mask=window:7:2,scale=0.3",
      "b=3,hq=4,hkv=2,sq=20,skv=50,d=64,dtype=fp32,mask=causal,lens=packed",
      "b=3,hq=4,hkv=2,sq=20,skv=50,d=64,dtype=bf16,mask=none,lens=packed",
  };
  int ran = 0;
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (size_t i = 0; i < sizeof kLines / sizeof *kLines; ++i) {
    Call call;
    if (!Make(&call, kernel, kLines[i])) continue;
    ++ran;
    Randomize(&call, (uint32_t)i);
    CopyIn(&call, stream);
    call.args.stream = stream;
    EXPECT(attnlab_plan_forward(call.plan, &call.args) == ATTNLAB_OK);
    CopyOut(&call, stream);
    CUDA(cudaStreamSynchronize(stream));
    Check(&call, kLines[i]);
    /* The same without a plan. */
    call.args.problem = &call.problem;
    call.args.kernel = kernel;
    CopyIn(&call, stream);
    EXPECT(attnlab_forward(&call.args) == ATTNLAB_OK);
    CopyOut(&call, stream);
    CUDA(cudaStreamSynchronize(stream));
    Check(&call, kLines[i]);
    Free(&call);
  }
  CUDA(cudaStreamDestroy(stream));
  EXPECT(ran > 0);
}

static const char kProblem[] = "b=2,hq=4,hkv=2,sq=65,skv=65,d=64,dtype=fp16,mask=causal";

/* Holds a stream back until it is opened, or for ten seconds. */
static void CUDART_CB Gate(void* open) {
  const struct timespec moment = {.tv_nsec = 1000000};
  for (int i = 0; i < 10000 && !atomic_load((atomic_int*)open); ++i) nanosleep(&moment, NULL);
}

/* The call returns while its stream is held back, and its work waits for the inputs before it in
 * that stream. */
static void TestStreamOrder(const char* kernel) {
  static atomic_int open;
  Call call;
  cudaStream_t stream;
  if (!Make(&call, kernel, kProblem)) return;
  Randomize(&call, 3);
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  call.args.stream = stream;
  /* Once before, so that nothing is left to be loaded; it leaves wrong values, too. */
  CUDA(cudaMemset(call.device[0].data, 0, Bytes(&call.host[0])));
  EXPECT(attnlab_plan_forward(call.plan, &call.args) == ATTNLAB_OK);
  CUDA(cudaDeviceSynchronize());
  atomic_store(&open, 0);
  CUDA(cudaLaunchHostFunc(stream, Gate, &open));
  CopyIn(&call, stream);
  EXPECT(attnlab_plan_forward(call.plan, &call.args) == ATTNLAB_OK);
  CopyOut(&call, stream);
  EXPECT(cudaStreamQuery(stream) == cudaErrorNotReady); /* the gate held: nothing waited for it */
  atomic_store(&open, 1);
  CUDA(cudaStreamSynchronize(stream));
  Check(&call, "stream order");
  CUDA(cudaStreamDestroy(stream));
  Free(&call);
}

/* Recorded once, done twice, on other inputs. */
static void TestGraph(const char* kernel) {
  Call call;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  if (!Make(&call, kernel, kProblem)) return;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  call.args.stream = stream;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT(attnlab_plan_forward(call.plan, &call.args) == ATTNLAB_OK);
  CUDA(cudaStreamEndCapture(stream, &graph));
  CUDA(cudaGraphInstantiate(&executable, graph, 0));
  for (uint32_t seed = 10; seed < 12; ++seed) {
    Randomize(&call, seed);
    CopyIn(&call, stream);
    CUDA(cudaGraphLaunch(executable, stream));
    CopyOut(&call, stream);
    CUDA(cudaStreamSynchronize(stream));
    Check(&call, "graph");
  }
  CUDA(cudaGraphExecDestroy(executable));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaStreamDestroy(stream));
  Free(&call);
}

static void TestBadInput(const char* kernel) {
  Call call;
  int gpus = 0;
  const char* const kNames[] = {"q: address", "k: address", "v: address", "o: address",
                                "lse: address"};
  if (!Make(&call, kernel, kProblem)) return;
  CUDA(cudaGetDeviceCount(&gpus));
  Randomize(&call, 5);
  CopyIn(&call, NULL);
  float* const pageable = malloc(kMaxElements * sizeof(float));
  for (int i = 0; i < 5; ++i) { /* memory of the host, pinned and not */
    void* const good = call.device[i].data;
    call.device[i].data = pageable;
    EXPECT_ERROR(attnlab_plan_forward(call.plan, &call.args), ATTNLAB_INVALID_ARGUMENT, kNames[i]);
    call.device[i].data = call.host[i].data;
    EXPECT_ERROR(attnlab_plan_forward(call.plan, &call.args), ATTNLAB_INVALID_ARGUMENT, kNames[i]);
    EXPECT(strstr(attnlab_last_error(), "is not memory of cuda:0 but of the host") != NULL);
    call.device[i].data = good;
  }
  for (int i = 1; i < 5; ++i) { /* some here, some there */
    call.device[i].device_kind = ATTNLAB_CPU;
    EXPECT_ERROR(attnlab_plan_forward(call.plan, &call.args), ATTNLAB_INVALID_ARGUMENT,
                 ": on cpu, but q is on cuda:0");
    call.device[i].device_kind = ATTNLAB_CUDA;
    call.device[i].device_ordinal = 1;
    EXPECT_ERROR(attnlab_plan_forward(call.plan, &call.args), ATTNLAB_INVALID_ARGUMENT,
                 ": on cuda:1, but q is on cuda:0");
    call.device[i].device_ordinal = 0;
  }
  for (int i = 0; i < 5; ++i) call.device[i].device_ordinal = 1;
  EXPECT_ERROR(attnlab_plan_forward(call.plan, &call.args), ATTNLAB_INVALID_ARGUMENT,
               "q: on cuda:1, but the plan is for cuda:0");
  for (int i = 0; i < 5; ++i) call.device[i].device_ordinal = gpus;
  call.args.problem = &call.problem;
  EXPECT_ERROR(attnlab_forward(&call.args), ATTNLAB_NOT_FOUND, "device: there is no cuda:");
  for (int i = 0; i < 5; ++i) call.device[i].device_ordinal = 0;
  call.args.kernel = "cpu";
  EXPECT_ERROR(attnlab_forward(&call.args), ATTNLAB_UNIMPLEMENTED, "cpu: runs on the CPU");
  call.args.kernel = NULL;
  call.args.problem = NULL;

  attnlab_plan* plan = NULL;
  const attnlab_plan_args on_cpu = {
      .size = sizeof on_cpu, .problem = &call.problem, .kernel = kernel};
  EXPECT_ERROR(attnlab_plan_create(&on_cpu, &plan), ATTNLAB_UNIMPLEMENTED, "runs on CUDA devices");

  if (call.args.workspace_bytes > 0) {
    char* const good = call.args.workspace;
    call.args.workspace = good + 8;
    EXPECT_ERROR(attnlab_plan_forward(call.plan, &call.args), ATTNLAB_INVALID_ARGUMENT,
                 "workspace: ");
    call.args.workspace = aligned_alloc(256, 256);
    EXPECT_ERROR(attnlab_plan_forward(call.plan, &call.args), ATTNLAB_INVALID_ARGUMENT,
                 "workspace: address");
    free(call.args.workspace);
    call.args.workspace = NULL;
    EXPECT_ERROR(attnlab_plan_forward(call.plan, &call.args), ATTNLAB_INVALID_ARGUMENT,
                 "workspace: is null, but");
    call.args.workspace = good;
    call.args.workspace_bytes -= 1;
    EXPECT_ERROR(attnlab_plan_forward(call.plan, &call.args), ATTNLAB_INVALID_ARGUMENT,
                 "workspace: ");
    call.args.workspace_bytes += 1;
  }
  call.device[0].strides[3] = 2;
  EXPECT_ERROR(attnlab_plan_forward(call.plan, &call.args), ATTNLAB_INVALID_ARGUMENT,
               "q: stride 2 of the dim axis is not 1");
  call.device[0].strides[3] = 1;

  /* None of that launched anything, or left an error behind. */
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaGetLastError());
  CopyOut(&call, NULL);
  CUDA(cudaDeviceSynchronize());
  for (size_t j = 0; j < Elements(&call.host[3]); ++j) EXPECT(isnan(Load(&call.host[3], j)));
  EXPECT(attnlab_plan_forward(call.plan, &call.args) == ATTNLAB_OK);
  CopyOut(&call, NULL);
  CUDA(cudaDeviceSynchronize());
  Check(&call, "after bad input");
  free(pageable);
  Free(&call);
}

/* The plan's device is current during the call, the caller's after it. */
static void TestSeveralGpus(const char* kernel) {
  Call call;
  int gpus = 0, current = -1;
  CUDA(cudaGetDeviceCount(&gpus));
  if (gpus < 2) {
    printf("SKIPPED: one GPU alone, so nothing to choose between\n");
    return;
  }
  if (!Make(&call, kernel, kProblem)) return;
  Randomize(&call, 6);
  CopyIn(&call, NULL);
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaSetDevice(1));
  EXPECT(attnlab_plan_forward(call.plan, &call.args) == ATTNLAB_OK);
  CUDA(cudaGetDevice(&current));
  EXPECT(current == 1);
  CUDA(cudaSetDevice(0));
  CUDA(cudaDeviceSynchronize());
  CopyOut(&call, NULL);
  CUDA(cudaDeviceSynchronize());
  Check(&call, "another device current");
  Free(&call);
}

static void TestFork(const char* kernel) {
  Call call;
  if (!Make(&call, kernel, kProblem)) return;
  EXPECT(attnlab_plan_forward(call.plan, &call.args) == ATTNLAB_OK);
  CUDA(cudaDeviceSynchronize());
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const int32_t code = attnlab_plan_forward(call.plan, &call.args);
    _exit(code == ATTNLAB_FAILED_PRECONDITION ? 0 : 1);
  }
  int status = -1;
  EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  Free(&call);
}

int main(void) {
  int kernels = 0;
  for (int64_t i = 0;; ++i) {
    attnlab_kernel_info info = {.size = sizeof info};
    if (attnlab_kernel_get_info(i, &info) != ATTNLAB_OK) break;
    if (info.device_kind != ATTNLAB_CUDA) continue;
    ++kernels;
    printf("kernel %s\n", info.name);
    TestValues(info.name);
    TestStreamOrder(info.name);
    TestGraph(info.name);
    TestBadInput(info.name);
    TestSeveralGpus(info.name);
    TestFork(info.name);
  }
  EXPECT(kernels > 0);
  printf("%d kernels, %d failures\n", kernels, failures);
  return failures == 0 ? 0 : 1;
}
