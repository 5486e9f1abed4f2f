/* attnlab from C, and from whatever speaks C: libattnlab.so (//attention:attnlab).
 *
 * Every struct begins with its own size: set it to sizeof(the struct). A library that knows more
 * fields than the caller takes the missing ones as zero, which always means "the default"; one
 * that knows fewer rejects fields it does not know unless they are zero. Zero a struct before
 * filling it in:
 *
 *   attnlab_problem p = {sizeof p};
 *   p.b = 1; p.hq = p.hkv = 8; p.sq = p.skv = 512; p.d = p.dv = 64; p.dtype = ATTNLAB_FP32;
 *   attnlab_tensor q = {sizeof q, ATTNLAB_FP32, ATTNLAB_CPU, 0, data, {1, 512, 8, 64}, {…}};
 *   attnlab_forward_args a = {sizeof a};
 *   a.problem = &p; a.q = &q; …
 *   if (attnlab_forward(&a) != ATTNLAB_OK) puts(attnlab_last_error());
 *
 * Nothing aborts and nothing throws. A function returns ATTNLAB_OK or one of the codes below, and
 * on an error attnlab_last_error() has its message, with the field, its value and the limit.
 * Thread-safe; messages are one a thread. After a call on the CPU, a fork()ed child must not call
 * again before exec(): its threads are gone. */
#ifndef ATTENTION_ATTENTION_C_H_
#define ATTENTION_ATTENTION_C_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTNLAB_API __attribute__((visibility("default")))

/* The version of this interface; it changes when a caller has to. */
#define ATTNLAB_ABI_VERSION 1

/* ATTNLAB_ABI_VERSION of the library. */
ATTNLAB_API int32_t attnlab_abi_version(void);

/* Codes, with the numbers of absl::StatusCode. */
enum {
  ATTNLAB_OK = 0,
  ATTNLAB_INVALID_ARGUMENT = 3,
  ATTNLAB_NOT_FOUND = 5,          /* no such kernel or device */
  ATTNLAB_RESOURCE_EXHAUSTED = 8, /* memory, shared memory */
  ATTNLAB_FAILED_PRECONDITION = 9,
  ATTNLAB_OUT_OF_RANGE = 11,  /* sizes that overflow */
  ATTNLAB_UNIMPLEMENTED = 12, /* no kernel does this */
  ATTNLAB_INTERNAL = 13,
  ATTNLAB_UNAVAILABLE = 14
};

/* The message of this thread's last call that failed; "" before the first. Never null; valid
 * until the thread's next failing call. */
ATTNLAB_API const char* attnlab_last_error(void);

enum { ATTNLAB_FP32 = 0, ATTNLAB_FP16 = 1, ATTNLAB_BF16 = 2, ATTNLAB_FP8_E4M3 = 3 };
enum { ATTNLAB_CPU = 0, ATTNLAB_CUDA = 1 };
enum { ATTNLAB_MASK_NONE = 0, ATTNLAB_MASK_CAUSAL = 1, ATTNLAB_MASK_WINDOW = 2 };
enum { ATTNLAB_LENS_FIXED = 0, ATTNLAB_LENS_PACKED = 1, ATTNLAB_LENS_PADDED = 2 };

/* AttentionProblem (attention/problem.h), field by field. */
typedef struct attnlab_problem {
  uint64_t size;
  int64_t b, hq, hkv, sq, skv, d, dv;
  int32_t dtype;
  int32_t mask;
  int64_t window_left, window_right; /* of ATTNLAB_MASK_WINDOW */
  int32_t has_scale;                 /* 0: the scale is 1/sqrt(d) */
  float scale;
  float softcap; /* 0: none */
  int32_t lens;
  int64_t page; /* 0: not paged */
} attnlab_problem;

/* A strided view (attention/tensor.h): axes batch, sequence, head, dim; strides in elements. */
typedef struct attnlab_tensor {
  uint64_t size;
  int32_t dtype;
  int32_t device_kind;
  int32_t device_ordinal;
  int32_t reserved; /* zero */
  void* data;       /* not written where it is an input */
  int64_t shape[4];
  int64_t strides[4];
} attnlab_tensor;

typedef struct attnlab_forward_args {
  uint64_t size;
  const attnlab_problem* problem;
  const attnlab_tensor* q;
  const attnlab_tensor* k;
  const attnlab_tensor* v;
  const attnlab_tensor* o;
  const attnlab_tensor* lse; /* null: not wanted */
  /* Lengths, where the tensors live: b + 1 offsets (packed), or b lengths (padded; null: all). */
  const int32_t* cu_seqlens_q;
  const int32_t* cu_seqlens_kv;
  const int32_t* q_len;
  const int32_t* kv_len;
  const char* kernel; /* null or "": the library's choice */
  const char* config; /* "key=value,key=value"; null or "": the kernel's choice */
  void* workspace;    /* at least attnlab_workspace_bytes(), aligned to 256; null if that is 0 */
  int64_t workspace_bytes;
  void* stream; /* cudaStream_t, for tensors on a GPU */
} attnlab_forward_args;

/* The bytes of scratch that attnlab_forward needs. Looks at problem, kernel, config and the
 * device of q alone. */
ATTNLAB_API int32_t attnlab_workspace_bytes(const attnlab_forward_args* args, int64_t* bytes);

/* Attention. On a GPU it returns before the work on `stream` is done. */
ATTNLAB_API int32_t attnlab_forward(const attnlab_forward_args* args);

/* The names of the kernels, separated by commas. Valid for the life of the program. */
ATTNLAB_API const char* attnlab_kernels(void);

#ifdef __cplusplus
}
#endif

#endif /* ATTENTION_ATTENTION_C_H_ */
