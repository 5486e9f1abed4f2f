/* Plans: made once, used often, on several threads; and every way to hold them wrong. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attention/c/attention_c_expect.h"

static attnlab_plan_args plan_args;

static void ResetPlan(void) {
  Reset();
  memset(&plan_args, 0, sizeof plan_args);
  plan_args.size = sizeof plan_args;
  plan_args.problem = &problem;
  args.problem = NULL;
}

static attnlab_plan* Create(void) {
  attnlab_plan* plan = NULL;
  EXPECT(attnlab_plan_create(&plan_args, &plan) == ATTNLAB_OK);
  EXPECT(plan != NULL);
  return plan;
}

static void TestPlan(void) {
  int64_t bytes = -1;
  attnlab_plan_info info = {.size = sizeof info};
  ResetPlan();
  attnlab_plan* const plan = Create();
  problem.hq = 3; /* the plan has its own copy */
  EXPECT(attnlab_plan_workspace_bytes(plan, &bytes) == ATTNLAB_OK);
  EXPECT(bytes >= 0 && bytes <= (int64_t)sizeof workspace);
  EXPECT(attnlab_plan_get_info(plan, &info) == ATTNLAB_OK);
  EXPECT(info.size == sizeof info && info.workspace_bytes == bytes);
  EXPECT(strcmp(info.kernel, "cpu") == 0);
  EXPECT(info.flops == 2.0 * (4 + 4) * 2); /* two pairs */
  EXPECT(info.compulsory_bytes == 4 * (4 + 8 + 8 + 4));
  EXPECT(info.expected_flops >= info.flops);
  EXPECT(info.expected_bytes_read + info.expected_bytes_written >= info.compulsory_bytes);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) o_data[j] = NAN;
    EXPECT(attnlab_plan_forward(plan, &args) == ATTNLAB_OK);
    ExpectMeanOfV();
  }
  EXPECT(attnlab_plan_destroy(plan) == ATTNLAB_OK);
}

static void TestNamedKernelAndConfig(void) {
  attnlab_plan_info info = {.size = sizeof info};
  ResetPlan();
  plan_args.kernel = "reference";
  attnlab_plan* const plan = Create();
  EXPECT(attnlab_plan_get_info(plan, &info) == ATTNLAB_OK);
  EXPECT(strcmp(info.kernel, "reference") == 0);
  EXPECT(attnlab_plan_forward(plan, &args) == ATTNLAB_OK);
  ExpectMeanOfV();
  EXPECT(attnlab_plan_destroy(plan) == ATTNLAB_OK);
  plan_args.kernel = "cpu";
  plan_args.config = "threads=1";
  attnlab_plan* const configured = Create();
  EXPECT(attnlab_plan_forward(configured, &args) == ATTNLAB_OK);
  ExpectMeanOfV();
  EXPECT(attnlab_plan_destroy(configured) == ATTNLAB_OK);
}

static void TestBadPlans(void) {
  attnlab_plan* plan = (attnlab_plan*)&plan;
  ResetPlan();
  EXPECT_ERROR(attnlab_plan_create(&plan_args, NULL), ATTNLAB_INVALID_ARGUMENT, "plan: is null");
  EXPECT_ERROR(attnlab_plan_create(NULL, &plan), ATTNLAB_INVALID_ARGUMENT, "args: is null");
  EXPECT(plan == NULL);
  plan_args.size = 9;
  EXPECT_ERROR(attnlab_plan_create(&plan_args, &plan), ATTNLAB_INVALID_ARGUMENT, "args: size 9");
  ResetPlan();
  plan_args.problem = NULL;
  EXPECT_ERROR(attnlab_plan_create(&plan_args, &plan), ATTNLAB_INVALID_ARGUMENT,
               "problem: is null");
  ResetPlan();
  problem.d = 0;
  EXPECT_ERROR(attnlab_plan_create(&plan_args, &plan), ATTNLAB_INVALID_ARGUMENT, "d: 0");
  ResetPlan();
  plan_args.device_kind = 2;
  EXPECT_ERROR(attnlab_plan_create(&plan_args, &plan), ATTNLAB_INVALID_ARGUMENT,
               "device_kind: 2 is not in 0..1");
  ResetPlan();
  plan_args.device_ordinal = 1;
  EXPECT_ERROR(attnlab_plan_create(&plan_args, &plan), ATTNLAB_INVALID_ARGUMENT,
               "device_ordinal: 1 is not 0");
  ResetPlan();
  plan_args.kernel = "nothing";
  EXPECT_ERROR(attnlab_plan_create(&plan_args, &plan), ATTNLAB_NOT_FOUND, "\"nothing\"");
  ResetPlan();
  plan_args.config = "no_such_key=1";
  EXPECT_ERROR(attnlab_plan_create(&plan_args, &plan), ATTNLAB_INVALID_ARGUMENT, "no_such_key");
  /* Why not, of every kernel. */
  EXPECT(strstr(attnlab_last_error(), "\n  cpu: ") != NULL);
  EXPECT(strstr(attnlab_last_error(), "\n  reference: ") != NULL);
  EXPECT(plan == NULL);
  ResetPlan();
  plan_args.device_kind = ATTNLAB_CUDA;
  plan_args.device_ordinal = -1;
  const int32_t code = attnlab_plan_create(&plan_args, &plan);
  EXPECT(code == ATTNLAB_NOT_FOUND || code == ATTNLAB_UNAVAILABLE || code == ATTNLAB_UNIMPLEMENTED);
  EXPECT(strstr(attnlab_last_error(), "cuda:-1") != NULL);
}

static void TestBadUse(void) {
  int64_t bytes = 0;
  attnlab_plan_info info = {.size = sizeof info};
  ResetPlan();
  attnlab_plan* const plan = Create();
  EXPECT_ERROR(attnlab_plan_forward(NULL, &args), ATTNLAB_INVALID_ARGUMENT, "plan: is null");
  EXPECT_ERROR(attnlab_plan_forward(plan, NULL), ATTNLAB_INVALID_ARGUMENT, "args: is null");
  EXPECT_ERROR(attnlab_plan_workspace_bytes(plan, NULL), ATTNLAB_INVALID_ARGUMENT,
               "bytes: is null");
  EXPECT_ERROR(attnlab_plan_get_info(plan, NULL), ATTNLAB_INVALID_ARGUMENT, "info: is null");
  info.size = 0;
  EXPECT_ERROR(attnlab_plan_get_info(plan, &info), ATTNLAB_INVALID_ARGUMENT, "info: size 0");
  args.problem = &problem;
  EXPECT_ERROR(attnlab_plan_forward(plan, &args), ATTNLAB_INVALID_ARGUMENT,
               "problem: is given, but the plan has its own");
  args.problem = NULL;
  args.kernel = "cpu";
  EXPECT_ERROR(attnlab_plan_forward(plan, &args), ATTNLAB_INVALID_ARGUMENT, "kernel: is given");
  args.kernel = "";
  args.config = "threads=1";
  EXPECT_ERROR(attnlab_plan_forward(plan, &args), ATTNLAB_INVALID_ARGUMENT, "config: is given");
  args.config = "";
  q.shape[1] = 2;
  EXPECT_ERROR(attnlab_plan_forward(plan, &args), ATTNLAB_INVALID_ARGUMENT,
               "q: shape is [1, 2, 1, 4]");
  q.shape[1] = 1;
  args.workspace = workspace + 1;
  EXPECT_ERROR(attnlab_plan_forward(plan, &args), ATTNLAB_INVALID_ARGUMENT,
               "is not a multiple of 256");
  args.workspace = NULL;
  EXPECT_ERROR(attnlab_plan_forward(plan, &args), ATTNLAB_INVALID_ARGUMENT,
               "workspace: is null, but ");
  EXPECT(strstr(attnlab_last_error(), "attnlab_plan_workspace_bytes() says how many") != NULL);
  args.workspace = workspace;
  attnlab_tensor* const tensors[] = {&q, &k, &v, &o, &lse};
  for (int i = 0; i < 5; ++i) tensors[i]->device_kind = ATTNLAB_CUDA;
  EXPECT_ERROR(attnlab_plan_forward(plan, &args), ATTNLAB_INVALID_ARGUMENT,
               "q: on cuda:0, but the plan is for cpu");

  EXPECT(attnlab_plan_destroy(plan) == ATTNLAB_OK);
  EXPECT(attnlab_plan_destroy(NULL) == ATTNLAB_OK);
  Reset();
  args.problem = NULL;
  attnlab_plan* const next = Create(); /* which must not be taken for the one before */
  EXPECT(next != plan);
  EXPECT_ERROR(attnlab_plan_forward(plan, &args), ATTNLAB_INVALID_ARGUMENT,
               "plan: is not a plan, or was destroyed");
  EXPECT_ERROR(attnlab_plan_workspace_bytes(plan, &bytes), ATTNLAB_INVALID_ARGUMENT,
               "plan: is not a plan, or was destroyed");
  EXPECT_ERROR(attnlab_plan_destroy(plan), ATTNLAB_INVALID_ARGUMENT,
               "plan: is not a plan, or was destroyed");
  EXPECT_ERROR(attnlab_plan_forward((attnlab_plan*)&q, &args), ATTNLAB_INVALID_ARGUMENT,
               "plan: is not a plan, or was destroyed");
  for (int i = 0; i < 4; ++i) EXPECT(isnan(o_data[i]));
  EXPECT(attnlab_plan_destroy(next) == ATTNLAB_OK);
}

/* A caller whose struct ends after workspace_bytes, and one whose struct goes on. */
static void TestInfoOfOtherVersions(void) {
  struct {
    attnlab_plan_info known;
    int64_t added;
  } newer;
  ResetPlan();
  attnlab_plan* const plan = Create();
  memset(&newer, 0xAB, sizeof newer);
  newer.known.size = sizeof newer;
  EXPECT(attnlab_plan_get_info(plan, &newer.known) == ATTNLAB_OK);
  EXPECT(newer.known.size == sizeof newer && newer.added == 0 && newer.known.flops == 32);
  memset(&newer, 0xAB, sizeof newer);
  newer.known.size = 24;
  EXPECT(attnlab_plan_get_info(plan, &newer.known) == ATTNLAB_OK);
  EXPECT(newer.known.size == 24 && strcmp(newer.known.kernel, "cpu") == 0);
  const unsigned char* const after = (const unsigned char*)&newer + 24;
  EXPECT(after[0] == 0xAB && after[sizeof newer - 25] == 0xAB);
  EXPECT(attnlab_plan_destroy(plan) == ATTNLAB_OK);
}

enum { kThreads = 8, kCalls = 200 };

static void* CallOften(void* plan) {
  float out[4];
  char* scratch = aligned_alloc(256, 1 << 20);
  attnlab_tensor mine = Bshd(out, 1, 4);
  attnlab_forward_args call = args;
  int64_t wrong = 0, bytes = 0;
  call.o = &mine;
  call.lse = NULL;
  call.workspace = scratch;
  call.workspace_bytes = 1 << 20;
  for (int i = 0; i < kCalls; ++i) {
    out[0] = NAN;
    wrong += attnlab_plan_forward(plan, &call) != ATTNLAB_OK || !(fabsf(out[0] - 2) < 1e-6f);
    /* Messages are a thread's own. */
    wrong += attnlab_plan_workspace_bytes(NULL, &bytes) != ATTNLAB_INVALID_ARGUMENT ||
             strcmp(attnlab_last_error(), "plan: is null") != 0;
  }
  free(scratch);
  return (void*)(intptr_t)wrong;
}

static void TestThreads(void) {
  pthread_t threads[kThreads];
  ResetPlan();
  plan_args.config = "threads=1";
  plan_args.kernel = "cpu";
  attnlab_plan* const plan = Create();
  for (int i = 0; i < kThreads; ++i) {
    EXPECT(pthread_create(&threads[i], NULL, CallOften, plan) == 0);
  }
  for (int i = 0; i < kThreads; ++i) {
    void* wrong = NULL;
    EXPECT(pthread_join(threads[i], &wrong) == 0 && wrong == NULL);
  }
  EXPECT(attnlab_plan_destroy(plan) == ATTNLAB_OK);
}

/* The parent's threads are not there in the child, which must not wait for them. */
static void TestFork(void) {
  ResetPlan();
  attnlab_plan* const plan = Create();
  EXPECT(attnlab_plan_forward(plan, &args) == ATTNLAB_OK);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const int32_t code = attnlab_plan_forward(plan, &args);
    const int said = strstr(attnlab_last_error(), "was forked after process") != NULL;
    _exit(code == ATTNLAB_FAILED_PRECONDITION && said ? 0 : 1);
  }
  int status = -1;
  EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  EXPECT(attnlab_plan_forward(plan, &args) == ATTNLAB_OK);
  EXPECT(attnlab_plan_destroy(plan) == ATTNLAB_OK);
}

/* A child of a process that has not computed yet computes. The first test. */
static void TestForkBeforeTheFirstCall(void) {
  ResetPlan();
  attnlab_plan* const plan = Create();
  q.shape[1] = 7;
  EXPECT(attnlab_plan_forward(plan, &args) == ATTNLAB_INVALID_ARGUMENT); /* computes nothing */
  q.shape[1] = 1;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(attnlab_plan_forward(plan, &args) == ATTNLAB_OK && fabsf(o_data[0] - 2) < 1e-6f ? 0 : 1);
  }
  int status = -1;
  EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  EXPECT(attnlab_plan_destroy(plan) == ATTNLAB_OK);
}

int main(void) {
  TestForkBeforeTheFirstCall();
  TestPlan();
  TestNamedKernelAndConfig();
  TestBadPlans();
  TestBadUse();
  TestInfoOfOtherVersions();
  TestThreads();
  TestFork();
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
