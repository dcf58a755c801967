/* How a kernel for any number of rows cuts them into its blocks. */
#ifndef AOE_ROW_CUTS_H
#define AOE_ROW_CUTS_H

#include <stdint.h>

#include "aoe_kernels.h"

/* What blocks of one size do: nothing, or all rows they can be filled with. What is left is of
   smaller ones, or one more begins earlier and computes some rows again. `AOE_PADDED` is one block
   for fewer rows. */
typedef enum { AOE_SMALLER, AOE_AND_SMALLER, AOE_AND_ONE_MORE, AOE_PADDED } aoe_cut;

/* Finds how each block cuts the rows that those before it leave, for the least reckoned time.
   `cuts` has a place for each; those behind the last one that is used say nothing. */
void aoe_cut_rows(const aoe_rows *table, int64_t rows, aoe_cut *cuts);

#endif
