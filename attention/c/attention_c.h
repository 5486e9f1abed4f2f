/* attnlab for C, and for languages that call C: libattnlab.so (//attention:attnlab).
 *
 * Every struct begins with its own size: set it to sizeof(the struct). This lets caller and library
 * be of different versions:
 *   - Input: fields that the caller's struct lacks count as zero, which always means "the default".
 *     Fields that the library does not know must be zero, or it rejects the struct.
 *   - Output: the library fills in the fields that both know, and zeroes fields that it does not
 *     know.
 * Zero a struct before filling it in:
 *
 *   attnlab_problem p = {.size = sizeof p};
 *   p.b = 1; p.hq = p.hkv = 8; p.sq = p.skv = 512; p.d = p.dv = 64; p.dtype = ATTNLAB_FP32;
 *   attnlab_tensor q = {sizeof q, ATTNLAB_FP32, ATTNLAB_CPU, 0, 0, data, {1, 512, 8, 64}, {…}};
 *   attnlab_forward_args a = {.size = sizeof a};
 *   a.problem = &p; a.q = &q; …
 *   if (attnlab_forward(&a) != ATTNLAB_OK) puts(attnlab_last_error());
 *
 * That chooses a kernel and validates the problem on every call. A plan does both once:
 *
 *   attnlab_plan_args pa = {.size = sizeof pa, .problem = &p, .device_kind = ATTNLAB_CUDA};
 *   attnlab_plan* plan;
 *   int64_t bytes;
 *   attnlab_plan_create(&pa, &plan);
 *   attnlab_plan_workspace_bytes(plan, &bytes);
 *   a.problem = NULL; a.workspace = …; a.workspace_bytes = bytes; a.stream = stream;
 *   attnlab_plan_forward(plan, &a);    (any number of times, on any threads)
 *   attnlab_plan_destroy(plan);
 *
 * Nothing aborts and nothing throws. A function returns ATTNLAB_OK or one of the codes below. After
 * an error, attnlab_last_error() returns a message with the field, its value and the limit. All
 * functions are thread-safe; each thread has its own message.
 *
 * CPU threads and CUDA's state do not survive fork(). A child of a process that has computed
 * attention gets ATTNLAB_FAILED_PRECONDITION on that kind of device, until it calls exec(). */
#ifndef ATTENTION_C_ATTENTION_C_H_
#define ATTENTION_C_ATTENTION_C_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTNLAB_API __attribute__((visibility("default")))

/* The version of this interface. It changes when callers must change. */
#define ATTNLAB_ABI_VERSION 1

/* The ATTNLAB_ABI_VERSION that the library was built with. */
ATTNLAB_API int32_t attnlab_abi_version(void);

/* Status codes, with the numbers of absl::StatusCode. */
enum {
  ATTNLAB_OK = 0,
  ATTNLAB_INVALID_ARGUMENT = 3,
  ATTNLAB_NOT_FOUND = 5,          /* no such kernel or device */
  ATTNLAB_RESOURCE_EXHAUSTED = 8, /* memory, shared memory */
  ATTNLAB_FAILED_PRECONDITION = 9,
  ATTNLAB_OUT_OF_RANGE = 11,  /* sizes that overflow */
  ATTNLAB_UNIMPLEMENTED = 12, /* no kernel does this; built without CUDA */
  ATTNLAB_INTERNAL = 13,
  ATTNLAB_UNAVAILABLE = 14 /* no driver, no GPU */
};

/* The message of this thread's last failed call; "" before the first. Never null. Valid until the
 * thread's next failed call. */
ATTNLAB_API const char* attnlab_last_error(void);

enum {
  ATTNLAB_FP32 = 0,
  ATTNLAB_FP16 = 1,
  ATTNLAB_BF16 = 2,
  ATTNLAB_FP8_E4M3 = 3,
  ATTNLAB_FP8_E5M2 = 4 /* of V only */
};
enum { ATTNLAB_CPU = 0, ATTNLAB_CUDA = 1 };
enum { ATTNLAB_MASK_NONE = 0, ATTNLAB_MASK_CAUSAL = 1, ATTNLAB_MASK_WINDOW = 2 };
enum { ATTNLAB_LENS_FIXED = 0, ATTNLAB_LENS_PACKED = 1, ATTNLAB_LENS_PADDED = 2 };

/* ---- The problem ------------------------------------------------------------------------- */

/* AttentionProblem (attention/core/problem.h), field by field. */
typedef struct attnlab_problem {
  uint64_t size;
  int64_t b, hq, hkv, sq, skv, d, dv;
  int32_t dtype;
  int32_t mask;
  int64_t window_left, window_right; /* for ATTNLAB_MASK_WINDOW */
  int32_t has_scale;                 /* 0: the scale is 1/sqrt(d), and `scale` is 0 */
  float scale;
  float softcap; /* 0: no cap */
  int32_t lens;
  int64_t page;                   /* 0: not paged */
  int32_t has_kv_dtype, kv_dtype; /* of K and V; has_kv_dtype 0: dtype, and kv_dtype is 0 */
  int32_t has_o_dtype, o_dtype;   /* of O; has_o_dtype 0: dtype, or bf16 if that is fp8_e4m3 */
  int64_t scale_block;            /* rows with one scale; 0: all rows of a head */
  int32_t has_v_dtype, v_dtype;   /* of V; has_v_dtype 0: that of K, and v_dtype is 0 */
} attnlab_problem;

/* Parses a line such as "b=4,hq=32,hkv=8,sq=4096,d=128,dtype=bf16,mask=causal". The form is
 * documented in attention/core/problem.h. Of `problem`, only the size needs to be set. */
ATTNLAB_API int32_t attnlab_problem_parse(const char* line, attnlab_problem* problem);

/* Writes the canonical line of a valid problem, terminated by a 0. INVALID_ARGUMENT if it needs
 * more than `bytes`; ATTNLAB_PROBLEM_LINE_BYTES are always enough. */
#define ATTNLAB_PROBLEM_LINE_BYTES 512
ATTNLAB_API int32_t attnlab_problem_print(const attnlab_problem* problem, char* line,
                                          int64_t bytes);

/* ---- The data ---------------------------------------------------------------------------- */

/* A strided view (attention/core/tensor.h): axes batch, sequence, head, dim; strides in elements.
 *
 * O, LSE and the workspace must not share memory with each other or with an input. The library
 * finds every overlap with the workspace. Of O and LSE it finds equal addresses; it accepts other
 * overlaps, because strided views may interleave: keeping those apart is up to the caller.
 */
typedef struct attnlab_tensor {
  uint64_t size;
  int32_t dtype;
  int32_t device_kind;
  int32_t device_ordinal;
  int32_t reserved; /* zero */
  void* data;       /* not written if it is an input */
  int64_t shape[4];
  int64_t strides[4];
} attnlab_tensor;

typedef struct attnlab_forward_args {
  uint64_t size;
  const attnlab_problem* problem; /* null for attnlab_plan_forward() */
  const attnlab_tensor* q;
  const attnlab_tensor* k;
  const attnlab_tensor* v;
  const attnlab_tensor* o;
  const attnlab_tensor* lse; /* null: not wanted */
  /* On the device of the tensors: b + 1 offsets (packed), or b lengths (padded; null: all). */
  const int32_t* cu_seqlens_q;
  const int32_t* cu_seqlens_kv;
  const int32_t* q_len;
  const int32_t* kv_len;
  const char* kernel; /* null or "": the library chooses */
  const char* config; /* "key=value,key=value"; null or "": the kernel chooses */
  void* workspace;    /* at least attnlab_workspace_bytes(), aligned to 256; null if that is 0 */
  int64_t workspace_bytes;
  void* stream; /* cudaStream_t, for tensors on a GPU */
  /* For paged K and V: b rows of page indices, on the device of the tensors
   * (attention/core/tensors.h). The row stride is in entries. */
  const int32_t* page_table;
  int64_t page_table_columns, page_table_row_stride;
  /* Scales of fp8 elements, positive: fp32 [b, blocks, heads, 1], where `blocks` is 1, or the longest
   * length over scale_block, rounded up. Strides of 0 give one to several; null: all are 1. */
  const attnlab_tensor* q_scale;
  const attnlab_tensor* k_scale;
  const attnlab_tensor* v_scale;
} attnlab_forward_args;

/* ---- Attention in one call --------------------------------------------------------------- */

/* The bytes of scratch that attnlab_forward() needs. Reads only the problem, the kernel, the config
 * and the device of q. */
ATTNLAB_API int32_t attnlab_workspace_bytes(const attnlab_forward_args* args, int64_t* bytes);

/* Computes attention. On a GPU it returns before the work on `stream` is done, and it allocates no
 * GPU memory after the first call on a device. */
ATTNLAB_API int32_t attnlab_forward(const attnlab_forward_args* args);

/* ---- Plans ------------------------------------------------------------------------------- */

/* What attnlab_forward() would work out on each call. It is a handle, not an address: a destroyed
 * or invalid one gives INVALID_ARGUMENT. */
typedef struct attnlab_plan attnlab_plan;

typedef struct attnlab_plan_args {
  uint64_t size;
  const attnlab_problem* problem;
  int32_t device_kind;
  int32_t device_ordinal;
  const char* kernel; /* null or "": the library chooses */
  const char* config; /* "key=value,key=value"; null or "": the kernel chooses */
} attnlab_plan_args;

/* Validates the problem, finds the device, and prepares the named kernel, or else chooses one. On
 * an error *plan is null, and the message says why no kernel, or not the named one, does it. */
ATTNLAB_API int32_t attnlab_plan_create(const attnlab_plan_args* args, attnlab_plan** plan);

/* Null is allowed. Calls of the plan on other threads finish normally, and work on a GPU no longer
 * needs the plan. */
ATTNLAB_API int32_t attnlab_plan_destroy(attnlab_plan* plan);

ATTNLAB_API int32_t attnlab_plan_workspace_bytes(const attnlab_plan* plan, int64_t* bytes);

/* Computes attention by the plan. `problem`, `kernel` and `config` come from the plan and must be
 * null here. On a GPU the plan's device is current during the call. */
ATTNLAB_API int32_t attnlab_plan_forward(const attnlab_plan* plan,
                                         const attnlab_forward_args* args);

typedef struct attnlab_plan_info {
  uint64_t size;
  const char* kernel; /* its name, valid until the program ends */
  int64_t workspace_bytes;
  /* The problem's work with all sequences at their maximum lengths: 2 (d + dv) FLOPs for every
   * visible (query, key) pair; each input is read and each output written once. */
  double flops;
  int64_t compulsory_bytes;
  /* The kernel's own model; a multiply-add counts 2. bytes_read is a guess if it depends on what
   * the L2 cache keeps. */
  double expected_flops;
  int64_t expected_bytes_read, expected_bytes_written;
} attnlab_plan_info;

/* Of `info`, only the size needs to be set. */
ATTNLAB_API int32_t attnlab_plan_get_info(const attnlab_plan* plan, attnlab_plan_info* info);

/* ---- Kernels and devices ----------------------------------------------------------------- */

/* The names of the kernels, separated by commas. Valid until the program ends. */
ATTNLAB_API const char* attnlab_kernels(void);

typedef struct attnlab_kernel_info {
  uint64_t size;
  /* The pointers are valid until the program ends. */
  const char* name;
  const char* summary;
  const char* config_keys;   /* one per line, "tile_q: rows of …"; "" for none */
  const int32_t* built_for;  /* compute capabilities, times ten: 75, 80, … */
  int64_t built_for_entries; /* 0 on the CPU */
  int32_t device_kind;
  int32_t preference; /* the kernel with the highest one that supports a problem is chosen */
} attnlab_kernel_info;

/* Kernel `index`, from 0, in the order of attnlab_kernels(). NOT_FOUND beyond the last. */
ATTNLAB_API int32_t attnlab_kernel_get_info(int64_t index, attnlab_kernel_info* info);

/* The number of devices of the kind; there is 1 CPU. UNAVAILABLE without a GPU or driver,
 * UNIMPLEMENTED if the library was built without CUDA; *count is then 0. */
ATTNLAB_API int32_t attnlab_device_count(int32_t kind, int64_t* count);

typedef struct attnlab_device_info {
  uint64_t size;
  const char* name; /* valid until the program ends */
  int64_t memory_bytes;
  int64_t last_level_cache_bytes;
  int64_t shared_memory_per_block; /* GPU: the maximum, bytes */
  int32_t threads;                 /* CPU: threads that this process may use */
  int32_t compute_capability;      /* GPU: times ten, 90 */
  int32_t multiprocessors;         /* GPU */
  int32_t reserved;
} attnlab_device_info;

/* Of `info`, only the size needs to be set. Errors as for attnlab_device_count(), and NOT_FOUND. */
ATTNLAB_API int32_t attnlab_device_get_info(int32_t kind, int32_t ordinal,
                                            attnlab_device_info* info);

#ifdef __cplusplus
}
#endif

#endif /* ATTENTION_C_ATTENTION_C_H_ */
