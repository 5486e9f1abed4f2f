/* The C interface, from C: calls that work, and bad input of each kind. */
#include <stddef.h>

#include "attention/c/attention_c_expect.h"

static void TestForward(void) {
  int64_t bytes = -1;
  Reset();
  EXPECT(attnlab_abi_version() == ATTNLAB_ABI_VERSION);
  EXPECT(strlen(attnlab_kernels()) > 0);
  EXPECT(attnlab_workspace_bytes(&args, &bytes) == ATTNLAB_OK);
  EXPECT(bytes >= 0 && bytes <= (int64_t)sizeof workspace);
  EXPECT(attnlab_forward(&args) == ATTNLAB_OK);
  ExpectMeanOfV();
  Reset();
  args.lse = NULL;
  EXPECT(attnlab_forward(&args) == ATTNLAB_OK);
  EXPECT(fabsf(o_data[0] - 2) < 1e-6f && isnan(lse_data[0]));
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

static void TestPages(void) {
  int32_t pages[] = {1, 0};
  Reset();
  problem.page = problem.skv = 1; /* K and V are two pages of one token */
  k.shape[0] = v.shape[0] = 2;
  k.shape[1] = v.shape[1] = 1;
  k.strides[0] = v.strides[0] = 4;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "page_table: shape is [0, 0]");
  args.page_table = pages;
  args.page_table_columns = 1;
  args.page_table_row_stride = 1;
  EXPECT(attnlab_forward(&args) == ATTNLAB_OK);
  EXPECT(o_data[0] == 3 && o_data[2] == 1 && lse_data[0] == 0); /* the second page alone */
  problem.skv = 2;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "page_table: shape is [1, 1]");
  args.page_table_columns = 2;
  EXPECT(attnlab_forward(&args) == ATTNLAB_OK);
  ExpectMeanOfV();
  pages[1] = 2;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT,
               "page_table: entry [0, 1] is 2, not one of the 2 pages of k");
}

/* K and V of fp8 under fp16 queries: 0x38 is 1. */
static void TestFp8Cache(void) {
  static uint16_t q16[4], o16[4];
  static uint8_t k8[8], v8[8] = {0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38};
  static float scale = 3;
  attnlab_tensor v_scale = Bshd(&scale, 1, 1);
  Reset();
  problem.dtype = q.dtype = o.dtype = ATTNLAB_FP16;
  problem.has_kv_dtype = 1;
  problem.kv_dtype = k.dtype = v.dtype = ATTNLAB_FP8_E4M3;
  q.data = q16;
  k.data = k8;
  v.data = v8;
  o.data = o16;
  args.v_scale = &v_scale;
  EXPECT(attnlab_forward(&args) == ATTNLAB_OK);
  EXPECT(o16[0] == 0x4200 && o16[3] == 0x4200); /* 3 in fp16 */
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
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "dtype: 9 is not in 0..4");
  Reset();
  problem.mask = -1;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "mask: -1 is not in 0..2");
  Reset();
  problem.has_scale = 1;
  problem.scale = NAN;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "scale: nan");
  Reset();
  problem.scale = 0.5f; /* or it would be ignored without a word */
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT,
               "scale: 0.5 is given, but has_scale is 0");
  problem.has_scale = 1;
  EXPECT(attnlab_forward(&args) == ATTNLAB_OK);
  Reset();
  q.device_kind = 7;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "q: device_kind: 7");
  Reset();
  o.data = NULL;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "o: the data pointer is null");
  Reset();
  v.shape[1] = 3;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "v: shape is [1, 3, 1, 4]");
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

static void TestBadTensors(void) {
  Reset();
  q.dtype = 5;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "q: dtype: 5 is not in 0..4");
  Reset();
  k.dtype = ATTNLAB_BF16;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "k: dtype is bf16, must be fp32");
  Reset();
  v.strides[3] = 2;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT,
               "v: stride 2 of the dim axis is not 1");
  Reset();
  k.strides[1] = -4;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "k: strides [8, -4, 4, 1]");
  Reset();
  k.strides[1] = INT64_MAX;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_OUT_OF_RANGE, "k: strides");
  Reset();
  q.data = (char*)q_data + 2;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT,
               "is not a multiple of the element size 4");
  Reset();
  o.data = q_data;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT,
               "o: shares its address with the input q");
  Reset();
  problem.sq = 2;
  q = Bshd(q_data, 2, 4);
  o = Bshd(o_data, 2, 4);
  lse = Bshd(lse_data, 2, 1);
  o.strides[1] = 0;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "may make elements overlap");
  Reset();
  q.reserved = 1;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "q: reserved is not 0");
  Reset();
  args.k_scale = &lse;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT,
               "k_scale: is given, but what it scales is fp32, not fp8");
  Reset();
  const int32_t pages[] = {0};
  args.page_table = pages;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT,
               "page_table: is given, but with page=0 K and V are not paged");
  Reset();
  q.device_ordinal = 1;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "q: on CPU 1");
  Reset();
  lse.data = NULL;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "pass lse = NULL");
  Reset();
  args.q = NULL;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "q: is null");
  Reset();
  o.size = 12;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "o: size 12");
  for (int i = 0; i < 4; ++i) EXPECT(isnan(o_data[i])); /* nothing was written */
}

static void TestBadLengths(void) {
  const int32_t too_long[2] = {0, 3}, back[2] = {1, 0}, fine[2] = {0, 1}, kv_len[1] = {3};
  Reset();
  args.kv_len = kv_len;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "kv_len: is given");
  problem.lens = ATTNLAB_LENS_PADDED;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "kv_len: ");
  Reset();
  problem.lens = ATTNLAB_LENS_PACKED;
  args.cu_seqlens_q = fine;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT,
               "cu_seqlens_kv: the data pointer is null");
  args.cu_seqlens_kv = too_long;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "cu_seqlens_kv: ");
  args.cu_seqlens_kv = back;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "cu_seqlens_kv: ");
  problem.lens = 3;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "lens: 3 is not in 0..2");
  for (int i = 0; i < 4; ++i) EXPECT(isnan(o_data[i]));
}

/* The oracle needs none, the tiled kernel does. */
static void TestBadWorkspace(void) {
  int64_t bytes = 0;
  Reset();
  args.kernel = "cpu";
  EXPECT(attnlab_workspace_bytes(&args, &bytes) == ATTNLAB_OK && bytes > 0);
  args.workspace_bytes = bytes - 1;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "workspace: ");
  args.workspace_bytes = bytes;
  EXPECT(attnlab_forward(&args) == ATTNLAB_OK);
  args.workspace = workspace + 64;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "is not a multiple of 256");
  args.workspace = workspace;
  k.data = workspace + bytes - 32;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "workspace: ");
  EXPECT(strstr(attnlab_last_error(), " share memory with k, which begins at 0x") != NULL);
  k.data = k_data;
  o.data = workspace;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, " share memory with o, ");
  o.data = o_data;
  EXPECT(attnlab_forward(&args) == ATTNLAB_OK);
  args.workspace = NULL;
  char text[128];
  snprintf(text, sizeof text,
           "workspace: is null, but %lld bytes are needed; attnlab_workspace_bytes() says how many",
           (long long)bytes);
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, text);
}

/* On a machine without a GPU, in a build with CUDA and one without; with a GPU, a device that is
 * not there. */
static void TestCudaTensorsWithoutDevice(void) {
  attnlab_tensor* const tensors[] = {&q, &k, &v, &o, &lse};
  int64_t count = -1;
  Reset();
  for (int i = 0; i < 5; ++i) {
    tensors[i]->device_kind = ATTNLAB_CUDA;
    tensors[i]->device_ordinal = 99;
  }
  const int32_t code = attnlab_device_count(ATTNLAB_CUDA, &count);
  if (code == ATTNLAB_OK) {
    EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_NOT_FOUND, "there is no cuda:99");
  } else {
    EXPECT(count == 0);
    EXPECT((code == ATTNLAB_UNAVAILABLE && strstr(attnlab_last_error(), "looking for GPUs")) ||
           (code == ATTNLAB_UNIMPLEMENTED &&
            strstr(attnlab_last_error(), "built without a CUDA toolkit")));
    EXPECT_ERROR(attnlab_forward(&args), code, "device: cuda:99: ");
  }
  q.device_kind = ATTNLAB_CPU; /* some here, some there */
  q.device_ordinal = 0;
  EXPECT_ERROR(attnlab_forward(&args), ATTNLAB_INVALID_ARGUMENT, "k: on cuda:99, but q is on cpu");
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
  problem.size = offsetof(attnlab_problem, page); /* before `page` and what follows were added */
  problem.page = problem.has_kv_dtype = 3;        /* so this is not looked at */
  EXPECT(attnlab_forward(&args) == ATTNLAB_OK);
}

int main(void) {
  TestForward();
  TestLengths();
  TestPages();
  TestFp8Cache();
  TestBadInput();
  TestBadTensors();
  TestBadLengths();
  TestBadWorkspace();
  TestCudaTensorsWithoutDevice();
  TestOtherVersions();
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
