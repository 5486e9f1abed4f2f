/* Expectations for the tests in C, and a minimal attention problem: two keys and one query of
 * zeros. Its O is the mean of V, {2, 2, 2, 2}, and its LSE is log 2. */
#ifndef ATTENTION_C_ATTENTION_C_EXPECT_H_
#define ATTENTION_C_ATTENTION_C_EXPECT_H_

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "attention/c/attention_c.h"

static int failures = 0;

static void Expect(int condition, const char* what, const char* file, int line) {
  if (condition) return;
  printf("%s:%d: %s; last error \"%s\"\n", file, line, what, attnlab_last_error());
  ++failures;
}
#define EXPECT(condition) Expect((condition), #condition, __FILE__, __LINE__)
/* The call must fail with this code, and its message must contain this text. */
#define EXPECT_ERROR(call, code, text) \
  EXPECT((call) == (code) && strstr(attnlab_last_error(), (text)) != NULL)

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

/* Not every test calls everything here. */
#define MAY_BE_UNUSED __attribute__((unused))

MAY_BE_UNUSED static void Reset(void) {
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
  for (int i = 0; i < 4; ++i) o_data[i] = NAN;
  lse_data[0] = NAN;
}

/* What the call of Reset() gives. */
MAY_BE_UNUSED static void ExpectMeanOfV(void) {
  for (int i = 0; i < 4; ++i) EXPECT(fabsf(o_data[i] - 2) < 1e-6f);
  EXPECT(fabsf(lse_data[0] - logf(2)) < 1e-6f);
}

#endif /* ATTENTION_C_ATTENTION_C_EXPECT_H_ */
