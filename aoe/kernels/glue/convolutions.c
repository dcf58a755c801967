/* Convolutions of a training step, whose weights change from call to call: images in planes (NCHW),
   at the end with channels innermost; float32, stride 1. Extents are arguments, so nothing is
   compiled for a shape. All scratch comes from the caller, who asks for its size. */

#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define ALWAYS static inline __attribute__((always_inline))

/* TILE_ROWS is a macro: the preprocessor takes names of an enumeration for 0. */
#ifdef __AVX512F__
#define TILE_ROWS 12 /* 24 of 32 registers are sums */
enum { LANES = 16 };
#else
#define TILE_ROWS 4 /* 8 sums of two vectors; 16 registers */
enum { LANES = 8 };
#endif
enum { PANEL = 2 * LANES, EIGHT = 8 };
typedef float vec __attribute__((vector_size(LANES * sizeof(float)), may_alias));
typedef float vec_u __attribute__((vector_size(LANES * sizeof(float)), may_alias, aligned(4)));
typedef float eight __attribute__((vector_size(32), may_alias, aligned(4)));
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else /* GCC has the other one from 12 on */
typedef int32_t order __attribute__((vector_size(32)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (order){__VA_ARGS__})
#endif

ALWAYS vec load(const float *from) { return *(const vec_u *)from; }
ALWAYS void store(float *to, vec value) { *(vec_u *)to = value; }
ALWAYS int64_t up(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

/* ---- matrix products ---- */

/* rows x PANEL sums of `depth` products, kept in registers; added to what is there if `adds`. */
ALWAYS void product_tile(int rows, int64_t depth, const float *a, int64_t a_row, int64_t a_depth,
                         const float *b, float *c, int64_t c_row, int adds) {
  vec low[TILE_ROWS], high[TILE_ROWS];
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++) {
    low[r] = adds ? load(c + r * c_row) : (vec){0};
    high[r] = adds ? load(c + r * c_row + LANES) : (vec){0};
  }
  for (int64_t k = 0; k < depth; k++, b += PANEL) {
    const vec left = load(b), right = load(b + LANES);
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
      const float value = a[r * a_row + k * a_depth];
      low[r] += value * left;
      high[r] += value * right;
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++) {
    store(c + r * c_row, low[r]);
    store(c + r * c_row + LANES, high[r]);
  }
}

/* One panel of a product: all rows, 32 columns. */
static void product_panel(int64_t rows, int64_t depth, const float *a, int64_t a_row,
                          int64_t a_depth, const float *b, float *c, int64_t c_row, int adds) {
  int64_t r = 0;
#define TILE(count)                                                                              \
  for (; r + (count) <= rows; r += (count))                                                      \
  product_tile(count, depth, a + r * a_row, a_row, a_depth, b, c + r * c_row, c_row, adds)
  TILE(TILE_ROWS);
#if TILE_ROWS > 8
  TILE(8);
#endif
#if TILE_ROWS > 4
  TILE(4);
#endif
  TILE(2);
  TILE(1);
#undef TILE
}

/* ---- planes to channels and back ---- */

/* Turns a square of eight by eight. */
ALWAYS void turn(const float *from, int64_t from_row, float *to, int64_t to_row) {
  eight r[EIGHT], s[EIGHT];
#pragma GCC unroll 8
  for (int i = 0; i < EIGHT; i++) r[i] = *(const eight *)(from + i * from_row);
#pragma GCC unroll 8
  for (int i = 0; i < EIGHT; i += 2) {
    s[i] = SHUFFLE(r[i], r[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    s[i + 1] = SHUFFLE(r[i], r[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
#pragma GCC unroll 8
  for (int i = 0; i < EIGHT; i++) {
    int near = i & 1, base = i & 4;
    int one = base + near, two = base + 2 + near;
    r[i] = i & 2 ? SHUFFLE(s[one], s[two], 2, 3, 10, 11, 6, 7, 14, 15)
                 : SHUFFLE(s[one], s[two], 0, 1, 8, 9, 4, 5, 12, 13);
  }
#pragma GCC unroll 8
  for (int i = 0; i < EIGHT; i++) {
    s[i] = i & 4 ? SHUFFLE(r[i - 4], r[i], 4, 5, 6, 7, 12, 13, 14, 15)
                 : SHUFFLE(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    *(eight *)(to + i * to_row) = s[i];
  }
}

/* Rows of a matrix become columns. */
static void transpose(const float *from, int64_t from_row, float *to, int64_t to_row, int64_t rows,
                      int64_t columns) {
  int64_t r = 0;
  for (; r + EIGHT <= rows; r += EIGHT) {
    int64_t c = 0;
    for (; c + EIGHT <= columns; c += EIGHT)
      turn(from + r * from_row + c, from_row, to + c * to_row + r, to_row);
    for (; c < columns; c++)
      for (int i = 0; i < EIGHT; i++) to[c * to_row + r + i] = from[(r + i) * from_row + c];
  }
  for (; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) to[c * to_row + r] = from[r * from_row + c];
}

/* Some rows of an image with their channels innermost; zeros around it, and for channels added. */
static void gather_rows(const float *image, int64_t channels, int64_t padded, int64_t high,
                        int64_t wide, int64_t top, int64_t left, int64_t rows, int64_t columns,
                        float *to) {
  for (int64_t i = 0; i < rows; i++) {
    const int64_t row = top + i;
    float *line = to + i * columns * padded;
    const int64_t first = left < 0 ? -left : 0;
    int64_t last = wide - left < columns ? wide - left : columns;
    if (row < 0 || row >= high || last <= first) {
      memset(line, 0, sizeof(float) * columns * padded);
      continue;
    }
    memset(line, 0, sizeof(float) * first * padded);
    memset(line + last * padded, 0, sizeof(float) * (columns - last) * padded);
    transpose(image + row * wide + left + first, high * wide, line + first * padded, padded,
              channels, last - first);
    for (int64_t c = first; padded > channels && c < last; c++)
      memset(line + c * padded + channels, 0, sizeof(float) * (padded - channels));
  }
}

/* ---- Winograd's minimal filtering, F(4 x 4, 3 x 3) ----

   Points 0, 3/4, -3/4, 4/3, -4/3: a fifth of the error of 0, 1, -1, 2, -2. All coefficients but
   those of the weights are whole numbers. Gradients of weights are the transposed algorithm:
   G^T [(A dy A^T) * (B^T d B)] G. */

enum { M = 4, T = 6, TAPS = 3, E = T * T };

/* B^T d */
ALWAYS void data_line(vec *to, int step, vec d0, vec d1, vec d2, vec d3, vec d4, vec d5) {
  const vec e = 36 * d4 - 64 * d2, f = 27 * d3 - 48 * d1;
  const vec g = 48 * d4 - 27 * d2, h = 64 * d3 - 36 * d1;
  to[0] = 144 * (d0 + d4) - 337 * d2;
  to[step] = e + f;
  to[2 * step] = e - f;
  to[3 * step] = g + h;
  to[4 * step] = g - h;
  to[5 * step] = 144 * (d1 + d5) - 337 * d3;
}

/* A^T m */
ALWAYS void result_line(vec *to, int step, const vec *m, int at) {
  const vec p = m[at] + m[2 * at], q = m[at] - m[2 * at];
  const vec r = m[3 * at] + m[4 * at], s = m[3 * at] - m[4 * at];
  to[0] = m[0] + 64 * p + 27 * r;
  to[step] = 48 * q + 36 * s;
  to[2 * step] = 36 * p + 48 * r;
  to[3 * step] = 27 * q + 64 * s + m[5 * at];
}

/* A y */
ALWAYS void gradient_line(vec *to, int step, vec y0, vec y1, vec y2, vec y3) {
  const vec p = 64 * y0 + 36 * y2, q = 48 * y1 + 27 * y3;
  const vec r = 27 * y0 + 48 * y2, s = 36 * y1 + 64 * y3;
  to[0] = y0;
  to[step] = p + q;
  to[2 * step] = p - q;
  to[3 * step] = r + s;
  to[4 * step] = r - s;
  to[5 * step] = y3;
}

#define A0 (1.0f / 144)
#define A1 (1.0f / 3150)
#define B1 (1.0f / 5600)

/* G g */
ALWAYS void weight_line(vec *to, int step, vec g0, vec g1, vec g2) {
  const vec p = -A1 * g0 - (A1 * 9 / 16) * g2, q = -(A1 * 3 / 4) * g1;
  const vec r = B1 * g0 + (B1 * 16 / 9) * g2, s = (B1 * 4 / 3) * g1;
  to[0] = A0 * g0;
  to[step] = p + q;
  to[2 * step] = p - q;
  to[3 * step] = r + s;
  to[4 * step] = r - s;
  to[5 * step] = A0 * g2;
}

/* G^T m */
ALWAYS void weight_gradient_line(vec *to, int step, const vec *m, int at) {
  const vec p = m[at] + m[2 * at], q = m[at] - m[2 * at];
  const vec r = m[3 * at] + m[4 * at], s = m[3 * at] - m[4 * at];
  to[0] = A0 * m[0] - A1 * p + B1 * r;
  to[step] = (B1 * 4 / 3) * s - (A1 * 3 / 4) * q;
  to[2 * step] = A0 * m[5 * at] - (A1 * 9 / 16) * p + (B1 * 16 / 9) * r;
}

/* A convolution, and how its tiles are cut into groups. */
typedef struct {
  int64_t images, in, out;      /* channels */
  int64_t high, wide;           /* of the image read */
  int64_t rows, columns;        /* of a result */
  int64_t top, left;            /* zeros around the image */
  int64_t group;                /* rows of tiles that are computed together */
} aoe_images;

typedef struct {
  int64_t in, out, down, across, tiles; /* padded channels; tiles of an image, of a group */
  int64_t filter, data, sum;            /* floats from one value of a tile to the next */
} cut;

/* Values of a tile do not lie a power of two apart: all would meet in one set of a cache. */
enum { APART = 3 * 16 };

static cut cut_of(const aoe_images *s) {
  cut c = {.in = up(s->in, LANES), .out = up(s->out, PANEL)};
  c.down = (s->rows + M - 1) / M;
  c.across = (s->columns + M - 1) / M;
  c.tiles = s->group * c.across;
  c.filter = c.in * c.out + APART;
  c.data = c.tiles * c.in + APART;
  c.sum = c.tiles * c.out + APART;
  return c;
}

/* Floats of scratch that the passes take. */
EXPORT int64_t aoe_winograd_floats(const aoe_images *s) {
  const cut c = cut_of(s);
  const int64_t line = T * (M * c.across + 2) * (c.in > c.out ? c.in : c.out);
  return E * (c.filter + c.data + c.sum) + line;
}

/* V: the tiles of a row, transformed, [value][tile][channel]. */
static void transform_data(const aoe_images *s, const cut *c, const float *image, int64_t row,
                           float *line, float *data) {
  const int64_t columns = M * c->across + 2;
  gather_rows(image, s->in, c->in, s->high, s->wide, row * M - s->top, -s->left, T, columns, line);
  for (int64_t t = 0; t < c->across; t++)
    for (int64_t b = 0; b < c->in; b += LANES) {
      vec half[E], whole[E];
      for (int j = 0; j < T; j++) {
        const float *d = line + (t * M + j) * c->in + b;
        const int64_t step = columns * c->in;
        data_line(half + j, T, load(d), load(d + step), load(d + 2 * step), load(d + 3 * step),
                  load(d + 4 * step), load(d + 5 * step));
      }
      for (int i = 0; i < T; i++) {
        const vec *h = half + i * T;
        data_line(whole + i * T, 1, h[0], h[1], h[2], h[3], h[4], h[5]);
      }
      for (int e = 0; e < E; e++)
        store(data + e * c->data + t * c->in + b, whole[e]);
    }
}

/* Channels whose filters are turned at once: 18 kB of them stay near. */
enum { SOME = 32, FILTER = TAPS * TAPS };

/* U: [value][panel of results][channel read][result], from weights of which one result's lie `out`
   apart and one channel's `in`; turned around for gradients of the image. */
static void transform_weights(const aoe_images *s, const cut *c, const float *weights, int64_t out,
                              int64_t in, int turned, float *to) {
  float taps[SOME * FILTER * LANES] __attribute__((aligned(64)));
  for (int64_t o = 0; o < c->out; o += LANES) {
    const int64_t there = s->out - o < LANES ? s->out - o : LANES;
    if (there < LANES) memset(taps, 0, sizeof taps);
    for (int64_t first = 0; first < s->in; first += SOME) {
      const int64_t count = s->in - first < SOME ? s->in - first : SOME;
      const float *w = weights + o * out + first * in;
      for (int64_t i = 0; there > 0 && i < (in == FILTER ? 1 : count); i++)
        transpose(w + i * in, out, taps + i * FILTER * LANES, LANES, there,
                  in == FILTER ? count * FILTER : FILTER);
      for (int64_t i = 0; i < count; i++) {
        const float *tap = taps + i * FILTER * LANES;
        vec half[T * TAPS], whole[E];
#pragma GCC unroll 3
        for (int j = 0; j < TAPS; j++) {
          const int at = turned ? FILTER - 1 - j : j, step = turned ? -TAPS : TAPS;
          weight_line(half + j, TAPS, load(tap + at * LANES), load(tap + (at + step) * LANES),
                      load(tap + (at + 2 * step) * LANES));
        }
        for (int j = 0; j < T; j++)
          weight_line(whole + j * T, 1, half[j * TAPS], half[j * TAPS + 1], half[j * TAPS + 2]);
        float *place = to + (o / PANEL * s->in + first + i) * PANEL + o % PANEL;
        for (int e = 0; e < E; e++) store(place + e * c->filter, whole[e]);
      }
    }
  }
}

/* Results of a row of tiles, from M: [value][tile][result]. */
static void transform_results(const aoe_images *s, const cut *c, const float *sums, int64_t row,
                              const float *bias, float *line, float *y) {
  const int64_t columns = M * c->across;
  for (int64_t t = 0; t < c->across; t++)
    for (int64_t b = 0; b < c->out; b += LANES) {
      vec all[E], half[M * T], tile[M * M];
      for (int e = 0; e < E; e++) all[e] = load(sums + e * c->sum + t * c->out + b);
      for (int j = 0; j < T; j++) result_line(half + j, T, all + j, T);
      for (int i = 0; i < M; i++) result_line(tile + i * M, 1, half + i * T, 1);
      for (int i = 0; i < M; i++)
        for (int j = 0; j < M; j++)
          store(line + (i * columns + t * M + j) * c->out + b, tile[i * M + j]);
    }
  for (int64_t i = 0; i < M && row * M + i < s->rows; i++) {
    float *to = y + (row * M + i) * s->columns;
    transpose(line + i * columns * c->out, c->out, to, s->rows * s->columns, s->columns, s->out);
    for (int64_t o = 0; bias && o < s->out; o++)
      for (int64_t w = 0; w < s->columns; w++) to[o * s->rows * s->columns + w] += bias[o];
  }
}

/* Results of images, or with `turned` and channels exchanged the gradient of images. */
EXPORT void aoe_winograd(const aoe_images *s, const float *x, const float *weights, int64_t out,
                         int64_t in, int turned, const float *bias, float *y, float *scratch) {
  const cut c = cut_of(s);
  float *filters = scratch, *data = filters + E * c.filter;
  float *sums = data + E * c.data, *line = sums + E * c.sum;
  transform_weights(s, &c, weights, out, in, turned, filters);
  const int64_t all = s->images * c.down;
  for (int64_t first = 0; first < all; first += s->group) {
    const int64_t count = all - first < s->group ? all - first : s->group;
    for (int64_t r = 0; r < count; r++) {
      const float *image = x + (first + r) / c.down * s->in * s->high * s->wide;
      transform_data(s, &c, image, (first + r) % c.down, line, data + r * c.across * c.in);
    }
    for (int e = 0; e < E; e++)
      for (int64_t o = 0; o < c.out; o += PANEL)
        product_panel(count * c.across, s->in, data + e * c.data, c.in, 1,
                      filters + e * c.filter + o * s->in, sums + e * c.sum + o, c.out, 0);
    for (int64_t r = 0; r < count; r++) {
      float *image = y + (first + r) / c.down * s->out * s->rows * s->columns;
      transform_results(s, &c, sums + r * c.across * c.out, (first + r) % c.down, bias, line,
                        image);
    }
  }
}

/* Z: the gradients of a row of tiles, transformed, [value][panel][tile][result]. */
static void transform_gradients(const aoe_images *s, const cut *c, const float *image, int64_t row,
                                int64_t tile, float *line, float *to) {
  const int64_t columns = M * c->across;
  gather_rows(image, s->out, c->out, s->rows, s->columns, row * M, 0, M, columns, line);
  for (int64_t t = 0; t < c->across; t++)
    for (int64_t b = 0; b < c->out; b += LANES) {
      vec half[T * M], whole[E];
      for (int j = 0; j < M; j++) {
        const float *d = line + (t * M + j) * c->out + b;
        const int64_t step = columns * c->out;
        gradient_line(half + j, M, load(d), load(d + step), load(d + 2 * step), load(d + 3 * step));
      }
      for (int i = 0; i < T; i++) {
        const vec *h = half + i * M;
        gradient_line(whole + i * T, 1, h[0], h[1], h[2], h[3]);
      }
      float *place = to + (b / PANEL * c->tiles + tile + t) * PANEL + b % PANEL;
      for (int e = 0; e < E; e++) store(place + e * c->sum, whole[e]);
    }
}

/* Gradient of the weights, from sums [value][panel][channel][result]. */
static void finish_weights(const aoe_images *s, const cut *c, const float *sums, float *to) {
  float taps[SOME * FILTER * LANES] __attribute__((aligned(64)));
  for (int64_t o = 0; o < s->out; o += LANES)
    for (int64_t first = 0; first < s->in; first += SOME) {
      const int64_t count = s->in - first < SOME ? s->in - first : SOME;
      for (int64_t i = 0; i < count; i++) {
        const float *place = sums + (o / PANEL * c->in + first + i) * PANEL + o % PANEL;
        vec all[E], half[TAPS * T], whole[FILTER];
        for (int e = 0; e < E; e++) all[e] = load(place + e * c->filter);
        for (int j = 0; j < T; j++) weight_gradient_line(half + j, T, all + j, T);
        for (int j = 0; j < TAPS; j++) weight_gradient_line(whole + j * TAPS, 1, half + j * T, 1);
        for (int tap = 0; tap < FILTER; tap++)
          store(taps + (i * FILTER + tap) * LANES, whole[tap]);
      }
      transpose(taps, LANES, to + (o * s->in + first) * FILTER, s->in * FILTER, count * FILTER,
                s->out - o < LANES ? s->out - o : LANES);
    }
}

/* Gradient of the weights. */
EXPORT void aoe_winograd_weights(const aoe_images *s, const float *x, const float *gradient,
                                 float *to, float *scratch) {
  const cut c = cut_of(s);
  float *sums = scratch, *data = sums + E * c.filter;
  float *slopes = data + E * c.data, *line = slopes + E * c.sum;
  const int64_t all = s->images * c.down;
  for (int64_t first = 0; first < all; first += s->group) {
    const int64_t count = all - first < s->group ? all - first : s->group;
    for (int64_t r = 0; r < count; r++) {
      const int64_t image = (first + r) / c.down, row = (first + r) % c.down;
      transform_data(s, &c, x + image * s->in * s->high * s->wide, row, line,
                     data + r * c.across * c.in);
      transform_gradients(s, &c, gradient + image * s->out * s->rows * s->columns, row,
                          r * c.across, line, slopes);
    }
    for (int e = 0; e < E; e++)
      for (int64_t o = 0; o < c.out; o += PANEL)
        product_panel(c.in, count * c.across, data + e * c.data, 1, c.in,
                      slopes + e * c.sum + o * c.tiles, sums + e * c.filter + o * c.in, PANEL,
                      first > 0);
  }
  finish_weights(s, &c, sums, to);
}

/* ---- few channels in a group, depthwise filters among them ----

   A plane with its zeros is one line of numbers: a filter's value meets it at a fixed distance.
   Results between the rows of a plane are computed, and left out. */

enum { RUN = 6, MOST_SIDE = 7 };

typedef struct {
  int64_t images, groups, in, out; /* channels of a group */
  int64_t high, wide, rows, columns, top, left, kernel_rows, kernel_columns;
} aoe_planes;

static int64_t line_of(const aoe_planes *s) { return s->columns + s->kernel_columns - 1; }

static int64_t padded_plane(const aoe_planes *s) {
  return up((s->rows + s->kernel_rows) * line_of(s), LANES * RUN) + 2 * LANES * RUN;
}

/* Floats of scratch that the passes take. */
EXPORT int64_t aoe_planes_floats(const aoe_planes *s) {
  return padded_plane(s) * (s->in + s->out);
}

static void pad_plane(const float *from, int64_t high, int64_t wide, int64_t top, int64_t left,
                      int64_t line, int64_t floats, float *to) {
  memset(to, 0, sizeof(float) * floats);
  for (int64_t h = 0; h < high; h++)
    memcpy(to + (h + top) * line + left, from + h * wide, sizeof(float) * wide);
}

/* Results, or with `turned` the gradient of images; `out` and `in` as for `aoe_winograd`, and
   `group` from one group's weights to the next's. */
EXPORT void aoe_planes_results(const aoe_planes *s, const float *x, const float *weights,
                               int64_t group, int64_t out, int64_t in, int turned,
                               const float *bias, float *y, float *scratch) {
  const int64_t line = line_of(s), floats = padded_plane(s), count = s->rows * line;
  const int64_t taps = s->kernel_rows * s->kernel_columns;
  float *sums = scratch + s->in * floats;
  for (int64_t n = 0; n < s->images * s->groups; n++) {
    const int64_t g = n % s->groups;
    for (int64_t i = 0; i < s->in; i++)
      pad_plane(x + (n * s->in + i) * s->high * s->wide, s->high, s->wide, s->top, s->left, line,
                floats, scratch + i * floats);
    for (int64_t o = 0; o < s->out; o++) {
      const float *filter = weights + g * group + o * out;
      for (int64_t at = 0; at < count; at += RUN * LANES) {
        vec run[RUN];
        for (int k = 0; k < RUN; k++) run[k] = (vec){0} + (bias ? bias[g * s->out + o] : 0);
        for (int64_t i = 0; i < s->in; i++)
          for (int64_t tap = 0; tap < taps; tap++) {
            const float value = filter[i * in + (turned ? taps - 1 - tap : tap)];
            const float *from = scratch + i * floats + at +
                                tap / s->kernel_columns * line + tap % s->kernel_columns;
            for (int k = 0; k < RUN; k++) run[k] += value * load(from + k * LANES);
          }
        for (int k = 0; k < RUN; k++) store(sums + at + k * LANES, run[k]);
      }
      float *to = y + (n * s->out + o) * s->rows * s->columns;
      for (int64_t h = 0; h < s->rows; h++)
        memcpy(to + h * s->columns, sums + h * line, sizeof(float) * s->columns);
    }
  }
}

ALWAYS void row_gradient(int columns, int64_t count, const float *slopes, const float *x,
                         float *to) {
  vec sums[MOST_SIDE] = {{0}};
  for (int64_t at = 0; at < count; at += LANES) {
    const vec slope = load(slopes + at);
#pragma GCC unroll 7
    for (int k = 0; k < columns; k++) sums[k] += slope * load(x + at + k);
  }
  for (int k = 0; k < columns; k++)
    for (int lane = 0; lane < LANES; lane++) to[k] += sums[k][lane];
}

/* Gradient of the weights, which lie as PyTorch has them. */
EXPORT void aoe_planes_weights(const aoe_planes *s, const float *x, const float *gradient,
                               float *to, float *scratch) {
  const int64_t line = line_of(s), floats = padded_plane(s), count = s->rows * line;
  const int64_t taps = s->kernel_rows * s->kernel_columns;
  float *slopes = scratch + s->in * floats;
  memset(to, 0, sizeof(float) * s->groups * s->out * s->in * taps);
  for (int64_t n = 0; n < s->images * s->groups; n++) {
    for (int64_t i = 0; i < s->in; i++)
      pad_plane(x + (n * s->in + i) * s->high * s->wide, s->high, s->wide, s->top, s->left, line,
                floats, scratch + i * floats);
    for (int64_t o = 0; o < s->out; o++) {
      pad_plane(gradient + (n * s->out + o) * s->rows * s->columns, s->rows, s->columns, 0, 0, line,
                floats, slopes);
      for (int64_t i = 0; i < s->in; i++)
        for (int64_t row = 0; row < s->kernel_rows; row++) {
          const float *from = scratch + i * floats + row * line;
          float *place =
              to + ((n % s->groups * s->out + o) * s->in + i) * taps + row * s->kernel_columns;
          switch (s->kernel_columns) {
            case 1: row_gradient(1, count, slopes, from, place); break;
            case 2: row_gradient(2, count, slopes, from, place); break;
            case 3: row_gradient(3, count, slopes, from, place); break;
            case 4: row_gradient(4, count, slopes, from, place); break;
            case 5: row_gradient(5, count, slopes, from, place); break;
            case 6: row_gradient(6, count, slopes, from, place); break;
            default: row_gradient(7, count, slopes, from, place); break;
          }
        }
    }
  }
}

/* ---- depthwise filters of images whose channels are innermost ---- */

EXPORT int64_t aoe_channels_floats(const aoe_planes *s) {
  const int64_t padded = (s->rows + s->kernel_rows - 1) * line_of(s);
  const int64_t taps = s->kernel_rows * s->kernel_columns;
  return LANES * (padded + s->rows * s->columns + taps);
}

/* Copies a vector of channels of each pixel; zeros for channels that are not there. */
static void take_channels(const float *from, int64_t channels, int64_t there, int64_t high,
                          int64_t wide, float *to, int64_t line) {
  for (int64_t h = 0; h < high; h++)
    for (int64_t w = 0; w < wide; w++) {
      const float *pixel = from + (h * wide + w) * channels;
      float *place = to + (h * line + w) * LANES;
      if (there >= LANES)
        store(place, load(pixel));
      else
        memcpy(place, pixel, sizeof(float) * there);
    }
}

ALWAYS void row_of_taps(int columns, int64_t count, const float *slopes, const float *x,
                        float *sums) {
  vec kept[MOST_SIDE];
#pragma GCC unroll 7
  for (int k = 0; k < columns; k++) kept[k] = load(sums + k * LANES);
  for (int64_t at = 0; at < count; at++) {
    const vec slope = load(slopes + at * LANES);
#pragma GCC unroll 7
    for (int k = 0; k < columns; k++) kept[k] += slope * load(x + (at + k) * LANES);
  }
#pragma GCC unroll 7
  for (int k = 0; k < columns; k++) store(sums + k * LANES, kept[k]);
}

/* Gradient of the weights, which lie as PyTorch has them. */
EXPORT void aoe_channels_weights(const aoe_planes *s, const float *x, const float *gradient,
                                 float *to, float *scratch) {
  const int64_t line = line_of(s), padded = (s->rows + s->kernel_rows - 1) * line;
  const int64_t columns = s->kernel_columns, taps = s->kernel_rows * columns;
  float *slopes = scratch + padded * LANES, *sums = slopes + s->rows * s->columns * LANES;
  for (int64_t c = 0; c < s->groups; c += LANES) {
    const int64_t there = s->groups - c < LANES ? s->groups - c : LANES;
    memset(scratch, 0, sizeof(float) * LANES * (padded + s->rows * s->columns + taps));
    for (int64_t n = 0; n < s->images; n++) {
      take_channels(x + n * s->high * s->wide * s->groups + c, s->groups, there, s->high, s->wide,
                    scratch + (s->top * line + s->left) * LANES, line);
      take_channels(gradient + n * s->rows * s->columns * s->groups + c, s->groups, there, s->rows,
                    s->columns, slopes, s->columns);
      for (int64_t h = 0; h < s->rows; h++)
        for (int64_t row = 0; row < s->kernel_rows; row++) {
          const float *slope = slopes + h * s->columns * LANES;
          const float *from = scratch + (h + row) * line * LANES;
          float *place = sums + row * columns * LANES;
          switch (columns) {
            case 1: row_of_taps(1, s->columns, slope, from, place); break;
            case 2: row_of_taps(2, s->columns, slope, from, place); break;
            case 3: row_of_taps(3, s->columns, slope, from, place); break;
            case 4: row_of_taps(4, s->columns, slope, from, place); break;
            case 5: row_of_taps(5, s->columns, slope, from, place); break;
            case 6: row_of_taps(6, s->columns, slope, from, place); break;
            default: row_of_taps(7, s->columns, slope, from, place); break;
          }
        }
    }
    for (int64_t lane = 0; lane < there; lane++)
      for (int64_t tap = 0; tap < taps; tap++)
        to[(c + lane) * taps + tap] = sums[tap * LANES + lane];
  }
}
