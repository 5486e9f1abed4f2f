/* Questions that the C interface answers: problems as text, kernels, devices. */
#include "attention/c/attention_c_expect.h"

static void TestProblemText(void) {
  char line[ATTNLAB_PROBLEM_LINE_BYTES];
  attnlab_problem p = {.size = sizeof p};
  EXPECT(attnlab_problem_parse("hq=8,hkv=2,sq=5,d=64,dv=32,dtype=fp16,mask=window:3:1,scale=0.5,"
                               "softcap=30,lens=padded",
                               &p) == ATTNLAB_OK);
  EXPECT(p.size == sizeof p && p.b == 1 && p.hq == 8 && p.hkv == 2 && p.sq == 5 && p.skv == 5);
  EXPECT(p.d == 64 && p.dv == 32 && p.dtype == ATTNLAB_FP16 && p.mask == ATTNLAB_MASK_WINDOW);
  EXPECT(p.window_left == 3 && p.window_right == 1 && p.has_scale == 1 && p.scale == 0.5f);
  EXPECT(p.softcap == 30 && p.lens == ATTNLAB_LENS_PADDED && p.page == 0);
  memset(line, 'x', sizeof line);
  EXPECT(attnlab_problem_print(&p, line, sizeof line) == ATTNLAB_OK);
  const char* const printed =
      "b=1,hq=8,hkv=2,sq=5,skv=5,d=64,dv=32,dtype=fp16,mask=window:3:1,scale=0.5,softcap=30,"
      "lens=padded";
  EXPECT(strcmp(line, printed) == 0);
  memset(line, 'x', sizeof line);
  EXPECT(attnlab_problem_print(&p, line, (int64_t)strlen(printed) + 1) == ATTNLAB_OK);
  EXPECT(strcmp(line, printed) == 0 && line[strlen(printed) + 1] == 'x');
  EXPECT_ERROR(attnlab_problem_print(&p, line, (int64_t)strlen(printed)), ATTNLAB_INVALID_ARGUMENT,
               "are needed");
  EXPECT_ERROR(attnlab_problem_print(&p, line, -1), ATTNLAB_INVALID_ARGUMENT, "bytes: -1");
  EXPECT_ERROR(attnlab_problem_print(&p, NULL, 9), ATTNLAB_INVALID_ARGUMENT, "line: is null");
  EXPECT_ERROR(attnlab_problem_print(NULL, line, 9), ATTNLAB_INVALID_ARGUMENT, "problem: is null");
  p.hkv = 3;
  EXPECT_ERROR(attnlab_problem_print(&p, line, sizeof line), ATTNLAB_INVALID_ARGUMENT, "hkv: 3");
  EXPECT_ERROR(attnlab_problem_parse("hq=8", &p), ATTNLAB_INVALID_ARGUMENT,
               "sq: is required and missing");
  EXPECT_ERROR(attnlab_problem_parse(NULL, &p), ATTNLAB_INVALID_ARGUMENT, "line: is null");
  EXPECT_ERROR(attnlab_problem_parse("hq=8,sq=5,d=64", NULL), ATTNLAB_INVALID_ARGUMENT,
               "problem: is null");
  p.size = 3;
  EXPECT_ERROR(attnlab_problem_parse("hq=8,sq=5,d=64", &p), ATTNLAB_INVALID_ARGUMENT,
               "problem: size 3");
}

static void TestDtypes(void) {
  char line[ATTNLAB_PROBLEM_LINE_BYTES];
  attnlab_problem p = {.size = sizeof p};
  EXPECT(attnlab_problem_parse("hq=8,sq=5,d=64,dtype=fp16,kvdtype=fp8_e4m3,page=16", &p) ==
         ATTNLAB_OK);
  EXPECT(p.has_kv_dtype == 1 && p.kv_dtype == ATTNLAB_FP8_E4M3 && p.has_o_dtype == 0);
  EXPECT(attnlab_problem_print(&p, line, sizeof line) == ATTNLAB_OK);
  EXPECT(strstr(line, "dtype=fp16,kvdtype=fp8_e4m3,mask=none,page=16") != NULL);
  p.o_dtype = ATTNLAB_BF16;
  EXPECT_ERROR(attnlab_problem_print(&p, line, sizeof line), ATTNLAB_INVALID_ARGUMENT,
               "o_dtype: 2 is given, but has_o_dtype is 0");
  p.has_o_dtype = 1;
  p.o_dtype = 5;
  EXPECT_ERROR(attnlab_problem_print(&p, line, sizeof line), ATTNLAB_INVALID_ARGUMENT,
               "o_dtype: 5 is not in 0..4");
  EXPECT(attnlab_problem_parse("hq=8,sq=5,d=64,dtype=fp8_e4m3,vdtype=fp8_e5m2", &p) == ATTNLAB_OK);
  EXPECT(p.has_kv_dtype == 0 && p.has_v_dtype == 1 && p.v_dtype == ATTNLAB_FP8_E5M2);
  EXPECT(attnlab_problem_print(&p, line, sizeof line) == ATTNLAB_OK);
  EXPECT(strstr(line, "dtype=fp8_e4m3,vdtype=fp8_e5m2,mask=none") != NULL);
  p.has_v_dtype = 0;
  EXPECT_ERROR(attnlab_problem_print(&p, line, sizeof line), ATTNLAB_INVALID_ARGUMENT,
               "v_dtype: 4 is given, but has_v_dtype is 0");
}

/* The longest line there is fits the constant of the header. */
static void TestLongestLine(void) {
  char line[ATTNLAB_PROBLEM_LINE_BYTES];
  attnlab_problem p = {.size = sizeof p};
  p.b = 1;
  p.hq = p.hkv = 123456789;
  p.sq = p.skv = 2;
  p.d = p.dv = 511;
  p.dv = 509;
  p.dtype = ATTNLAB_FP8_E4M3;
  p.mask = ATTNLAB_MASK_WINDOW;
  p.window_left = p.window_right = 2147483647;
  p.has_scale = 1;
  p.scale = 1.17549435e-11f;
  p.softcap = 1.17549435e-11f;
  p.lens = ATTNLAB_LENS_PADDED;
  p.page = 1073741824;
  p.has_o_dtype = 1;
  p.o_dtype = ATTNLAB_FP32;
  p.has_v_dtype = 1;
  p.v_dtype = ATTNLAB_FP8_E5M2;
  EXPECT(attnlab_problem_print(&p, line, sizeof line) == ATTNLAB_OK);
  EXPECT(strlen(line) < sizeof line / 2);
}

static void TestKernels(void) {
  char names[1000] = "";
  int64_t i = 0;
  int seen = 0;
  for (;; ++i) {
    attnlab_kernel_info info = {.size = sizeof info};
    const int32_t code = attnlab_kernel_get_info(i, &info);
    if (code != ATTNLAB_OK) {
      EXPECT(code == ATTNLAB_NOT_FOUND && strstr(attnlab_last_error(), "is not one of") != NULL);
      break;
    }
    if (i > 0) strcat(names, ",");
    strcat(names, info.name);
    EXPECT(strlen(info.summary) > 0 && info.config_keys != NULL);
    EXPECT((info.built_for_entries > 0) == (info.device_kind == ATTNLAB_CUDA));
    for (int64_t j = 0; j < info.built_for_entries; ++j) EXPECT(info.built_for[j] >= 75);
    if (strcmp(info.name, "cpu") == 0) {
      seen = 1;
      EXPECT(info.device_kind == ATTNLAB_CPU && info.preference > 0);
      EXPECT(strstr(info.config_keys, "threads: ") != NULL);
      attnlab_kernel_info again = {.size = sizeof again};
      EXPECT(attnlab_kernel_get_info(i, &again) == ATTNLAB_OK);
      EXPECT(again.config_keys == info.config_keys && again.name == info.name);
    }
  }
  EXPECT(seen && i >= 2);
  EXPECT(strcmp(names, attnlab_kernels()) == 0);
  attnlab_kernel_info info = {.size = sizeof info};
  EXPECT_ERROR(attnlab_kernel_get_info(-1, &info), ATTNLAB_NOT_FOUND, "index: -1");
  EXPECT_ERROR(attnlab_kernel_get_info(0, NULL), ATTNLAB_INVALID_ARGUMENT, "info: is null");
}

static void TestDevices(void) {
  int64_t count = -1;
  attnlab_device_info info = {.size = sizeof info};
  EXPECT(attnlab_device_count(ATTNLAB_CPU, &count) == ATTNLAB_OK && count == 1);
  EXPECT(attnlab_device_get_info(ATTNLAB_CPU, 0, &info) == ATTNLAB_OK);
  EXPECT(strlen(info.name) > 0 && info.threads >= 1 && info.memory_bytes > 1 << 20);
  EXPECT(info.compute_capability == 0 && info.multiprocessors == 0);
  EXPECT_ERROR(attnlab_device_get_info(ATTNLAB_CPU, 1, &info), ATTNLAB_INVALID_ARGUMENT,
               "device_ordinal: 1");
  EXPECT_ERROR(attnlab_device_count(2, &count), ATTNLAB_INVALID_ARGUMENT, "device_kind: 2");
  EXPECT_ERROR(attnlab_device_count(ATTNLAB_CPU, NULL), ATTNLAB_INVALID_ARGUMENT, "count: is null");
  const int32_t code = attnlab_device_count(ATTNLAB_CUDA, &count);
  if (code == ATTNLAB_OK) {
    EXPECT(count >= 1);
    EXPECT(attnlab_device_get_info(ATTNLAB_CUDA, 0, &info) == ATTNLAB_OK);
    EXPECT(info.compute_capability >= 50 && info.multiprocessors > 0 && info.threads == 0);
    EXPECT_ERROR(attnlab_device_get_info(ATTNLAB_CUDA, (int32_t)count, &info), ATTNLAB_NOT_FOUND,
                 "there is no cuda:");
  } else {
    EXPECT(code == ATTNLAB_UNAVAILABLE || code == ATTNLAB_UNIMPLEMENTED);
    EXPECT(count == 0);
    EXPECT_ERROR(attnlab_device_get_info(ATTNLAB_CUDA, 0, &info), code, "device: cuda:0: ");
  }
}

int main(void) {
  TestProblemText();
  TestDtypes();
  TestLongestLine();
  TestKernels();
  TestDevices();
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
