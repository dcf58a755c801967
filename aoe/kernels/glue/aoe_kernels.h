/* What the generated table (one entry per kernel) tells the glue. */
#ifndef AOE_KERNELS_H
#define AOE_KERNELS_H

#include <stdint.h>

#define AOE_MAX_RANK 8
#define AOE_MAX_ARGUMENTS 64
#define AOE_MAX_PACKINGS 4
#define AOE_MAX_BLOCKS 10 /* 256, 64, 16, 4, 1 and those of five frequent shapes */

/* Nothing computes in float16: kernels see its bits, as they do those of uint16. */
typedef enum {
  AOE_FLOAT32,
  AOE_BFLOAT16,
  AOE_INT8,
  AOE_INT32,
  AOE_INT64,
  AOE_UINT8,
  AOE_INT16,
  AOE_UINT16,
  AOE_FLOAT16,
  AOE_BOOL                       /* a byte, 0 or 1 */
} aoe_element;

typedef struct {
  int32_t rank;                  /* of the ONNX tensor; 0 if it is none */
  int64_t shape[AOE_MAX_RANK];   /* as ONNX Runtime reports it; -1 - n for open extent n */
  int32_t view_rank;             /* of the buffer the kernel sees */
  int32_t extent[AOE_MAX_RANK];  /* innermost first */
  aoe_element element;           /* of that buffer; the tensor's unless the input is packed */
  aoe_element given;             /* of the ONNX tensor: any but bfloat16 */
  uint8_t open[AOE_MAX_RANK];    /* bit a: `extent` times that of the ONNX tensor at axis a */
  int32_t stride[AOE_MAX_RANK];  /* of the buffer, innermost first; zeros if it is dense */
  int64_t offset;                /* elements of the tensor in front of it */
  int32_t input;                 /* whose view it is, of an argument behind the inputs */
} aoe_tensor;

/* Rows of indices in an input. */
typedef struct {
  int32_t input;
  int64_t length;                /* elements they count, from either end */
  int64_t offset;                /* elements of the input in front of the first one */
  int64_t count[2];              /* rows, and indices of a row */
  int64_t stride[2];             /* elements between two rows, and between two of a row */
} aoe_indices;

/* What the kernel reads in another form, made once of a constant input. */
typedef struct {
  int32_t argument;              /* in the place of that input, or behind the last one */
  int32_t input;
  int (*run)(void **arguments);  /* Halide's `<kernel>_pack<n>_argv`: (context, raw, packed) */
  aoe_element element;           /* of the input as the model has it, dense */
  int32_t view_rank;
  int32_t extent[AOE_MAX_RANK];
} aoe_packing;

/* Where a dimension of a buffer lies in the tensor, for kernels of open extents. */
typedef struct {
  int32_t source;                /* dimension of the tensor; below 0 for none, of extent 1 */
  int32_t extent;                /* of a part of it; 0 for all of it */
  int32_t step;                  /* elements of that dimension between two of this one */
} aoe_dimension;

struct aoe_block;

/* Of a kernel made of others, whose arguments say ONNX shapes alone; else zeros. Rows are cut into
   blocks. Where extents are open one block computes everything: the first of no more rows than there
   are, or, of a kernel with `open` axes, that of the very shapes of a call, else the first of no more
   elements than its result has. */
typedef struct {
  int32_t open_rank;             /* leading dimensions that are open: together the rows */
  uint64_t open_inputs;          /* bit i: input i has them */
  int32_t block_count;
  const struct aoe_block *blocks; /* fixed shapes, then the largest first; the last is for any */
  int32_t open_extents;          /* how many; 0 for rows */
  int32_t rows_dimension;        /* of the result, whose extent is the number of rows then */
} aoe_rows;

/* An open extent: (times * extent of an input + plus) / over. */
typedef struct {
  int32_t tensor, axis;          /* whose it is; the number behind the last input is the result */
  int32_t source, source_axis;   /* the input it follows from */
  int64_t times, plus, over;
} aoe_extent;

/* A function for results whose buffer has these extents at least. */
typedef struct {
  int (*run)(void **arguments);
  int32_t least[AOE_MAX_RANK];
  int32_t tile;                  /* what a register tile has of the extent that tiles cut; 0 where
                                    the first variant that fits runs */
  float cost;                    /* of such a tile, in any unit */
  float rest;                    /* what a tile of rows costs besides, for each element of the extent */
} aoe_variant;

/* Of a kernel that takes any extents along some axes; else zeros. */
typedef struct {
  int32_t extent_count;
  const aoe_extent *extents;
  int32_t variant_count;
  const aoe_variant *variants;   /* that with the largest tiles first; the last one needs nothing, or
                                    one that fits has tiles */
  int32_t tiled, tiled_dimension; /* the buffer and its dimension, innermost first, that tiles cut */
  int32_t rows_dimension;        /* of the result, whose tiles have `least` rows; 0 for none */
} aoe_open;

typedef struct {
  const char *name;              /* operator name in domain "aoe" */
  int (*run)(void **arguments);  /* Halide's `<kernel>_argv` entry */
  int32_t input_count;
  int32_t argument_count;        /* inputs, further views of them, and what is packed besides */
  const aoe_tensor *arguments;
  aoe_tensor output;
  int32_t packing_count;
  const aoe_packing *packings;
  aoe_rows rows;
  const aoe_dimension (*dimensions)[AOE_MAX_RANK]; /* of each buffer, innermost first, the result
                                    last; NULL where no extent is open */
  aoe_open open;
  int32_t indices_count;
  const aoe_indices *indices;    /* refused where they are outside of what they count */
} aoe_kernel;

/* A kernel as a part of another one. */
typedef struct aoe_block {
  int32_t rows;                  /* it computes; with `open` axes, the least elements of its result */
  float us;                      /* its measured time, by which rows are cut; else 0 */
  const aoe_kernel *kernel;
} aoe_block;

extern const aoe_kernel aoe_kernel_table[];
extern const int aoe_kernel_count;

/* Name of the first CPU feature the kernels need and this CPU lacks, or NULL. */
const char *aoe_missing_cpu_feature(void);

#endif
