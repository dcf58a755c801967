/* Indices are looked at before a kernel reads, or writes, where they say. */
#ifndef AOE_INDICES_H
#define AOE_INDICES_H

#include <stddef.h>
#include <stdint.h>

#include "aoe_kernels.h"

/* Finds the first of some indices that is not from -extent to extent - 1: its place, or `count`. */
size_t aoe_first_outside(const void *indices, size_t count, aoe_element element, int64_t extent);

#endif
