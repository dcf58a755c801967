/* Sums of bfloat16 products in the tile registers of AMX, called from kernels as an extern stage.
   Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "HalideRuntime.h"

#define AOE_TILES __attribute__((target("amx-tile,amx-bf16")))
#define AOE_TILE_BYTES 64 /* of a row: 32 bfloat16 or 16 float32 */
#define AOE_TILE_ROWS 16
#define AOE_TILE_REDUCED 32 /* bfloat16 values of a row: products summed by one instruction */

enum { C, W, H, BLOCK, IMAGE };                    /* dimensions of data */
enum { SUM_O, SUM_W, SUM_H, SUM_B, SUM_N };        /* dimensions of sums */
enum { PAIR, WEIGHT_O, TAP, KX, KY, IN_BLOCK, OUT_BLOCK }; /* dimensions of weights */

typedef struct {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_configuration;

/* One register tile: up to 2 groups of results times up to 2 blocks of 16 channels. */
typedef struct {
  const uint8_t *data[2]; /* first value each group of results reads */
  const uint8_t *weights[2];
  uint8_t *sums[2][2]; /* [group][block] */
  int64_t data_row, sums_row;                 /* bytes from one result to the next */
  int64_t data_x, data_y, data_block;         /* bytes between columns, rows, blocks read */
  int64_t weights_x, weights_y, weights_block;
  int32_t columns, rows, blocks; /* of the filter, and blocks of channels read */
} work;

static int is_query(const halide_buffer_t *buffer) { return !buffer->host && !buffer->device; }

/* Says which values the sums need. */
static void answer_query(halide_buffer_t *data, const halide_buffer_t *weights,
                         const halide_buffer_t *sums, int32_t stride_x, int32_t stride_y,
                         int32_t dilation_x, int32_t dilation_y) {
  const halide_dimension_t *out = sums->dim;
  halide_dimension_t *in = data->dim;
  in[C].min = 0;
  in[C].extent = AOE_TILE_REDUCED;
  in[W].min = out[SUM_W].min * stride_x;
  in[W].extent = (out[SUM_W].extent - 1) * stride_x + (weights->dim[KX].extent - 1) * dilation_x + 1;
  in[H].min = out[SUM_H].min * stride_y;
  in[H].extent = (out[SUM_H].extent - 1) * stride_y + (weights->dim[KY].extent - 1) * dilation_y + 1;
  in[BLOCK].min = 0;
  in[BLOCK].extent = weights->dim[IN_BLOCK].extent;
  in[IMAGE].min = out[SUM_N].min;
  in[IMAGE].extent = out[SUM_N].extent;
}

AOE_TILES static void configure(int32_t rows) {
  tile_configuration all;
  memset(&all, 0, sizeof all);
  all.palette = 1;
  for (int tile = 0; tile < 8; tile++) {
    all.row_bytes[tile] = AOE_TILE_BYTES;
    all.rows[tile] = tile >= 6 ? AOE_TILE_ROWS : (uint8_t)rows; /* 6, 7: weights */
  }
  _tile_loadconfig(&all);
}

/* Tiles 0 to 3 sum, 4 and 5 hold data, 6 and 7 weights; the compiler keeps only the loads the
   constant counts leave. */
#define AOE_SUM_TILES(GROUPS, BLOCKS)                                                      \
  AOE_TILES static void sum_##GROUPS##x##BLOCKS(const work *w) {                           \
    _tile_zero(0);                                                                         \
    if (BLOCKS > 1) _tile_zero(1);                                                         \
    if (GROUPS > 1) _tile_zero(2);                                                         \
    if (GROUPS > 1 && BLOCKS > 1) _tile_zero(3);                                           \
    for (int32_t block = 0; block < w->blocks; block++)                                    \
      for (int32_t y = 0; y < w->rows; y++) {                                              \
        int64_t from = block * w->data_block + y * w->data_y;                              \
        int64_t with = block * w->weights_block + y * w->weights_y;                        \
        for (int32_t x = 0; x < w->columns; x++) {                                         \
          _tile_loadd(6, w->weights[0] + with, AOE_TILE_BYTES);                            \
          if (BLOCKS > 1) _tile_loadd(7, w->weights[1] + with, AOE_TILE_BYTES);            \
          _tile_loadd(4, w->data[0] + from, w->data_row);                                  \
          _tile_dpbf16ps(0, 4, 6);                                                         \
          if (BLOCKS > 1) _tile_dpbf16ps(1, 4, 7);                                         \
          if (GROUPS > 1) {                                                                \
            _tile_loadd(5, w->data[1] + from, w->data_row);                                \
            _tile_dpbf16ps(2, 5, 6);                                                       \
            if (BLOCKS > 1) _tile_dpbf16ps(3, 5, 7);                                       \
          }                                                                                \
          from += w->data_x;                                                               \
          with += w->weights_x;                                                            \
        }                                                                                  \
      }                                                                                    \
    _tile_stored(0, w->sums[0][0], w->sums_row);                                           \
    if (BLOCKS > 1) _tile_stored(1, w->sums[0][1], w->sums_row);                           \
    if (GROUPS > 1) _tile_stored(2, w->sums[1][0], w->sums_row);                           \
    if (GROUPS > 1 && BLOCKS > 1) _tile_stored(3, w->sums[1][1], w->sums_row);             \
  }

AOE_SUM_TILES(1, 1)
AOE_SUM_TILES(1, 2)
AOE_SUM_TILES(2, 1)
AOE_SUM_TILES(2, 2)

static uint8_t *place(const halide_buffer_t *buffer, const int32_t *at) {
  int64_t elements = 0;
  for (int32_t d = 0; d < buffer->dimensions; d++)
    elements += (int64_t)(at[d] - buffer->dim[d].min) * buffer->dim[d].stride;
  return buffer->host + elements * (buffer->type.bits / 8);
}

/* One row of results of two blocks of channels, in groups of `rows` results; the last group is
   shifted inwards, so that all have the same size. */
static void sum_row(work *w, const halide_buffer_t *data, const halide_buffer_t *weights,
                    const halide_buffer_t *sums, const int32_t *at, int32_t rows,
                    int32_t stride_x, int32_t stride_y) {
  const halide_dimension_t *dim = sums->dim;
  int32_t blocks = dim[SUM_B].min + dim[SUM_B].extent - at[SUM_B] > 1 ? 2 : 1;
  int32_t end = dim[SUM_W].min + dim[SUM_W].extent;
  for (int32_t b = 0; b < blocks; b++) {
    int32_t first[7] = {0, 0, 0, 0, 0, 0, at[SUM_B] + b};
    w->weights[b] = place(weights, first);
  }
  for (int32_t x = dim[SUM_W].min; x < end; x += 2 * rows) {
    int32_t groups = x + rows < end ? 2 : 1;
    for (int32_t g = 0; g < groups; g++) {
      int32_t column = x + g * rows > end - rows ? end - rows : x + g * rows;
      int32_t read[5] = {0, column * stride_x, at[SUM_H] * stride_y, 0, at[SUM_N]};
      w->data[g] = place(data, read);
      for (int32_t b = 0; b < blocks; b++) {
        int32_t written[5] = {dim[SUM_O].min, column, at[SUM_H], at[SUM_B] + b, at[SUM_N]};
        w->sums[g][b] = place(sums, written);
      }
    }
    if (groups > 1) (blocks > 1 ? sum_2x2 : sum_2x1)(w);
    else (blocks > 1 ? sum_1x2 : sum_1x1)(w);
  }
}

/* sums[o, w, h, b, n] = sum over c, kx, ky, i of
       data[c, w * stride_x + kx * dilation_x, h * stride_y + ky * dilation_y, i, n]
       * weights[c % 2, o, c / 2, kx, ky, i, b]

   data: bfloat16, 32 dense channels innermost, other strides free. weights: bfloat16, dense:
   pairs of channels, 16 results, 16 pairs, columns, rows, blocks read, blocks written. sums:
   float32, 16 dense results innermost. The caller's code is one task of one thread. */
AOE_TILES int aoe_sum_tiles(halide_buffer_t *data, halide_buffer_t *weights, int32_t stride_x,
                            int32_t stride_y, int32_t dilation_x, int32_t dilation_y,
                            halide_buffer_t *sums) {
  if (is_query(data) || is_query(sums)) {
    if (is_query(data))
      answer_query(data, weights, sums, stride_x, stride_y, dilation_x, dilation_y);
    return 0;
  }
  const halide_dimension_t *dim = sums->dim;
  int32_t groups = (dim[SUM_W].extent + AOE_TILE_ROWS - 1) / AOE_TILE_ROWS;
  int32_t rows = (dim[SUM_W].extent + groups - 1) / groups;
  work w = {
      .data_row = (int64_t)data->dim[W].stride * stride_x * 2,
      .sums_row = (int64_t)dim[SUM_W].stride * 4,
      .data_x = (int64_t)data->dim[W].stride * dilation_x * 2,
      .data_y = (int64_t)data->dim[H].stride * dilation_y * 2,
      .data_block = (int64_t)data->dim[BLOCK].stride * 2,
      .weights_x = (int64_t)weights->dim[KX].stride * 2,
      .weights_y = (int64_t)weights->dim[KY].stride * 2,
      .weights_block = (int64_t)weights->dim[IN_BLOCK].stride * 2,
      .columns = weights->dim[KX].extent,
      .rows = weights->dim[KY].extent,
      .blocks = weights->dim[IN_BLOCK].extent,
  };
  configure(rows);
  for (int32_t n = dim[SUM_N].min; n < dim[SUM_N].min + dim[SUM_N].extent; n++)
    for (int32_t b = dim[SUM_B].min; b < dim[SUM_B].min + dim[SUM_B].extent; b += 2)
      for (int32_t h = dim[SUM_H].min; h < dim[SUM_H].min + dim[SUM_H].extent; h++) {
        int32_t at[5] = {0, 0, h, b, n};
        sum_row(&w, data, weights, sums, at, rows, stride_x, stride_y);
      }
  _tile_release();
  return 0;
}

/* Asks the operating system for the tile registers, once for the process; 0 if it grants them.
   Source: Linux, Documentation/arch/x86/xstate.rst. */
int aoe_request_tiles(void) {
  const long request_permission = 0x1023, tile_data = 18;
  return (int)syscall(SYS_arch_prctl, request_permission, tile_data);
}
