/* Sums of products of bfloat16, or of levels of 8 bits, in the tile registers of AMX, called from
   kernels as extern stages.
   Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "HalideRuntime.h"

#define AOE_TILES __attribute__((target("amx-tile,amx-bf16,amx-int8")))
#define AOE_TILE_BYTES 64 /* of a row at most: 32 bfloat16, 64 levels, 16 sums */
#define AOE_TILE_ROWS 16
#define AOE_TILE_REDUCED 32 /* bfloat16 values of a row: products summed by one instruction */

enum { C, W, H, BLOCK, IMAGE };                    /* dimensions of data */
enum { SUM_O, SUM_W, SUM_H, SUM_B, SUM_N };        /* dimensions of sums */
enum { PAIR, WEIGHT_O, TAP, KX, KY, IN_BLOCK, OUT_BLOCK }; /* dimensions of weights */
enum { LEVEL_O, LEVEL_B, LEVEL_W, LEVEL_H, LEVEL_N };      /* dimensions of sums of levels */
enum { PANEL = 3, PANEL_H, PANEL_N };              /* dimensions of panels of weights */

typedef struct {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_configuration;

/* A loop of a sum, and the bytes between what its iterations read. */
typedef struct {
  int32_t count;
  int64_t data, weights;
} sum_loop;

/* One register tile: up to 2 groups of results times up to 2 blocks of 16 channels. */
typedef struct {
  const uint8_t *data[2]; /* first value each group of results reads */
  const uint8_t *weights[2];
  uint8_t *sums[2][2];        /* [group][block] */
  int64_t data_row, sums_row; /* bytes from one result to the next */
  sum_loop inner, middle, outer;
} work;

typedef void sum_tile(const work *);

/* Results of one call: how many there are in each direction, where the first lies, and the bytes
   between two neighbours. */
typedef struct {
  int32_t columns, rows, blocks, images;
  const uint8_t *data;
  int64_t data_column, data_row, data_image;
  const uint8_t *weights;
  int64_t weights_row, weights_block, weights_image; /* of rows and images: 0 if they share them */
  uint8_t *sums;
  int64_t sums_column, sums_row, sums_block, sums_image;
  int32_t read_bytes; /* of a tile's row of data */
  sum_loop inner, middle, outer;
  sum_tile *const (*sum)[2]; /* [groups - 1][blocks - 1] */
} region;

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

AOE_TILES static void configure(int32_t rows, int32_t read_bytes) {
  tile_configuration all;
  memset(&all, 0, sizeof all);
  all.palette = 1;
  for (int tile = 0; tile < 8; tile++) { /* 4, 5: data; 6, 7: weights, a row for four bytes of data */
    all.row_bytes[tile] = (uint16_t)(tile == 4 || tile == 5 ? read_bytes : AOE_TILE_BYTES);
    all.rows[tile] = (uint8_t)(tile >= 6 ? read_bytes / 4 : rows);
  }
  /* GCC takes the instruction for one that reads eight bytes, and drops what the others hold */
  __asm__ volatile("" : : "r"(&all) : "memory");
  _tile_loadconfig(&all);
}

/* Tiles 0 to 3 sum, 4 and 5 hold data, 6 and 7 weights; the compiler keeps only the loads the
   constant counts leave. */
#define AOE_SUM_TILES(NAME, INSTRUCTION, GROUPS, BLOCKS)                                   \
  AOE_TILES static void NAME##_##GROUPS##x##BLOCKS(const work *w) {                        \
    _tile_zero(0);                                                                         \
    if (BLOCKS > 1) _tile_zero(1);                                                         \
    if (GROUPS > 1) _tile_zero(2);                                                         \
    if (GROUPS > 1 && BLOCKS > 1) _tile_zero(3);                                           \
    for (int32_t outer = 0; outer < w->outer.count; outer++)                               \
      for (int32_t middle = 0; middle < w->middle.count; middle++) {                       \
        int64_t from = outer * w->outer.data + middle * w->middle.data;                    \
        int64_t with = outer * w->outer.weights + middle * w->middle.weights;              \
        for (int32_t inner = 0; inner < w->inner.count; inner++) {                         \
          _tile_loadd(6, w->weights[0] + with, AOE_TILE_BYTES);                            \
          if (BLOCKS > 1) _tile_loadd(7, w->weights[1] + with, AOE_TILE_BYTES);            \
          _tile_loadd(4, w->data[0] + from, w->data_row);                                  \
          INSTRUCTION(0, 4, 6);                                                            \
          if (BLOCKS > 1) INSTRUCTION(1, 4, 7);                                            \
          if (GROUPS > 1) {                                                                \
            _tile_loadd(5, w->data[1] + from, w->data_row);                                \
            INSTRUCTION(2, 5, 6);                                                          \
            if (BLOCKS > 1) INSTRUCTION(3, 5, 7);                                          \
          }                                                                                \
          from += w->inner.data;                                                           \
          with += w->inner.weights;                                                        \
        }                                                                                  \
      }                                                                                    \
    _tile_stored(0, w->sums[0][0], w->sums_row);                                           \
    if (BLOCKS > 1) _tile_stored(1, w->sums[0][1], w->sums_row);                           \
    if (GROUPS > 1) _tile_stored(2, w->sums[1][0], w->sums_row);                           \
    if (GROUPS > 1 && BLOCKS > 1) _tile_stored(3, w->sums[1][1], w->sums_row);             \
  }
#define AOE_ALL_SUM_TILES(NAME, INSTRUCTION)                                               \
  AOE_SUM_TILES(NAME, INSTRUCTION, 1, 1)                                                   \
  AOE_SUM_TILES(NAME, INSTRUCTION, 1, 2)                                                   \
  AOE_SUM_TILES(NAME, INSTRUCTION, 2, 1)                                                   \
  AOE_SUM_TILES(NAME, INSTRUCTION, 2, 2)                                                   \
  static sum_tile *const NAME[2][2] = {{NAME##_1x1, NAME##_1x2}, {NAME##_2x1, NAME##_2x2}};

AOE_ALL_SUM_TILES(sum_bfloat16, _tile_dpbf16ps)
AOE_ALL_SUM_TILES(sum_unsigned, _tile_dpbusd) /* unsigned data, signed weights */
AOE_ALL_SUM_TILES(sum_signed, _tile_dpbssd)

/* Some rows of results of two blocks of channels, or of one. A row is cut into groups of `high`
   results; its last group is shifted inwards, so that all have the same size. */
static void sum_rows(const region *of, work *w, int32_t block, int32_t row, int32_t rows,
                     int32_t image, int32_t high) {
  const int32_t across = (of->columns + high - 1) / high, all = across * rows;
  const int32_t blocks = of->blocks - block > 1 ? 2 : 1;
  for (int32_t b = 0; b < blocks; b++)
    w->weights[b] = of->weights + (block + b) * of->weights_block + row * of->weights_row +
                    image * of->weights_image;
  for (int32_t first = 0; first < all; first += 2) {
    const int32_t groups = all - first > 1 ? 2 : 1;
    for (int32_t g = 0; g < groups; g++) {
      const int64_t y = row + (first + g) / across;
      int64_t x = (int64_t)((first + g) % across) * high;
      if (x > of->columns - high) x = of->columns - high;
      w->data[g] = of->data + x * of->data_column + y * of->data_row + image * of->data_image;
      for (int32_t b = 0; b < blocks; b++)
        w->sums[g][b] = of->sums + x * of->sums_column + y * of->sums_row +
                        (block + b) * of->sums_block + image * of->sums_image;
    }
    of->sum[groups - 1][blocks - 1](w);
  }
}

/* All results. The caller's code is one task of one thread, which finds the tile registers as
   they were: without a configuration. */
AOE_TILES static int sum_region(const region *of) {
  const int32_t groups = (of->columns + AOE_TILE_ROWS - 1) / AOE_TILE_ROWS;
  if (groups < 1) return 0;
  const int32_t high = (of->columns + groups - 1) / groups;
  const int32_t rows = of->weights_row ? 1 : of->rows; /* that share their weights */
  work w = {.data_row = of->data_column,
            .sums_row = of->sums_column,
            .inner = of->inner,
            .middle = of->middle,
            .outer = of->outer};
  configure(high, of->read_bytes);
  for (int32_t n = 0; n < of->images; n++)
    for (int32_t row = 0; row < of->rows; row += rows)
      for (int32_t b = 0; b < of->blocks; b += 2) sum_rows(of, &w, b, row, rows, n, high);
  _tile_release();
  return 0;
}

static int64_t bytes_of(const halide_buffer_t *buffer, int dimension) {
  if (dimension >= buffer->dimensions) return 0;
  return (int64_t)buffer->dim[dimension].stride * (buffer->type.bits / 8);
}

/* Where an index of a dimension lies. */
static int64_t offset_of(const halide_buffer_t *buffer, int dimension, int64_t index) {
  if (dimension >= buffer->dimensions) return 0;
  return (index - buffer->dim[dimension].min) * bytes_of(buffer, dimension);
}

/* sums[o, w, h, b, n] = sum over c, kx, ky, i of
       data[c, w * stride_x + kx * dilation_x, h * stride_y + ky * dilation_y, i, n]
       * weights[c % 2, o, c / 2, kx, ky, i, b]

   data: bfloat16, 32 dense channels innermost, other strides free. weights: bfloat16, dense:
   pairs of channels, 16 results, 16 pairs, columns, rows, blocks read, blocks written. sums:
   float32, 16 dense results innermost. */
int aoe_sum_tiles(halide_buffer_t *data, halide_buffer_t *weights, int32_t stride_x,
                  int32_t stride_y, int32_t dilation_x, int32_t dilation_y,
                  halide_buffer_t *sums) {
  if (is_query(data) || is_query(sums)) {
    if (is_query(data))
      answer_query(data, weights, sums, stride_x, stride_y, dilation_x, dilation_y);
    return 0;
  }
  const halide_dimension_t *dim = sums->dim, *with = weights->dim;
  const region of = {
      .columns = dim[SUM_W].extent,
      .rows = dim[SUM_H].extent,
      .blocks = dim[SUM_B].extent,
      .images = dim[SUM_N].extent,
      .data = data->host + offset_of(data, C, 0) +
              offset_of(data, W, (int64_t)dim[SUM_W].min * stride_x) +
              offset_of(data, H, (int64_t)dim[SUM_H].min * stride_y) + offset_of(data, BLOCK, 0) +
              offset_of(data, IMAGE, dim[SUM_N].min),
      .data_column = bytes_of(data, W) * stride_x,
      .data_row = bytes_of(data, H) * stride_y,
      .data_image = bytes_of(data, IMAGE),
      .weights = weights->host + offset_of(weights, OUT_BLOCK, dim[SUM_B].min),
      .weights_block = bytes_of(weights, OUT_BLOCK),
      .sums = sums->host,
      .sums_column = bytes_of(sums, SUM_W),
      .sums_row = bytes_of(sums, SUM_H),
      .sums_block = bytes_of(sums, SUM_B),
      .sums_image = bytes_of(sums, SUM_N),
      .read_bytes = AOE_TILE_BYTES,
      .inner = {with[KX].extent, bytes_of(data, W) * dilation_x, bytes_of(weights, KX)},
      .middle = {with[KY].extent, bytes_of(data, H) * dilation_y, bytes_of(weights, KY)},
      .outer = {with[IN_BLOCK].extent, bytes_of(data, BLOCK), bytes_of(weights, IN_BLOCK)},
      .sum = sum_bfloat16,
  };
  return sum_region(&of);
}

/* Says which levels the sums need; see `aoe_sum_levels`. */
static void answer_levels_query(halide_buffer_t *data, const halide_buffer_t *sums, int32_t pixel,
                                int32_t read, int32_t columns, int32_t rows, int32_t stride_x,
                                int32_t stride_y, int32_t dilation_x, int32_t dilation_y,
                                int32_t flat) {
  const halide_dimension_t *out = sums->dim;
  halide_dimension_t *in = data->dim;
  const int32_t last = out[LEVEL_W].extent - 1;
  in[0].min = out[LEVEL_W].min * stride_x * pixel;
  in[0].extent = (last * stride_x + (columns - 1) * dilation_x) * pixel + read;
  int at = 1;
  if (!pixel) {
    in[at].min = out[LEVEL_W].min;
    in[at++].extent = out[LEVEL_W].extent;
  }
  if (at < data->dimensions) {
    in[at].min = out[LEVEL_H].min * stride_y;
    in[at].extent = (out[LEVEL_H].extent - 1) * stride_y + (rows - 1) * dilation_y + 1;
  }
  if (flat) { /* rows of as many pixels as there are sums, without gaps; the last may be read past */
    in[0].extent = out[LEVEL_W].extent * pixel;
    in[at].extent += 1;
  }
  if (++at < data->dimensions) {
    in[at].min = out[LEVEL_N].min;
    in[at].extent = out[LEVEL_N].extent;
  }
}

/* sums[o, b, w, h, n] = sum over k, kx, ky of
       data[k + (w * stride_x + kx * dilation_x) * pixel, h * stride_y + ky * dilation_y, n]
       * weights[i % 4, o, i / 4, b, h, n],  i = k + (kx + ky * columns) * step * steps

   data: uint8 or int8, dense along its first dimension, which holds a row of pixels, of `pixel`
   levels each; if `pixel` is 0, w is a dimension of its own behind the first: a matrix, or some.
   Of each pixel `steps` times `step` levels are read, a multiple of 4 up to 64, which may be past
   its end: weights are 0 there. weights: int8, fours of i, 16 results, fours, blocks, dense; h and
   n where they are not the same for all rows. sums: int32, 16 dense results innermost. If `flat` is
   not 0, it is the number of results of a row; sums are as wide as the data, and rows are one. */
int aoe_sum_levels(halide_buffer_t *data, halide_buffer_t *weights, int32_t pixel, int32_t step,
                   int32_t steps, int32_t columns, int32_t rows, int32_t stride_x,
                   int32_t stride_y, int32_t dilation_x, int32_t dilation_y, int32_t flat,
                   halide_buffer_t *sums) {
  if (is_query(data) || is_query(sums)) {
    if (is_query(data))
      answer_levels_query(data, sums, pixel, step * steps, columns, rows, stride_x, stride_y,
                          dilation_x, dilation_y, flat);
    return 0;
  }
  const halide_dimension_t *dim = sums->dim;
  const int h = pixel ? 1 : 2, n = h + 1; /* dimensions of data */
  const int64_t first = (int64_t)dim[LEVEL_W].min * stride_x;
  const int64_t tile = (int64_t)step * AOE_TILE_ROWS;
  region of = {
      .columns = dim[LEVEL_W].extent,
      .rows = dim[LEVEL_H].extent,
      .blocks = dim[LEVEL_B].extent,
      .images = dim[LEVEL_N].extent,
      .data = data->host + offset_of(data, 0, pixel ? first * pixel : 0) +
              (pixel ? 0 : offset_of(data, 1, first)) +
              offset_of(data, h, (int64_t)dim[LEVEL_H].min * stride_y) +
              offset_of(data, n, dim[LEVEL_N].min),
      .data_column = (pixel ? pixel : bytes_of(data, 1)) * stride_x,
      .data_row = bytes_of(data, h) * stride_y,
      .data_image = bytes_of(data, n),
      .weights = weights->host + offset_of(weights, PANEL, dim[LEVEL_B].min) +
                 offset_of(weights, PANEL_H, dim[LEVEL_H].min) +
                 offset_of(weights, PANEL_N, dim[LEVEL_N].min),
      .weights_row = bytes_of(weights, PANEL_H),
      .weights_block = bytes_of(weights, PANEL),
      .weights_image = bytes_of(weights, PANEL_N),
      .sums = sums->host,
      .sums_column = bytes_of(sums, LEVEL_W),
      .sums_row = bytes_of(sums, LEVEL_H),
      .sums_block = bytes_of(sums, LEVEL_B),
      .sums_image = bytes_of(sums, LEVEL_N),
      .read_bytes = step,
      .inner = {steps, step, tile},
      .middle = {columns, (int64_t)pixel * dilation_x, steps * tile},
      .outer = {rows, bytes_of(data, h) * dilation_y, columns * steps * tile},
      .sum = data->type.code == halide_type_int ? sum_signed : sum_unsigned,
  };
  if (flat) { /* what is summed up between the end of a row and the next one, nobody reads */
    of.columns = (of.rows - 1) * dim[LEVEL_W].extent + flat;
    of.rows = 1;
  }
  return sum_region(&of);
}

/* Asks the operating system for the tile registers, once for the process; 0 if it grants them.
   Source: Linux, Documentation/arch/x86/xstate.rst. */
int aoe_request_tiles(void) {
  const long request_permission = 0x1023, tile_data = 18;
  return (int)syscall(SYS_arch_prctl, request_permission, tile_data);
}
