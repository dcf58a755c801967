/* Hosts Halide kernels as ONNX Runtime custom operators, on the session's own thread pool. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "HalideRuntime.h"
#include "aoe_kernels.h"
#include "file_pages.h"
#include "indices.h"
#include "ort_abi.h"
#include "scratch.h"
#include "shared_packs.h"

#define EXPORT __attribute__((visibility("default")))

typedef struct {
  OrtCustomOp op; /* first member: ONNX Runtime hands back a pointer to it */
  const aoe_kernel *kernel;
} registered_op;

typedef struct {
  const OrtApi *api;
  const aoe_kernel *kernel;
  aoe_shared_pack *shared[AOE_MAX_PACKINGS]; /* NULL where the input is not known before Run */
} kernel_state;

/* What a kernel, and each task of it, gets as `user_context`. */
typedef struct {
  aoe_scratch scratch; /* first member: halide_malloc finds it there */
  const OrtApi *api;
  OrtKernelContext *context;
} run_context;

/* ---- what Halide's runtime would provide ---- */

typedef struct {
  const run_context *run;
  halide_task_t task;
  int min;
  uint8_t *closure;
  int failed;
} task_range;

static void run_task(void *data, size_t index) {
  task_range *range = (task_range *)data;
  run_context run = *range->run;
  run.scratch.stack = aoe_take_stack(AOE_OF_TASK);
  int code = range->task(&run, range->min + (int)index, range->closure);
  aoe_return_stack(run.scratch.stack);
  if (code != 0) __atomic_store_n(&range->failed, code, __ATOMIC_RELAXED);
}

int halide_do_par_for(void *user_context, halide_task_t task, int min, int size,
                      uint8_t *closure) {
  run_context *run = (run_context *)user_context;
  task_range range = {run, task, min, closure, 0};
  if (size == 1) {
    run_task(&range, 0);
    return range.failed;
  }
  if (size < 1) return 0;
  OrtStatus *status = ORT_CALL(run->api, 274, ort_parallel_for)(run->context, run_task,
                                                               (size_t)size, 0, &range);
  return status ? halide_error_code_generic_error : range.failed;
}

/* ---- custom operator callbacks ---- */

static OrtStatus *fail(const OrtApi *api, int code, const char *format, const char *name) {
  char message[256];
  snprintf(message, sizeof message, format, name);
  return ORT_CALL(api, 0, ort_create_status)(code, message);
}

static const uint8_t element_code[] = {halide_type_float, halide_type_bfloat, halide_type_int,
                                       halide_type_int,   halide_type_int,    halide_type_uint,
                                       halide_type_int,   halide_type_uint,   halide_type_uint};
static const uint8_t element_bytes[] = {4, 2, 1, 4, 8, 1, 2, 2, 2};

static void bind_view(halide_buffer_t *buffer, halide_dimension_t *dims, int rank,
                      const int32_t *extent, aoe_element element, void *data) {
  int64_t stride = 1;
  memset(buffer, 0, sizeof *buffer);
  for (int d = 0; d < rank; d++) {
    dims[d].min = 0;
    dims[d].extent = extent[d];
    dims[d].stride = (int32_t)stride;
    dims[d].flags = 0;
    stride *= extent[d];
  }
  buffer->host = (uint8_t *)data;
  buffer->type.code = element_code[element];
  buffer->type.bits = (uint8_t)(8 * element_bytes[element]);
  buffer->type.lanes = 1;
  buffer->dimensions = rank;
  buffer->dim = dims;
}

static void bind(halide_buffer_t *buffer, halide_dimension_t *dims, const aoe_tensor *tensor,
                 void *data) {
  bind_view(buffer, dims, tensor->view_rank, tensor->extent, tensor->element, data);
}

typedef struct {
  const aoe_kernel *kernel;
  const aoe_packing *packing;
  void *raw;
} packing_job;

static size_t dense_bytes(int rank, const int32_t *extent, aoe_element element) {
  size_t bytes = element_bytes[element];
  for (int d = 0; d < rank; d++) bytes *= (size_t)extent[d];
  return bytes;
}

static size_t packed_bytes(const aoe_kernel *kernel, const aoe_packing *packing) {
  const aoe_tensor *wanted = &kernel->arguments[packing->argument];
  return dense_bytes(wanted->view_rank, wanted->extent, wanted->element);
}

/* Writes the packed form of an input; 0 if that worked. */
static int pack_into(const void *job_pointer, void *packed) {
  const packing_job *job = (const packing_job *)job_pointer;
  const aoe_packing *packing = job->packing;
  halide_buffer_t buffers[2];
  halide_dimension_t dims[2][AOE_MAX_RANK];
  void *user_context = NULL; /* packing runs on the calling thread alone */
  bind_view(&buffers[0], dims[0], packing->view_rank, packing->extent, AOE_FLOAT32, job->raw);
  bind(&buffers[1], dims[1], &job->kernel->arguments[packing->argument], packed);
  void *arguments[3] = {&user_context, &buffers[0], &buffers[1]};
  return packing->run(arguments);
}

/* Returns the packed form of an input for one Run, to be freed by the caller, or NULL. */
static void *pack(const aoe_kernel *kernel, const aoe_packing *packing, void *raw) {
  packing_job job = {kernel, packing, raw};
  void *packed = aligned_alloc(64, (packed_bytes(kernel, packing) + 63) / 64 * 64);
  if (!packed || pack_into(&job, packed) == 0) return packed;
  free(packed);
  return NULL;
}

static OrtStatus *check_shape(const OrtApi *api, const OrtValue *value, const aoe_kernel *kernel,
                              const aoe_tensor *expected) {
  OrtTensorTypeAndShapeInfo *info = NULL;
  size_t rank = 0;
  int64_t shape[AOE_MAX_RANK];
  OrtStatus *status = ORT_CALL(api, 65, ort_type_shape)(value, &info);
  if (status) return status;
  status = ORT_CALL(api, 61, ort_dim_count)(info, &rank);
  int same = !status && rank == (size_t)expected->rank;
  if (same) status = ORT_CALL(api, 62, ort_dims)(info, shape, rank);
  ORT_CALL(api, 99, ort_release_type_shape)(info);
  if (status) return status;
  for (size_t d = 0; same && d < rank; d++) same = shape[d] == expected->shape[d];
  if (same) return NULL;
  return fail(api, ORT_INVALID_ARGUMENT,
              "%s: an input has another shape than the kernel was tuned for", kernel->name);
}

#define AOE_INDICES_A_TASK (1 << 16)

typedef struct {
  const aoe_tensor *tensor;
  const uint8_t *data;
  size_t count;
  size_t outside; /* place of one that is, `count` if there is none */
} index_check;

static int check_some_indices(void *user_context, int task, uint8_t *closure) {
  index_check *check = (index_check *)closure;
  const aoe_tensor *tensor = check->tensor;
  size_t first = (size_t)task * AOE_INDICES_A_TASK;
  size_t count = check->count - first < AOE_INDICES_A_TASK ? check->count - first
                                                           : AOE_INDICES_A_TASK;
  const uint8_t *data = check->data + first * element_bytes[tensor->given];
  size_t found = aoe_first_outside(data, count, tensor->given, tensor->indexed);
  (void)user_context;
  if (found < count) __atomic_store_n(&check->outside, first + found, __ATOMIC_RELAXED);
  return 0;
}

/* Refuses indices outside of what they count, as ONNX Runtime does. */
static OrtStatus *check_indices(run_context *run, const aoe_kernel *kernel,
                                const aoe_tensor *tensor, const void *data) {
  if (!tensor->indexed) return NULL;
  size_t count = 1;
  for (int d = 0; d < tensor->rank; d++) count *= (size_t)tensor->shape[d];
  index_check check = {tensor, (const uint8_t *)data, count, count};
  int tasks = (int)((count + AOE_INDICES_A_TASK - 1) / AOE_INDICES_A_TASK);
  if (halide_do_par_for(run, check_some_indices, 0, tasks, (uint8_t *)&check))
    return fail(run->api, ORT_FAIL, "%s: the indices could not be checked", kernel->name);
  if (check.outside == count) return NULL;
  int64_t index = tensor->given == AOE_INT64 ? ((const int64_t *)data)[check.outside]
                                             : ((const int32_t *)data)[check.outside];
  char message[256];
  snprintf(message, sizeof message,
           "%s: an index is out of bounds (got %lld, expected %lld to %lld)", kernel->name,
           (long long)index, (long long)-tensor->indexed, (long long)tensor->indexed - 1);
  return ORT_CALL(run->api, 0, ort_create_status)(ORT_INVALID_ARGUMENT, message);
}

static OrtStatus *run_kernel(const kernel_state *state, OrtKernelContext *context,
                             void **packed) {
  const OrtApi *api = state->api;
  const aoe_kernel *kernel = state->kernel;
  halide_buffer_t buffers[AOE_MAX_ARGUMENTS + 1];
  halide_dimension_t dims[AOE_MAX_ARGUMENTS + 1][AOE_MAX_RANK];
  void *arguments[AOE_MAX_ARGUMENTS + 2];
  void *raw[AOE_MAX_ARGUMENTS];
  run_context run = {{NULL}, api, context};
  void *user_context = &run;
  OrtStatus *status = NULL;
  void *data = NULL;

  arguments[0] = &user_context;
  for (int i = 0; i < kernel->input_count; i++) {
    const OrtValue *value = NULL;
    status = ORT_CALL(api, 90, ort_context_input)(context, (size_t)i, &value);
    if (!status) status = check_shape(api, value, kernel, &kernel->arguments[i]);
    if (!status) status = ORT_CALL(api, 51, ort_tensor_data)((OrtValue *)value, &raw[i]);
    if (!status) status = check_indices(&run, kernel, &kernel->arguments[i], raw[i]);
    if (status) return status;
    bind(&buffers[i], dims[i], &kernel->arguments[i], raw[i]);
  }
  for (int p = 0; p < kernel->packing_count; p++) {
    const aoe_packing *packing = &kernel->packings[p];
    int i = packing->argument;
    if (!packed[p]) packed[p] = pack(kernel, packing, raw[packing->input]);
    if (!packed[p]) return fail(api, ORT_FAIL, "%s: no memory to pack an input", kernel->name);
    bind(&buffers[i], dims[i], &kernel->arguments[i], packed[p]);
  }
  int last = kernel->argument_count;
  for (int i = 0; i < last; i++) arguments[i + 1] = &buffers[i];
  OrtValue *output = NULL;
  status = ORT_CALL(api, 91, ort_context_output)(context, 0, kernel->output.shape,
                                                 (size_t)kernel->output.rank, &output);
  if (!status) status = ORT_CALL(api, 51, ort_tensor_data)(output, &data);
  if (status) return status;
  bind(&buffers[last], dims[last], &kernel->output, data);
  arguments[last + 1] = &buffers[last];
  run.scratch.stack = aoe_take_stack(AOE_OF_KERNEL);
  int code = kernel->run(arguments);
  aoe_return_stack(run.scratch.stack);
  return code ? fail(api, ORT_FAIL, "%s: the kernel failed", kernel->name) : NULL;
}

static OrtStatus *compute(void *state_pointer, OrtKernelContext *context) {
  const kernel_state *state = (const kernel_state *)state_pointer;
  void *packed[AOE_MAX_PACKINGS] = {NULL};
  int count = state->kernel->packing_count;
  for (int p = 0; p < count; p++)
    if (state->shared[p]) packed[p] = aoe_packed(state->shared[p]);
  OrtStatus *status = run_kernel(state, context, packed);
  for (int p = 0; p < count; p++)
    if (!state->shared[p]) free(packed[p]); /* of an input of this Run alone */
  return status;
}

/* Finds the data of an input that is a constant of the expected shape; NULL if it is none. */
static OrtStatus *constant_data(const kernel_state *state, const OrtKernelInfo *info, int input,
                                void **data) {
  const OrtApi *api = state->api;
  const aoe_tensor *expected = &state->kernel->arguments[input];
  int is_constant = 0;
  const OrtValue *value = NULL;
  OrtStatus *status = ORT_CALL(api, 249, ort_constant_input)(info, (size_t)input, &is_constant,
                                                             &value);
  if (status || !is_constant || !value) return status;
  status = check_shape(api, value, state->kernel, expected);
  return status ? status : ORT_CALL(api, 51, ort_tensor_data)((OrtValue *)value, data);
}

static size_t raw_bytes(const aoe_packing *packing) {
  return dense_bytes(packing->view_rank, packing->extent, AOE_FLOAT32);
}

/* Packs what is constant, unless another session or node has: once for the life of them all. */
static void pack_constants(kernel_state *state, const OrtKernelInfo *info) {
  void *raw[AOE_MAX_PACKINGS] = {NULL};
  for (int p = 0; p < state->kernel->packing_count; p++) {
    const aoe_packing *packing = &state->kernel->packings[p];
    packing_job job = {state->kernel, packing, NULL};
    OrtStatus *status = constant_data(state, info, packing->input, &job.raw);
    if (status) ORT_CALL(state->api, 93, ort_release_status)(status); /* Run will say what it is */
    if (status || !job.raw) continue;
    aoe_pack_order order = {
        .form = packing,
        .raw = job.raw,
        .raw_bytes = raw_bytes(packing),
        .packed_bytes = packed_bytes(state->kernel, packing),
        .make = pack_into,
        .what = &job,
    };
    state->shared[p] = aoe_share_pack(&order);
    if (state->shared[p]) raw[p] = job.raw;
  }
  for (int p = 0; p < state->kernel->packing_count; p++) /* one input may have several forms */
    if (raw[p]) aoe_let_go_of_file_pages(raw[p], raw_bytes(&state->kernel->packings[p]));
}

static OrtStatus *create_kernel(const OrtCustomOp *op, const OrtApi *api,
                                const OrtKernelInfo *info, void **kernel) {
  kernel_state *state = (kernel_state *)calloc(1, sizeof *state);
  if (!state) return fail(api, ORT_FAIL, "%s: out of memory", ((registered_op *)op)->kernel->name);
  state->api = api;
  state->kernel = ((const registered_op *)op)->kernel;
  pack_constants(state, info);
  *kernel = state;
  return NULL;
}

static const aoe_kernel *kernel_of(const OrtCustomOp *op) {
  return ((const registered_op *)op)->kernel;
}
static const char *get_name(const OrtCustomOp *op) { return kernel_of(op)->name; }
static const char *get_provider(const OrtCustomOp *op) { return (void)op, NULL; }
static int onnx_type(const aoe_tensor *tensor) {
  switch (tensor->given) {
    case AOE_INT8: return ORT_TENSOR_INT8;
    case AOE_UINT8: return ORT_TENSOR_UINT8;
    case AOE_INT16: return ORT_TENSOR_INT16;
    case AOE_UINT16: return ORT_TENSOR_UINT16;
    case AOE_FLOAT16: return ORT_TENSOR_FLOAT16;
    case AOE_INT32: return ORT_TENSOR_INT32;
    case AOE_INT64: return ORT_TENSOR_INT64;
    default: return ORT_TENSOR_FLOAT;
  }
}
static int input_type(const OrtCustomOp *op, size_t i) {
  return onnx_type(&kernel_of(op)->arguments[i]);
}
static int output_type(const OrtCustomOp *op, size_t i) {
  return (void)i, onnx_type(&kernel_of(op)->output);
}
static size_t input_count(const OrtCustomOp *op) { return (size_t)kernel_of(op)->input_count; }
static size_t output_count(const OrtCustomOp *op) { return (void)op, 1; }
static int required(const OrtCustomOp *op, size_t i) { return (void)op, (void)i, 0; }
static int one(const OrtCustomOp *op) { return (void)op, 1; }
static int default_memory(const OrtCustomOp *op, size_t i) { return (void)op, (void)i, 0; }
static void destroy(void *kernel) {
  kernel_state *state = (kernel_state *)kernel;
  for (int p = 0; p < state->kernel->packing_count; p++) aoe_give_back_pack(state->shared[p]);
  free(state);
}

static void describe(registered_op *entry, const aoe_kernel *kernel) {
  OrtCustomOp *op = &entry->op;
  memset(entry, 0, sizeof *entry);
  entry->kernel = kernel;
  op->version = AOE_ORT_CUSTOM_OP_VERSION;
  op->GetName = get_name;
  op->GetExecutionProviderType = get_provider;
  op->GetInputType = input_type;
  op->GetInputTypeCount = input_count;
  op->GetOutputType = output_type;
  op->GetOutputTypeCount = output_count;
  op->KernelDestroy = destroy;
  op->GetInputCharacteristic = required;
  op->GetOutputCharacteristic = required;
  op->GetInputMemoryType = default_memory;
  op->GetVariadicInputMinArity = one;
  op->GetVariadicInputHomogeneity = one;
  op->GetVariadicOutputMinArity = one;
  op->GetVariadicOutputHomogeneity = one;
  op->CreateKernelV2 = create_kernel;
  op->KernelComputeV2 = compute;
}

/* Sessions keep pointers to the operators, so they live as long as the library. */
static registered_op *registered_ops(void) {
  static registered_op *ops = NULL;
  registered_op *known = __atomic_load_n(&ops, __ATOMIC_ACQUIRE);
  if (known) return known;
  registered_op *fresh = (registered_op *)calloc((size_t)aoe_kernel_count + 1, sizeof *fresh);
  if (!fresh) return NULL;
  for (int i = 0; i < aoe_kernel_count; i++) describe(&fresh[i], &aoe_kernel_table[i]);
  if (!__atomic_compare_exchange_n(&ops, &known, fresh, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    free(fresh);
    return known;
  }
  return fresh;
}

EXPORT OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
  const OrtApi *api = base->GetApi(AOE_ORT_API_VERSION);
  if (!api) {
    const OrtApi *old = base->GetApi(1);
    return old ? fail(old, ORT_NOT_IMPLEMENTED, "ONNX Runtime %s is too old for tuned kernels",
                      base->GetVersionString())
               : NULL;
  }
  const char *missing = aoe_missing_cpu_feature();
  if (missing) return fail(api, ORT_NOT_IMPLEMENTED, "this CPU lacks %s", missing);
  registered_op *ops = registered_ops();
  if (!ops) return fail(api, ORT_FAIL, "%s: out of memory", "aoe");
  OrtCustomOpDomain *domain = NULL;
  OrtStatus *status = ORT_CALL(api, 26, ort_create_domain)("aoe", &domain);
  for (int i = 0; !status && i < aoe_kernel_count; i++)
    status = ORT_CALL(api, 27, ort_domain_add)(domain, &ops[i].op);
  return status ? status : ORT_CALL(api, 28, ort_add_domain)(options, domain);
}
