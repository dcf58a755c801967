/* Memory of kernels: blocks are kept for the next call, since fresh pages cost more than the
   copies they are needed for. At most AOE_KEPT_BLOCKS are kept; the library frees them when it
   is unloaded. */
#include <stdint.h>
#include <stdlib.h>

#include "HalideRuntime.h"

#define AOE_KEPT_BLOCKS 64
#define AOE_ALIGNMENT 64
#define AOE_WASTE_MAX 2 /* a kept block serves requests of at least half its size */

typedef struct {
  size_t capacity; /* bytes behind this header */
} block;

static block *kept[AOE_KEPT_BLOCKS];

static block *take(int slot) { return __atomic_exchange_n(&kept[slot], NULL, __ATOMIC_ACQ_REL); }

static int keep(int slot, block *freed) {
  block *nothing = NULL;
  return __atomic_compare_exchange_n(&kept[slot], &nothing, freed, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED);
}

static void keep_anywhere(block *freed) {
  for (int slot = 0; slot < AOE_KEPT_BLOCKS; slot++)
    if (keep(slot, freed)) return;
  free(freed);
}

void *halide_malloc(void *user_context, size_t size) {
  (void)user_context;
  size_t capacity = (size + AOE_ALIGNMENT - 1) / AOE_ALIGNMENT * AOE_ALIGNMENT;
  if (capacity < size || capacity > SIZE_MAX - AOE_ALIGNMENT) return NULL;
  for (int slot = 0; slot < AOE_KEPT_BLOCKS; slot++) {
    if (!__atomic_load_n(&kept[slot], __ATOMIC_RELAXED)) continue;
    block *found = take(slot);
    if (!found) continue;
    if (found->capacity >= capacity && found->capacity / AOE_WASTE_MAX <= capacity)
      return (uint8_t *)found + AOE_ALIGNMENT;
    if (!keep(slot, found)) keep_anywhere(found);
  }
  block *fresh = (block *)aligned_alloc(AOE_ALIGNMENT, capacity + AOE_ALIGNMENT);
  if (!fresh) return NULL;
  fresh->capacity = capacity;
  return (uint8_t *)fresh + AOE_ALIGNMENT;
}

void halide_free(void *user_context, void *pointer) {
  (void)user_context;
  if (pointer) keep_anywhere((block *)((uint8_t *)pointer - AOE_ALIGNMENT));
}

__attribute__((destructor)) static void release_kept(void) {
  for (int slot = 0; slot < AOE_KEPT_BLOCKS; slot++) free(take(slot));
}
