/* Kernels written by hand: each shows one thing the glue has to get right. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "HalideRuntime.h"
#include "aoe_kernels.h"

int halide_do_par_for(void *user_context, halide_task_t task, int min, int size,
                      uint8_t *closure);
void *halide_malloc(void *user_context, size_t size);
void halide_free(void *user_context, void *pointer);

static halide_buffer_t *buffer(void **arguments, int i) { return arguments[i + 1]; }
static float *data(void **arguments, int i) { return (float *)buffer(arguments, i)->host; }
static void *context(void **arguments) { return *(void **)arguments[0]; }

/* y = a - b: the order of inputs. */
static int subtract(void **arguments) {
  for (int i = 0; i < 6; i++) data(arguments, 2)[i] = data(arguments, 0)[i] - data(arguments, 1)[i];
  return 0;
}

/* What a kernel sees of its input: type, rank, then (min, extent, stride) of each dim. */
static int describe(void **arguments) {
  halide_buffer_t *in = buffer(arguments, 0);
  float *out = data(arguments, 1);
  *out++ = in->type.code * 10000 + in->type.bits * 100 + in->type.lanes;
  *out++ = in->dimensions;
  for (int d = 0; d < in->dimensions; d++) {
    *out++ = in->dim[d].min;
    *out++ = in->dim[d].extent;
    *out++ = in->dim[d].stride;
  }
  return 0;
}

typedef struct {
  int arrived;
  pthread_t thread[2];
  float *seen;
} meeting;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Every task waits for the other one: only two threads at once can get both of them through. */
static int meet(void *user_context, int task, uint8_t *closure) {
  meeting *shared = *(meeting **)closure;
  (void)user_context;
  shared->thread[task - 5] = pthread_self();
  __atomic_add_fetch(&shared->arrived, 1, __ATOMIC_SEQ_CST);
  for (double start = now(); now() - start < 10.0;)
    if (__atomic_load_n(&shared->arrived, __ATOMIC_SEQ_CST) == 2) {
      shared->seen[task - 5] = 1;
      return 0;
    }
  return 1;
}

static int threads(void **arguments) {
  meeting shared = {0, {0}, data(arguments, 1)}, *pointer = &shared;
  int code = halide_do_par_for(context(arguments), meet, 5, 2, (uint8_t *)&pointer);
  if (code != 0) return code;
  data(arguments, 1)[2] = !pthread_equal(shared.thread[0], shared.thread[1]);
  return 0;
}

static int count(void *user_context, int task, uint8_t *closure) {
  (void)user_context;
  __atomic_add_fetch(&((int *)closure)[task + 3], 1, __ATOMIC_SEQ_CST);
  return 0;
}

/* Tasks -3..96, each exactly once; then none at all. */
static int tasks(void **arguments) {
  int done[100];
  memset(done, 0, sizeof done);
  if (halide_do_par_for(context(arguments), count, -3, 100, (uint8_t *)done)) return 1;
  if (halide_do_par_for(context(arguments), count, 0, 0, (uint8_t *)done)) return 2;
  for (int i = 0; i < 100; i++) data(arguments, 1)[i] = (float)done[i];
  return 0;
}

static int odd_fails(void *user_context, int task, uint8_t *closure) {
  (void)user_context, (void)closure;
  return task % 2 ? -7 : 0;
}

static int failing_task(void **arguments) {
  return halide_do_par_for(context(arguments), odd_fails, 0, 8, NULL);
}

static int failing(void **arguments) { return (void)arguments, -1; }

/* Memory of any size is aligned for the widest vectors. */
static int memory(void **arguments) {
  for (size_t size = 1; size < 5000; size += 123) {
    char *block = halide_malloc(context(arguments), size);
    if (!block || (uintptr_t)block % 64) return 1;
    memset(block, 1, size);
    halide_free(context(arguments), block);
  }
  data(arguments, 1)[0] = 1;
  return 0;
}

static int crash(void **arguments) { return (void)arguments, *(volatile int *)16; }

static int give_up(void **arguments) {
  (void)arguments;
  fputs("these were my last words\n", stderr);
  abort();
}

static int hang(void **arguments) {
  (void)arguments;
  while (pause() != 0) continue;
  return 0;
}

static int packed_times; /* in this process */

/* Twice the input, and how often that was done. */
static int pack_twice(void **arguments) {
  const halide_buffer_t *raw = arguments[1];
  packed_times++;
  if (context(arguments) != NULL || raw->dimensions != 1 || raw->dim[0].extent != 6) return 1;
  for (int i = 0; i < 6; i++) data(arguments, 1)[i] = 2 * data(arguments, 0)[i];
  data(arguments, 1)[6] = 0;
  return 0;
}

static int read_packed(void **arguments) {
  const halide_buffer_t *packed = arguments[2];
  if (packed->dim[0].extent != 7) return 1;
  for (int i = 0; i < 6; i++)
    data(arguments, 2)[i] = data(arguments, 0)[i] + data(arguments, 1)[i];
  data(arguments, 2)[6] = (float)packed_times;
  return 0;
}

/* The sum of the input. */
static int pack_sum(void **arguments) {
  const halide_buffer_t *raw = arguments[1];
  data(arguments, 1)[0] = 0;
  for (int i = 0; i < raw->dim[0].extent; i++) data(arguments, 1)[0] += data(arguments, 0)[i];
  return 0;
}

static int add_sum(void **arguments) {
  data(arguments, 2)[0] = data(arguments, 0)[0] + data(arguments, 1)[0];
  return 0;
}

/* The last of the indices, as the kernel gets them. */
static int read_wide(void **arguments) {
  const halide_buffer_t *in = buffer(arguments, 0);
  if (in->type.code != halide_type_int || in->type.bits != 64) return 1;
  *(int64_t *)buffer(arguments, 1)->host = ((int64_t *)in->host)[in->dim[0].extent - 1];
  return 0;
}

static int read_narrow(void **arguments) {
  const halide_buffer_t *in = buffer(arguments, 0);
  if (in->type.code != halide_type_int || in->type.bits != 32) return 1;
  *(int32_t *)buffer(arguments, 1)->host = ((int32_t *)in->host)[in->dim[0].extent - 1];
  return 0;
}

/* Types of a buffer and of its tensor; no extent is open, and it is dense. */
#define DENSE {0}, {0}, 0, 0
#define FLOATS AOE_FLOAT32, AOE_FLOAT32, DENSE
#define INDICES(TYPE, COUNT) {1, {COUNT}, 1, {COUNT}, TYPE, TYPE, DENSE}
#define SIX {2, {2, 3}, 2, {3, 2}, FLOATS}
static const aoe_tensor two_of_six[] = {SIX, SIX};
static const aoe_tensor six_and_packed[] = {SIX, {2, {2, 3}, 1, {7}, FLOATS}};
static const aoe_packing twice[] = {{1, 1, pack_twice, AOE_FLOAT32, 1, {6}}};
static const aoe_tensor one_and_sum[] = {{1, {1}, 1, {1}, FLOATS},
                                         {1, {262144}, 1, {1}, FLOATS}};
static const aoe_packing sum[] = {{1, 1, pack_sum, AOE_FLOAT32, 1, {262144}}};
static const aoe_tensor wide_indices[] = {INDICES(AOE_INT64, 200000)};
static const aoe_tensor narrow_indices[] = {INDICES(AOE_INT32, 70)};
static const aoe_indices all_wide[] = {{0, 5, 0, {1, 200000}, {0, 1}}};
static const aoe_indices all_narrow[] = {{0, 5, 0, {1, 70}, {0, 1}}};
/* Of ten rows of seven the second and the fourth element, which count 5 and 3. */
static const aoe_indices columns[] = {{0, 5, 1, {10, 1}, {7, 1}}, {0, 3, 3, {10, 1}, {7, 1}}};
static const aoe_tensor cube[] = {{4, {1, 2, 3, 4}, 2, {12, 2}, FLOATS}};
static const aoe_tensor one[] = {{1, {1}, 1, {1}, FLOATS}};
static const aoe_tensor scalar[] = {{0, {0}, 0, {0}, FLOATS}};

const aoe_kernel aoe_kernel_table[] = {
    {"subtract", subtract, 2, 2, two_of_six, SIX, 0, NULL, {0}, NULL, {0}, 0, NULL},
    {"read_packed", read_packed, 2, 2, six_and_packed, {1, {7}, 1, {7}, FLOATS}, 1, twice, {0}, NULL, {0}, 0, NULL},
    {"add_sum", add_sum, 2, 2, one_and_sum, {1, {1}, 1, {1}, FLOATS}, 1, sum, {0}, NULL, {0}, 0, NULL},
    {"read_wide", read_wide, 1, 1, wide_indices, {1, {1}, 1, {1}, AOE_INT64, AOE_INT64, DENSE}, 0, NULL, {0}, NULL, {0}, 1, all_wide},
    {"read_narrow", read_narrow, 1, 1, narrow_indices, {1, {1}, 1, {1}, AOE_INT32, AOE_INT32, DENSE}, 0, NULL, {0}, NULL, {0}, 1, all_narrow},
    {"read_columns", read_narrow, 1, 1, narrow_indices, {1, {1}, 1, {1}, AOE_INT32, AOE_INT32, DENSE}, 0, NULL, {0}, NULL, {0}, 2, columns},
    {"describe", describe, 1, 1, cube, {1, {8}, 1, {8}, FLOATS}, 0, NULL, {0}, NULL, {0}, 0, NULL},
    {"threads", threads, 1, 1, one, {1, {3}, 1, {3}, FLOATS}, 0, NULL, {0}, NULL, {0}, 0, NULL},
    {"tasks", tasks, 1, 1, one, {1, {100}, 1, {100}, FLOATS}, 0, NULL, {0}, NULL, {0}, 0, NULL},
    {"failing_task", failing_task, 1, 1, one, {1, {1}, 1, {1}, FLOATS}, 0, NULL, {0}, NULL, {0}, 0, NULL},
    {"failing", failing, 1, 1, one, {1, {1}, 1, {1}, FLOATS}, 0, NULL, {0}, NULL, {0}, 0, NULL},
    {"crash", crash, 1, 1, one, {1, {1}, 1, {1}, FLOATS}, 0, NULL, {0}, NULL, {0}, 0, NULL},
    {"give_up", give_up, 1, 1, one, {1, {1}, 1, {1}, FLOATS}, 0, NULL, {0}, NULL, {0}, 0, NULL},
    {"hang", hang, 1, 1, one, {1, {1}, 1, {1}, FLOATS}, 0, NULL, {0}, NULL, {0}, 0, NULL},
    {"memory", memory, 1, 1, scalar, {0, {0}, 0, {0}, FLOATS}, 0, NULL, {0}, NULL, {0}, 0, NULL},
};
const int aoe_kernel_count = sizeof aoe_kernel_table / sizeof *aoe_kernel_table;

#ifdef LACKS
const char *aoe_missing_cpu_feature(void) { return LACKS; }
#else
const char *aoe_missing_cpu_feature(void) { return NULL; }
#endif
