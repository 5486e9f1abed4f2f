/* The C interface, from C: a call that works, and bad input of each kind. */
#include "attention/attention_c.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

static void Expect(int condition, const char* what, int line) {
  if (condition) return;
  printf("attention_c_test.c:%d: %s; last error \"%s\"\n", line, what, attnlab_last_error());
  ++failures;
}
#define EXPECT(condition) Expect((condition), #condition, __LINE__)
/* The call fails with that code, and its message has that text. */
#define EXPECT_ERROR(call, code, text) \
  EXPECT((call) == (code) && strstr(attnlab_last_error(), (text)) != NULL)

/* Two keys and one query of zeros: O is the mean of V, LSE is log 2. */
static float q_data[4], k_data[8], v_data[8] = {1, 2, 3, 4, 3, 2, 1, 0}, o_data[4], lse_data[1];
static char workspace[1 << 22] __attribute__((aligned(256)));

static attnlab_problem problem;
static attnlab_tensor q, k, v, o, lse;
static attnlab_forward_args args;

static attnlab_tensor Bshd(void* data, int64_t s, int64_t d) {
  attnlab_tensor t;
  memset(&t, 0, sizeof t);
  t.size = sizeof t;
  t.data = data;
  t.shape[0] = t.shape[2] = 1;
  t.shape[1] = s;
  t.shape[3] = d;
  t.strides[0] = s * d;
  t.strides[1] = t.strides[2] = d;
  t.strides[3] = 1;
  return t;
}

static void Reset(void) {
  memset(&problem, 0, sizeof problem);
  problem.size = sizeof problem;
  problem.b = problem.hq = problem.hkv = problem.sq = 1;
  problem.skv = 2;
  problem.d = problem.dv = 4;
  q = Bshd(q_data, 1, 4);
  k = Bshd(k_data, 2, 4);
  v = Bshd(v_data, 2, 4);
  o = Bshd(o_data, 1, 4);
  lse = Bshd(lse_data, 1, 1);
  memset(&args, 0, sizeof args);
  args.size = sizeof args;
  args.problem = &problem;
  args.q = &q;
  args.k = &k;
  args.v = &v;
  args.o = &o;
  args.lse = &lse;
  args.workspace = workspace;
  args.workspace_bytes = sizeof workspace;
}

static void TestForward(void) {
  int64_t bytes = -1;
  Reset();
  EXPECT(attnlab_abi_version() == ATTNLAB_ABI_VERSION);
  EXPECT(strlen(attnlab_kernels()) > 0);
  EXPECT(attnlab_workspace_bytes(&args, &bytes) == ATTNLAB_OK);
  EXPECT(bytes >= 0 && bytes <= (int64_t)sizeof workspace);
  EXPECT(attnlab_forward(&args) == ATTNLAB_OK);
  for (int i = 0; i < 4; ++i) EXPECT(fabsf(o_data[i] - 2) < 1e-6f);
  EXPECT(fabsf(lse_data[0] - logf(2)) < 1e-6f);
}

static void TestLengths(void) {
  const int32_t cu_seqlens_q[2] = {0, 1}, cu_seqlens_kv[2] = {0, 1}, kv_len[1] = {1};
  Reset();
  problem.lens = ATTNLAB_LENS_PACKED;
  args.cu_seqlens_q = cu_seqlens_q;
  args.cu_seqlens_kv = cu_seqlens_kv;
  EXPECT(attnlab_forward(&args) == ATTNLAB_OK);
  EXPECT(o_data[0] == 1 && o_data[3] == 4 && lse_data[0] == 0); /* the first key alone */
  Reset();
  problem.lens = ATTNLAB_LENS_PADDED;
  args.kv_len = kv_len;
  EXPECT(attnlab_forward(&args) == ATTNLAB_OK);
  EXPECT(o_data[0] == 1 && o_data[3] == 4);
}

static void TestBadInput(void) {
  int64_t bytes;
  Reset();
  EXPECT_ERROR(attnlab_forward(NULL), ATTNLAB_INVALID_ARGUMENT, "args: is null");
  EXPECT_ERROR(attnlab_workspace_bytes(&args, NULL), ATTNLAB_INVALID_ARGUMENT, "bytes: is null");
  args.problem = NULL;
  EXPECT_ERROR(attnlab_workspace_bytes(&args, &bytes), ATTNLAB_INVALID_ARGUMENT,
               "problem: is null");
  Reset();
  args.k = NULL;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "k: is null");
  Reset();
  args.size = 0;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "args: size 0");
  Reset();
  args.size = 13; /* through the middle of a pointer */
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "args: size 13");
  Reset();
  problem.hkv = 3;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "hkv: 3 does not divide hq = 1");
  Reset();
  problem.dtype = 9;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "dtype: 9 is not in 0..3");
  Reset();
  problem.mask = -1;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "mask: -1 is not in 0..2");
  Reset();
  problem.has_scale = 1;
  problem.scale = NAN;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "scale: nan");
  Reset();
  q.device_kind = 7;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "q: device_kind: 7");
  Reset();
  o.data = NULL;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "o: the data pointer is null");
  Reset();
  v.shape[1] = 3;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "v: shape [1, 3, 1, 4]");
  Reset();
  args.kernel = "no-such-kernel";
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_NOT_FOUND, "\"no-such-kernel\" is not linked");
  Reset();
  args.config = "tile";
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "config: \"tile\"");
  Reset();
  problem.sq = problem.skv = problem.b = problem.hq = problem.hkv = 2147483647;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_OUT_OF_RANGE, "exceed 2^60 bytes");
}

/* Callers built against an older or newer version of the header. */
static void TestOtherVersions(void) {
  struct {
    attnlab_problem known;
    int64_t added;
  } newer;
  Reset();
  memset(&newer, 0, sizeof newer);
  newer.known = problem;
  newer.known.size = sizeof newer;
  args.problem = &newer.known;
  EXPECT(attnlab_forward(&args) == ATTNLAB_OK);
  newer.added = 1;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "does not know");
  Reset();
  problem.size = sizeof problem - sizeof problem.page; /* before `page` was added */
  problem.page = 3;                                    /* so this is not looked at */
  EXPECT(attnlab_forward(&args) == ATTNLAB_OK);
}

int main(void) {
  TestForward();
  TestLengths();
  TestBadInput();
  TestOtherVersions();
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
