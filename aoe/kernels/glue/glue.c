/* Hosts Halide kernels as ONNX Runtime custom operators, on the session's own thread pool. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "HalideRuntime.h"
#include "aoe_kernels.h"
#include "file_pages.h"
#include "indices.h"
#include "ort_abi.h"
#include "row_cuts.h"
#include "scratch.h"
#include "shared_packs.h"

#define EXPORT __attribute__((visibility("default")))

typedef struct {
  OrtCustomOp op; /* first member: ONNX Runtime hands back a pointer to it */
  const aoe_kernel *kernel;
} registered_op;

/* What computes one shape or any: a kernel, or a block of one made of several. */
typedef struct {
  const aoe_kernel *kernel;
  aoe_shared_pack *shared[AOE_MAX_PACKINGS]; /* NULL where the input is not known before Run */
} part_state;

typedef struct {
  const OrtApi *api;
  const aoe_kernel *kernel;
  int part_count;
  part_state parts[AOE_MAX_BLOCKS];
} kernel_state;

/* What a kernel, and each task of it, gets as `user_context`. */
typedef struct {
  aoe_scratch scratch; /* first member: halide_malloc finds it there */
  const OrtApi *api;
  OrtKernelContext *context;
  int is_small; /* tasks are not worth to be shared by the threads */
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
  if (size == 1 || run->is_small) {
    for (int task = 0; task < size; task++) run_task(&range, (size_t)task);
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
                                       halide_type_int,   halide_type_uint,   halide_type_uint,
                                       halide_type_uint};
static const uint8_t element_bytes[] = {4, 2, 1, 4, 8, 1, 2, 2, 2, 1};

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

/* Extents of a buffer; those that are open come from the shape of the tensor. */
static const int32_t *extents_of(const aoe_tensor *tensor, const int64_t *shape,
                                 int32_t *extent) {
  if (!shape) return tensor->extent;
  for (int d = 0; d < tensor->view_rank; d++) {
    extent[d] = tensor->extent[d];
    for (int axis = 0; axis < tensor->rank; axis++)
      if (tensor->open[d] >> axis & 1) extent[d] *= (int32_t)shape[axis];
  }
  return extent;
}

/* `shape` is NULL where no extent is open. */
static void bind(halide_buffer_t *buffer, halide_dimension_t *dims, const aoe_tensor *tensor,
                 const int64_t *shape, void *data) {
  int32_t extent[AOE_MAX_RANK];
  bind_view(buffer, dims, tensor->view_rank, extents_of(tensor, shape, extent), tensor->element,
            data);
  buffer->host += tensor->offset * element_bytes[tensor->element];
  for (int d = 0; d < tensor->view_rank && tensor->stride[0]; d++) dims[d].stride = tensor->stride[d];
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
  bind_view(&buffers[0], dims[0], packing->view_rank, packing->extent, packing->element,
            job->raw);
  bind(&buffers[1], dims[1], &job->kernel->arguments[packing->argument], NULL, packed);
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

/* Reads the shape of a tensor; its rank is -1 where it has more dimensions than kernels may have. */
static OrtStatus *read_shape(const OrtApi *api, const OrtValue *value, int64_t *shape, int *rank) {
  OrtTensorTypeAndShapeInfo *info = NULL;
  size_t count = 0;
  OrtStatus *status = ORT_CALL(api, 65, ort_type_shape)(value, &info);
  if (status) return status;
  status = ORT_CALL(api, 61, ort_dim_count)(info, &count);
  *rank = count <= AOE_MAX_RANK ? (int)count : -1;
  if (!status && *rank > 0) status = ORT_CALL(api, 62, ort_dims)(info, shape, count);
  ORT_CALL(api, 99, ort_release_type_shape)(info);
  return status;
}

static OrtStatus *check_dims(const OrtApi *api, const aoe_kernel *kernel, const int64_t *shape,
                             int rank, const aoe_tensor *expected, int first) {
  int same = rank == expected->rank;
  unsigned open = 0;
  for (int d = 0; d < expected->view_rank; d++) open |= expected->open[d];
  for (int d = first; same && d < rank; d++)
    same = shape[d] == expected->shape[d] || (open >> d & 1);
  if (same) return NULL;
  return fail(api, ORT_INVALID_ARGUMENT,
              "%s: an input has another shape than the kernel was tuned for", kernel->name);
}

static OrtStatus *check_shape(const OrtApi *api, const OrtValue *value, const aoe_kernel *kernel,
                              const aoe_tensor *expected) {
  int64_t shape[AOE_MAX_RANK];
  int rank = 0;
  OrtStatus *status = read_shape(api, value, shape, &rank);
  return status ? status : check_dims(api, kernel, shape, rank, expected, 0);
}

#define AOE_INDICES_A_TASK (1 << 16)

typedef struct {
  aoe_element element;
  int64_t length;
  const uint8_t *data;
  size_t count;
  size_t outside; /* place of one that is, `count` if there is none */
} index_check;

static int check_some_indices(void *user_context, int task, uint8_t *closure) {
  index_check *check = (index_check *)closure;
  size_t first = (size_t)task * AOE_INDICES_A_TASK;
  size_t count = check->count - first < AOE_INDICES_A_TASK ? check->count - first
                                                           : AOE_INDICES_A_TASK;
  const uint8_t *data = check->data + first * element_bytes[check->element];
  size_t found = aoe_first_outside(data, count, check->element, check->length);
  (void)user_context;
  if (found < count) __atomic_store_n(&check->outside, first + found, __ATOMIC_RELAXED);
  return 0;
}

static int64_t index_at(const void *data, aoe_element element, int64_t at) {
  return element == AOE_INT64 ? ((const int64_t *)data)[at] : ((const int32_t *)data)[at];
}

static OrtStatus *index_outside(run_context *run, const aoe_kernel *kernel, int64_t index,
                                int64_t length) {
  char message[256];
  snprintf(message, sizeof message,
           "%s: an index is out of bounds (got %lld, expected %lld to %lld)", kernel->name,
           (long long)index, (long long)-length, (long long)length - 1);
  return ORT_CALL(run->api, 0, ort_create_status)(ORT_INVALID_ARGUMENT, message);
}

/* Refuses indices outside of what they count, as ONNX Runtime does. */
static OrtStatus *check_indices(run_context *run, const aoe_kernel *kernel,
                                const aoe_indices *indices, void *const *raw) {
  aoe_element element = kernel->arguments[indices->input].given;
  const uint8_t *data = (const uint8_t *)raw[indices->input];
  data += (size_t)indices->offset * element_bytes[element];
  if (indices->count[0] > 1 || indices->stride[1] != 1) { /* columns of a matrix: few */
    for (int64_t row = 0; row < indices->count[0]; row++)
      for (int64_t i = 0; i < indices->count[1]; i++) {
        int64_t at = row * indices->stride[0] + i * indices->stride[1];
        int64_t index = index_at(data, element, at);
        if (index < -indices->length || index >= indices->length)
          return index_outside(run, kernel, index, indices->length);
      }
    return NULL;
  }
  size_t count = (size_t)indices->count[1];
  index_check check = {element, indices->length, data, count, count};
  int tasks = (int)((count + AOE_INDICES_A_TASK - 1) / AOE_INDICES_A_TASK);
  if (halide_do_par_for(run, check_some_indices, 0, tasks, (uint8_t *)&check))
    return fail(run->api, ORT_FAIL, "%s: the indices could not be checked", kernel->name);
  if (check.outside == count) return NULL;
  int64_t index = index_at(data, element, (int64_t)check.outside);
  return index_outside(run, kernel, index, indices->length);
}

static size_t row_bytes(const aoe_tensor *tensor, int32_t rows) {
  return dense_bytes(tensor->view_rank, tensor->extent, tensor->element) / (size_t)rows;
}

/* One call of a part, from a row on: open inputs and the result begin there. */
typedef struct {
  const part_state *part;
  void **raw;
  void *data;
  int64_t (*shapes)[AOE_MAX_RANK]; /* of inputs, then the result; NULL where no axis is open */
  uint64_t open_inputs;
  int32_t rows; /* of the part; 1 where nothing is open */
  int64_t row;
} part_call;

typedef int (*kernel_function)(void **);

static float tiles_of(const halide_buffer_t *buffer, int dimension, int32_t tile) {
  return (float)((buffer->dim[dimension].extent + tile - 1) / tile);
}

/* Returns the function of a kernel for buffers of these extents, the result last: the first one that
   fits, or of those in register tiles of several sizes the one whose tiles cost least together. */
static kernel_function function_for(const aoe_kernel *kernel, const halide_buffer_t *buffers,
                                    int result) {
  const aoe_open *open = &kernel->open;
  kernel_function found = kernel->run;
  float least_cost = INFINITY;
  for (int v = 0; v < open->variant_count; v++) {
    const aoe_variant *variant = &open->variants[v];
    int fits = 1;
    for (int d = 0; d < buffers[result].dimensions; d++)
      fits &= buffers[result].dim[d].extent >= variant->least[d];
    if (!fits && (variant->tile || v < open->variant_count - 1)) continue;
    if (!variant->tile) return variant->run;
    const halide_buffer_t *cut = &buffers[open->tiled];
    int rows = open->rows_dimension;
    float cost = tiles_of(cut, open->tiled_dimension, variant->tile) * variant->cost;
    cost += (float)cut->dim[open->tiled_dimension].extent * variant->rest;
    if (rows) cost *= tiles_of(&buffers[result], rows, variant->least[rows]);
    if (cost >= least_cost) continue;
    found = variant->run;
    least_cost = cost;
  }
  return found;
}

static OrtStatus *run_part(run_context *run, const part_call *call, void **packed) {
  const aoe_kernel *kernel = call->part->kernel;
  halide_buffer_t buffers[AOE_MAX_ARGUMENTS + 1];
  halide_dimension_t dims[AOE_MAX_ARGUMENTS + 1][AOE_MAX_RANK];
  void *arguments[AOE_MAX_ARGUMENTS + 2];
  void *user_context = run;
  int last = kernel->argument_count;
  uint8_t *result = (uint8_t *)call->data;

  arguments[0] = &user_context;
  for (int i = 0; i < kernel->input_count; i++) {
    uint8_t *from = (uint8_t *)call->raw[i];
    if (call->open_inputs >> i & 1)
      from += (size_t)call->row * row_bytes(&kernel->arguments[i], call->rows);
    bind(&buffers[i], dims[i], &kernel->arguments[i], call->shapes ? call->shapes[i] : NULL, from);
  }
  for (int i = kernel->input_count; i < last; i++)
    bind(&buffers[i], dims[i], &kernel->arguments[i], NULL, call->raw[kernel->arguments[i].input]);
  for (int p = 0; p < kernel->packing_count; p++) {
    int i = kernel->packings[p].argument;
    bind(&buffers[i], dims[i], &kernel->arguments[i], NULL, packed[p]);
  }
  if (call->row) result += (size_t)call->row * row_bytes(&kernel->output, call->rows);
  bind(&buffers[last], dims[last], &kernel->output,
       call->shapes ? call->shapes[kernel->input_count] : NULL, result);
  for (int i = 0; i <= last; i++) arguments[i + 1] = &buffers[i];
  run->scratch.stack = aoe_take_stack(AOE_OF_KERNEL);
  int code = function_for(kernel, buffers, last)(arguments);
  aoe_return_stack(run->scratch.stack);
  return code ? fail(run->api, ORT_FAIL, "%s: the kernel failed", kernel->name) : NULL;
}

/* Calls a part with what it packs, which is freed unless the part shares it. */
static OrtStatus *pack_and_run(run_context *run, const part_call *call) {
  const aoe_kernel *kernel = call->part->kernel;
  void *packed[AOE_MAX_PACKINGS] = {NULL};
  OrtStatus *status = NULL;
  for (int p = 0; !status && p < kernel->packing_count; p++) {
    const aoe_packing *packing = &kernel->packings[p];
    aoe_shared_pack *shared = call->part->shared[p];
    packed[p] = shared ? aoe_packed(shared) : NULL;
    if (!packed[p]) packed[p] = pack(kernel, packing, call->raw[packing->input]);
    if (!packed[p])
      status = fail(run->api, ORT_FAIL, "%s: no memory to pack an input", kernel->name);
  }
  if (!status) status = run_part(run, call, packed);
  for (int p = 0; p < kernel->packing_count; p++)
    if (!call->part->shared[p]) free(packed[p]); /* of an input of this Run alone */
  return status;
}

static size_t aligned_bytes(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

/* Calls a part for fewer rows than it computes, with copies of them that zeros follow. A product
   whose weights come from memory reads them once this way, and once for each of smaller parts. */
static OrtStatus *run_padded(run_context *run, part_call call, int64_t rows) {
  const aoe_kernel *kernel = call.part->kernel;
  void *raw[AOE_MAX_ARGUMENTS];
  size_t row[AOE_MAX_ARGUMENTS + 1], total = 0;
  for (int i = 0; i <= kernel->input_count; i++) {
    const aoe_tensor *tensor = i < kernel->input_count ? &kernel->arguments[i] : &kernel->output;
    int is_open = i == kernel->input_count || (call.open_inputs >> i & 1);
    row[i] = is_open ? row_bytes(tensor, call.rows) : 0;
    total += aligned_bytes(row[i] * (size_t)call.rows);
  }
  uint8_t *copies = aligned_alloc(64, total ? total : 64), *next = copies;
  if (!copies) return fail(run->api, ORT_FAIL, "%s: no memory to fill up rows", kernel->name);
  for (int i = 0; i < kernel->input_count; i++) {
    raw[i] = row[i] ? next : call.raw[i];
    if (!row[i]) continue;
    memcpy(next, call.raw[i], row[i] * (size_t)rows);
    memset(next + row[i] * (size_t)rows, 0, row[i] * (size_t)(call.rows - rows));
    next += aligned_bytes(row[i] * (size_t)call.rows);
  }
  void *result = call.data;
  call.raw = raw;
  call.data = next;
  OrtStatus *status = pack_and_run(run, &call);
  if (!status) memcpy(result, next, row[kernel->input_count] * (size_t)rows);
  free(copies);
  return status;
}

/* Computes rows in blocks; the last of a size may begin earlier and compute some rows again. */
static OrtStatus *run_rows(run_context *run, const kernel_state *state, void **raw, void *data,
                           int64_t rows) {
  const aoe_kernel *kernel = state->kernel;
  OrtStatus *status = NULL;
  int64_t done = 0;
  aoe_cut cuts[AOE_MAX_BLOCKS];
  aoe_cut_rows(&kernel->rows, rows, cuts);
  for (int b = 0; !status && b < kernel->rows.block_count && done < rows; b++) {
    int32_t size = kernel->rows.blocks[b].rows;
    part_call call = {&state->parts[b], raw, data, NULL, kernel->rows.open_inputs, size, 0};
    if (cuts[b] == AOE_SMALLER) continue;
    if (rows < size) return run_padded(run, call, rows);
    for (; !status && done + size <= rows; done += size) {
      call.row = done;
      status = pack_and_run(run, &call);
    }
    if (status || cuts[b] == AOE_AND_SMALLER || done == rows) continue;
    call.row = rows - size;
    status = pack_and_run(run, &call);
    done = rows;
  }
  return status;
}

/* ---- open extents ---- */

#define AOE_SMALL_WORK (1 << 18) /* products of a few microseconds */

/* A tensor of a Run. */
typedef struct {
  void *data;
  int64_t shape[AOE_MAX_RANK];
  int rank;
} open_tensor;

/* Notes the open extents of a tensor; 0 where the same one was another before. */
static int note_extents(const open_tensor *tensor, const aoe_tensor *expected, int64_t *extents) {
  if (tensor->rank != expected->rank) return 0;
  for (int d = 0; d < tensor->rank; d++) {
    int64_t wanted = expected->shape[d];
    int64_t *extent = wanted < 0 ? &extents[-1 - wanted] : &wanted;
    if (*extent < 0) *extent = tensor->shape[d];
    if (*extent != tensor->shape[d]) return 0;
  }
  return 1;
}

/* Shows a dense tensor in the dimensions of a kernel: what it has once only is the same for all. */
static int bind_open(halide_buffer_t *buffer, halide_dimension_t *dims, const aoe_tensor *expected,
                     const aoe_dimension *dimensions, const open_tensor *tensor) {
  int64_t strides[AOE_MAX_RANK], stride = 1;
  for (int d = tensor->rank - 1; d >= 0; d--) {
    strides[d] = stride;
    stride *= tensor->shape[d];
  }
  if (stride > INT32_MAX) return 0; /* kernels count in 32 bits */
  bind_view(buffer, dims, expected->view_rank, expected->extent, expected->element, tensor->data);
  for (int d = 0; d < expected->view_rank; d++) {
    int from = dimensions[d].source;
    int64_t whole = from < 0 ? 1 : tensor->shape[from];
    dims[d].extent = dimensions[d].extent ? dimensions[d].extent : (int32_t)whole;
    if (d || from < 0)
      dims[d].stride = dims[d].extent == 1 ? 0 : (int32_t)strides[from] * dimensions[d].step;
  }
  return 1;
}

static OrtStatus *run_open(run_context *run, const aoe_kernel *block, open_tensor *tensors) {
  halide_buffer_t buffers[AOE_MAX_ARGUMENTS + 1];
  halide_dimension_t dims[AOE_MAX_ARGUMENTS + 1][AOE_MAX_RANK];
  void *arguments[AOE_MAX_ARGUMENTS + 2];
  void *user_context = run;
  arguments[0] = &user_context;
  for (int i = 0; i <= block->input_count; i++) {
    const aoe_tensor *expected = i < block->input_count ? &block->arguments[i] : &block->output;
    if (!bind_open(&buffers[i], dims[i], expected, block->dimensions[i], &tensors[i]))
      return fail(run->api, ORT_FAIL, "%s: a tensor has too many elements", block->name);
    arguments[i + 1] = &buffers[i];
  }
  run->scratch.stack = aoe_take_stack(AOE_OF_KERNEL);
  int code = function_for(block, buffers, block->input_count)(arguments);
  aoe_return_stack(run->scratch.stack);
  return code ? fail(run->api, ORT_FAIL, "%s: the kernel failed", block->name) : NULL;
}

static OrtStatus *compute_open(const kernel_state *state, OrtKernelContext *context) {
  const OrtApi *api = state->api;
  const aoe_kernel *kernel = state->kernel;
  run_context run = {{NULL}, api, context, 0};
  open_tensor tensors[AOE_MAX_ARGUMENTS + 1], *result = &tensors[kernel->input_count];
  int64_t extents[AOE_MAX_ARGUMENTS * AOE_MAX_RANK], work = 1, longest = 1;
  OrtValue *output = NULL;
  OrtStatus *status = NULL;
  memset(extents, -1, sizeof extents);
  for (int i = 0; i < kernel->input_count; i++) {
    const OrtValue *value = NULL;
    status = ORT_CALL(api, 90, ort_context_input)(context, (size_t)i, &value);
    if (!status) status = read_shape(api, value, tensors[i].shape, &tensors[i].rank);
    if (!status && !note_extents(&tensors[i], &kernel->arguments[i], extents))
      status = fail(api, ORT_INVALID_ARGUMENT,
                    "%s: the shapes of inputs contradict each other", kernel->name);
    if (!status) status = ORT_CALL(api, 51, ort_tensor_data)((OrtValue *)value, &tensors[i].data);
    if (status) return status;
  }
  result->rank = kernel->output.rank;
  for (int d = 0; d < result->rank; d++) {
    int64_t wanted = kernel->output.shape[d];
    result->shape[d] = wanted < 0 ? extents[-1 - wanted] : wanted;
    work *= result->shape[d];
  }
  status = ORT_CALL(api, 91, ort_context_output)(context, 0, result->shape,
                                                 (size_t)result->rank, &output);
  if (!status) status = ORT_CALL(api, 51, ort_tensor_data)(output, &result->data);
  if (status || !work) return status;
  for (int e = 0; e < kernel->rows.open_extents; e++) {
    if (!extents[e]) return memset(result->data, 0, (size_t)work * sizeof(float)), NULL;
    if (extents[e] > longest) longest = extents[e];
  }
  run.is_small = work * longest < AOE_SMALL_WORK;
  const aoe_block *block = kernel->rows.blocks;
  while (block->rows > result->shape[kernel->rows.rows_dimension]) block++;
  return run_open(&run, block->kernel, tensors);
}

/* True for inputs that have exactly the shapes of a kernel. */
static int has_shapes(const aoe_kernel *kernel, int64_t (*shapes)[AOE_MAX_RANK]) {
  for (int i = 0; i < kernel->input_count; i++) {
    const aoe_tensor *wanted = &kernel->arguments[i];
    if (memcmp(shapes[i], wanted->shape, (size_t)wanted->rank * sizeof *wanted->shape)) return 0;
  }
  return 1;
}

/* Returns what computes a call as a whole: the block of its very shapes, else the first one for no
   more elements than its result has. A kernel without blocks is its own part. */
static const part_state *part_for(const kernel_state *state, int64_t (*shapes)[AOE_MAX_RANK],
                                  int64_t elements) {
  const aoe_rows *rows = &state->kernel->rows;
  int b = 0;
  for (; b < rows->block_count - 1; b++) {
    const aoe_block *block = &rows->blocks[b];
    int is_fixed = !block->kernel->open.extent_count;
    if (is_fixed ? has_shapes(block->kernel, shapes) : elements >= block->rows) break;
  }
  return &state->parts[b];
}

/* Checks the open extents of inputs, and writes those of the result behind their shapes. */
static OrtStatus *follow_extents(const OrtApi *api, const aoe_kernel *kernel,
                                 int64_t (*shapes)[AOE_MAX_RANK]) {
  for (int i = 0; i < kernel->open.extent_count; i++) {
    const aoe_extent *one = &kernel->open.extents[i];
    int64_t top = one->times * shapes[one->source][one->source_axis] + one->plus;
    int64_t extent = top < 0 ? 0 : top / one->over;
    if (one->tensor == kernel->input_count) shapes[one->tensor][one->axis] = extent;
    else if (shapes[one->tensor][one->axis] != extent)
      return fail(api, ORT_INVALID_ARGUMENT, "%s: inputs whose extents do not go together",
                  kernel->name);
  }
  return NULL;
}

static OrtStatus *compute(void *state_pointer, OrtKernelContext *context) {
  const kernel_state *state = (const kernel_state *)state_pointer;
  const OrtApi *api = state->api;
  const aoe_kernel *kernel = state->kernel;
  run_context run = {{NULL}, api, context, 0};
  void *raw[AOE_MAX_ARGUMENTS];
  int64_t open[AOE_MAX_RANK], shapes[AOE_MAX_ARGUMENTS + 1][AOE_MAX_RANK];
  int64_t *result = shapes[kernel->input_count];
  int is_open_known = 0;
  OrtStatus *status = NULL;
  OrtValue *output = NULL;
  void *data = NULL;

  if (kernel->rows.open_extents) return compute_open(state, context);
  for (int i = 0; i < kernel->input_count; i++) {
    const OrtValue *value = NULL;
    const aoe_tensor *expected = &kernel->arguments[i];
    int64_t *shape = shapes[i];
    int rank = 0, first = kernel->rows.open_inputs >> i & 1 ? kernel->rows.open_rank : 0;
    status = ORT_CALL(api, 90, ort_context_input)(context, (size_t)i, &value);
    if (!status) status = read_shape(api, value, shape, &rank);
    if (!status) status = check_dims(api, kernel, shape, rank, expected, first);
    if (!status && first) { /* all open inputs have the same leading dimensions */
      if (!is_open_known) memcpy(open, shape, sizeof open);
      is_open_known = 1;
      if (memcmp(open, shape, (size_t)first * sizeof *open))
        status = fail(api, ORT_INVALID_ARGUMENT, "%s: inputs of different rows", kernel->name);
    }
    if (!status) status = ORT_CALL(api, 51, ort_tensor_data)((OrtValue *)value, &raw[i]);
    if (status) return status;
  }
  for (int i = 0; i < kernel->indices_count; i++) {
    status = check_indices(&run, kernel, &kernel->indices[i], raw);
    if (status) return status;
  }
  memcpy(result, kernel->output.shape, sizeof *shapes);
  for (int d = 0; d < kernel->rows.open_rank; d++) result[d] = open[d];
  status = follow_extents(api, kernel, shapes);
  if (status) return status;
  status = ORT_CALL(api, 91, ort_context_output)(context, 0, result,
                                                 (size_t)kernel->output.rank, &output);
  if (!status) status = ORT_CALL(api, 51, ort_tensor_data)(output, &data);
  if (status) return status;
  int is_open = kernel->open.extent_count > 0;
  if (kernel->rows.block_count && !is_open) {
    int64_t rows = 1;
    for (int d = 0; d < kernel->rows.open_rank; d++) rows *= open[d];
    return run_rows(&run, state, raw, data, rows);
  }
  int64_t elements = 1;
  for (int i = 0; is_open && i <= kernel->input_count; i++) {
    const aoe_tensor *tensor = i < kernel->input_count ? &kernel->arguments[i] : &kernel->output;
    elements = 1;
    for (int d = 0; d < tensor->rank; d++) elements *= shapes[i][d];
    if (elements > INT32_MAX) /* kernels count in 32 bits */
      return fail(api, ORT_FAIL, "%s: a tensor has too many elements", kernel->name);
  }
  if (!elements) return NULL; /* nothing to compute */
  const part_state *part = part_for(state, shapes, elements);
  part_call call = {part, raw, data, part->kernel->open.extent_count ? shapes : NULL, 0, 1, 0};
  return pack_and_run(&run, &call);
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
  return dense_bytes(packing->view_rank, packing->extent, packing->element);
}

/* Packs what is constant, unless another session or node has: once for the life of them all. */
static void pack_constants(kernel_state *state, part_state *part, const OrtKernelInfo *info) {
  const aoe_kernel *kernel = part->kernel;
  void *raw[AOE_MAX_PACKINGS] = {NULL};
  for (int p = 0; p < kernel->packing_count; p++) {
    const aoe_packing *packing = &kernel->packings[p];
    packing_job job = {kernel, packing, NULL};
    OrtStatus *status = constant_data(state, info, packing->input, &job.raw);
    if (status) ORT_CALL(state->api, 93, ort_release_status)(status); /* Run will say what it is */
    if (status || !job.raw) continue;
    aoe_pack_order order = {
        .form = packing,
        .raw = job.raw,
        .raw_bytes = raw_bytes(packing),
        .packed_bytes = packed_bytes(kernel, packing),
        .make = pack_into,
        .what = &job,
    };
    part->shared[p] = aoe_share_pack(&order);
    if (part->shared[p]) raw[p] = job.raw;
  }
  for (int p = 0; p < kernel->packing_count; p++) /* one input may have several forms */
    if (raw[p]) aoe_let_go_of_file_pages(raw[p], raw_bytes(&kernel->packings[p]));
}

static OrtStatus *create_kernel(const OrtCustomOp *op, const OrtApi *api,
                                const OrtKernelInfo *info, void **kernel) {
  kernel_state *state = (kernel_state *)calloc(1, sizeof *state);
  if (!state) return fail(api, ORT_FAIL, "%s: out of memory", ((registered_op *)op)->kernel->name);
  const aoe_kernel *made = ((const registered_op *)op)->kernel;
  state->api = api;
  state->kernel = made;
  state->part_count = made->rows.block_count ? made->rows.block_count : 1;
  for (int i = 0; i < state->part_count; i++) {
    state->parts[i].kernel = made->rows.block_count ? made->rows.blocks[i].kernel : made;
    pack_constants(state, &state->parts[i], info);
  }
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
    case AOE_BOOL: return ORT_TENSOR_BOOL;
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
  for (int i = 0; i < state->part_count; i++)
    for (int p = 0; p < state->parts[i].kernel->packing_count; p++)
      aoe_give_back_pack(state->parts[i].shared[p]);
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
