/* Levels looked up in a table of 256 bytes, called from kernels as an extern stage. */
#include <stdint.h>
#include <string.h>

#include "HalideRuntime.h"

#define AOE_ENTRIES 256
#define AOE_MOST_DIMENSIONS 8

typedef void look_up(const uint8_t *from, uint8_t *to, const uint8_t *table, int64_t count);

static void look_up_each(const uint8_t *from, uint8_t *to, const uint8_t *table, int64_t count) {
  for (int64_t at = 0; at < count; at++) to[at] = table[from[at]];
}

#if defined(__x86_64__)
#include <immintrin.h>

/* The table is four registers: bit 6 of a level chooses within a pair of them, bit 7 the pair. */
__attribute__((target("avx512f,avx512bw,avx512vbmi"))) static void look_up_in_registers(
    const uint8_t *from, uint8_t *to, const uint8_t *table, int64_t count) {
  const __m512i a = _mm512_loadu_si512(table), b = _mm512_loadu_si512(table + 64),
                c = _mm512_loadu_si512(table + 128), d = _mm512_loadu_si512(table + 192);
  for (int64_t at = 0; at < count; at += 64) {
    const __mmask64 inside = count - at >= 64 ? ~0ull : ~(~0ull << (count - at));
    const __m512i level = _mm512_maskz_loadu_epi8(inside, from + at);
    const __m512i low = _mm512_permutex2var_epi8(a, level, b);
    const __m512i high = _mm512_permutex2var_epi8(c, level, d);
    const __m512i found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(level), low, high);
    _mm512_mask_storeu_epi8(to + at, inside, found);
  }
}

static look_up *fastest(void) {
  const int has_all = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi");
  return has_all ? look_up_in_registers : look_up_each;
}
#else
static look_up *fastest(void) { return look_up_each; }
#endif

static int is_query(const halide_buffer_t *buffer) { return !buffer->host && !buffer->device; }

/* result(...) = table(levels(...)), by the bits of a level: those below 0 come last. */
int aoe_look_up(halide_buffer_t *levels, halide_buffer_t *table, halide_buffer_t *result) {
  const int rank = result->dimensions;
  if (is_query(levels) || is_query(table)) {
    for (int at = 0; is_query(levels) && at < rank; at++) {
      levels->dim[at].min = result->dim[at].min;
      levels->dim[at].extent = result->dim[at].extent;
    }
    if (is_query(table)) {
      table->dim[0].min = 0;
      table->dim[0].extent = AOE_ENTRIES;
    }
    return 0;
  }
  if (rank > AOE_MOST_DIMENSIONS) return -1;
  const uint8_t *from = levels->host;
  for (int at = 0; at < rank; at++) {
    const halide_dimension_t *in = &levels->dim[at], *out = &result->dim[at];
    if (out->extent <= 0) return 0;
    from += (int64_t)(out->min - in->min) * in->stride;
  }
  /* neighbouring dimensions that are dense in both are one run */
  int64_t run = 1;
  int first = 0;
  while (first < rank && levels->dim[first].stride == run && result->dim[first].stride == run)
    run *= result->dim[first++].extent;
  const uint8_t *entries = table->host - (int64_t)table->dim[0].min * table->dim[0].stride;
  uint8_t *to = result->host;
  int32_t index[AOE_MOST_DIMENSIONS] = {0};
  look_up *of_run = fastest();
  for (;;) {
    of_run(from, to, entries, run);
    int at = first;
    for (; at < rank; at++) {
      from += levels->dim[at].stride;
      to += result->dim[at].stride;
      if (++index[at] < result->dim[at].extent) break;
      from -= (int64_t)levels->dim[at].stride * index[at];
      to -= (int64_t)result->dim[at].stride * index[at];
      index[at] = 0;
    }
    if (at == rank) return 0;
  }
}

/* Groups of rows of several parts, one behind the other: each part has levels and a table of its own. */
static int look_up_rows(int operands, halide_buffer_t *const *read, halide_buffer_t *result) {
  int queries = 0;
  for (int at = 0; at < operands; at++) {
    halide_buffer_t *levels = read[2 * at], *table = read[2 * at + 1];
    if (is_query(table)) {
      table->dim[0].min = 0;
      table->dim[0].extent = AOE_ENTRIES;
    }
    queries += is_query(levels) || is_query(table); /* levels are whole: inputs of the kernel */
  }
  if (queries) return 0;
  const halide_dimension_t *rows = &result->dim[1], *groups = &result->dim[2];
  look_up *of_run = fastest();
  for (int32_t group = 0; group < groups->extent; group++)
    for (int32_t row = 0; row < rows->extent; row++) {
      uint8_t *to = result->host + (int64_t)group * groups->stride + (int64_t)row * rows->stride;
      for (int at = 0; at < operands; at++) {
        const halide_buffer_t *levels = read[2 * at], *table = read[2 * at + 1];
        const int64_t place = (int64_t)(groups->min + group) * levels->dim[2].stride +
                              (int64_t)(rows->min + row) * levels->dim[1].stride;
        of_run(levels->host + place, to, table->host, levels->dim[0].extent);
        to += levels->dim[0].extent;
      }
    }
  return 0;
}

#define AOE_OPERAND(n) halide_buffer_t *x##n, halide_buffer_t *t##n

int aoe_look_up_2(AOE_OPERAND(0), AOE_OPERAND(1), halide_buffer_t *result) {
  halide_buffer_t *read[] = {x0, t0, x1, t1};
  return look_up_rows(2, read, result);
}

int aoe_look_up_3(AOE_OPERAND(0), AOE_OPERAND(1), AOE_OPERAND(2), halide_buffer_t *result) {
  halide_buffer_t *read[] = {x0, t0, x1, t1, x2, t2};
  return look_up_rows(3, read, result);
}

int aoe_look_up_4(AOE_OPERAND(0), AOE_OPERAND(1), AOE_OPERAND(2), AOE_OPERAND(3),
                  halide_buffer_t *result) {
  halide_buffer_t *read[] = {x0, t0, x1, t1, x2, t2, x3, t3};
  return look_up_rows(4, read, result);
}
