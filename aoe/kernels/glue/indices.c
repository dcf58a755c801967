#include "indices.h"

#define AOE_AT_ONCE 64 /* indices looked at together, without a branch */

#define AOE_FIRST_OUTSIDE(NAME, TYPE, UNSIGNED)                                     \
  static size_t NAME(const TYPE *at, size_t count, TYPE extent) {                   \
    const UNSIGNED shift = (UNSIGNED)extent, all = 2 * (UNSIGNED)extent;            \
    size_t i = 0;                                                                   \
    for (; i + AOE_AT_ONCE <= count; i += AOE_AT_ONCE) {                            \
      UNSIGNED outside = 0;                                                         \
      for (size_t k = 0; k < AOE_AT_ONCE; k++)                                      \
        outside |= (UNSIGNED)((UNSIGNED)at[i + k] + shift >= all);                  \
      if (outside) break;                                                           \
    }                                                                               \
    while (i < count && (UNSIGNED)at[i] + shift < all) i++;                         \
    return i;                                                                       \
  }

AOE_FIRST_OUTSIDE(first_of_int32, int32_t, uint32_t)
AOE_FIRST_OUTSIDE(first_of_int64, int64_t, uint64_t)

size_t aoe_first_outside(const void *indices, size_t count, aoe_element element, int64_t extent) {
  if (element == AOE_INT64) return first_of_int64((const int64_t *)indices, count, extent);
  return first_of_int32((const int32_t *)indices, count, (int32_t)extent);
}
