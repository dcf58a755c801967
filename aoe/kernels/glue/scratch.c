/* Memory of kernels. A task takes a stack, its blocks come off it and go back, and the next task
   takes the same stack: what one kernel leaves in the caches the next one writes over, instead of
   every kernel having cold blocks of its own. What a kernel shares among its tasks comes off a stack
   of another kind, or every stack would grow to the largest of these in time. The library frees the
   stacks when it is unloaded. */
#define _GNU_SOURCE
#include "scratch.h"

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

#include "HalideRuntime.h"

#define AOE_KEPT_STACKS 64
#define AOE_SCOPES 2
#define AOE_ALIGNMENT 64

typedef struct {
  size_t bytes;  /* with this header; 0 for a block that has memory of its own */
} block;

struct aoe_stack {
  aoe_scope scope;
  uint8_t *memory;
  size_t capacity;
  size_t top;    /* bytes in use */
  size_t wanted; /* most bytes asked for at once since the memory was taken */
  size_t beside; /* bytes in blocks that found no room */
  int blocks;    /* not freed yet */
};

static aoe_stack *kept[AOE_SCOPES][AOE_KEPT_STACKS];

static void release(aoe_stack *stack) {
  if (stack) free(stack->memory);
  free(stack);
}

/* Starts at the slot of this CPU, whose cache may still hold that stack. */
static unsigned first_slot(void) {
  int cpu = sched_getcpu();
  return cpu < 0 ? 0 : (unsigned)cpu;
}

aoe_stack *aoe_take_stack(aoe_scope scope) {
  unsigned first = first_slot();
  for (unsigned at = 0; at < AOE_KEPT_STACKS; at++) {
    aoe_stack **slot = &kept[scope][(first + at) % AOE_KEPT_STACKS];
    if (!__atomic_load_n(slot, __ATOMIC_RELAXED)) continue;
    aoe_stack *found = __atomic_exchange_n(slot, NULL, __ATOMIC_ACQ_REL);
    if (found) return found;
  }
  aoe_stack *fresh = (aoe_stack *)calloc(1, sizeof *fresh);
  if (fresh) fresh->scope = scope;
  return fresh;
}

/* Makes room for as much as was wanted at once, so that next time all blocks lie in one piece. */
static void grow(aoe_stack *stack) {
  if (stack->wanted <= stack->capacity) return;
  free(stack->memory);
  stack->memory = (uint8_t *)aligned_alloc(AOE_ALIGNMENT, stack->wanted);
  stack->capacity = stack->memory ? stack->wanted : 0;
}

void aoe_return_stack(aoe_stack *stack) {
  if (!stack) return;
  if (!stack->blocks) {
    stack->top = 0;
    grow(stack);
    unsigned first = first_slot();
    for (unsigned at = 0; at < AOE_KEPT_STACKS; at++) {
      aoe_stack **slot = &kept[stack->scope][(first + at) % AOE_KEPT_STACKS], *nothing = NULL;
      if (__atomic_compare_exchange_n(slot, &nothing, stack, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    }
  }
  release(stack); /* too many, or a kernel that failed halfway left blocks behind */
}

static void *payload(block *header) { return (uint8_t *)header + AOE_ALIGNMENT; }

static void *allocate_beside(size_t bytes) {
  block *own = (block *)aligned_alloc(AOE_ALIGNMENT, bytes);
  if (!own) return NULL;
  own->bytes = 0;
  return payload(own);
}

static aoe_stack *stack_of(void *user_context) {
  return user_context ? ((aoe_scratch *)user_context)->stack : NULL;
}

void *halide_malloc(void *user_context, size_t size) {
  size_t bytes = (size + AOE_ALIGNMENT - 1) / AOE_ALIGNMENT * AOE_ALIGNMENT;
  if (bytes < size || bytes > SIZE_MAX / 4) return NULL;
  bytes += AOE_ALIGNMENT;
  aoe_stack *stack = stack_of(user_context);
  if (!stack) return allocate_beside(bytes);
  void *found;
  if (bytes <= stack->capacity - stack->top) {
    block *next = (block *)(stack->memory + stack->top);
    next->bytes = bytes;
    stack->top += bytes;
    found = payload(next);
  } else {
    found = allocate_beside(bytes);
    if (!found) return NULL;
    stack->beside += bytes;
  }
  stack->blocks++;
  if (stack->top + stack->beside > stack->wanted) stack->wanted = stack->top + stack->beside;
  return found;
}

void halide_free(void *user_context, void *pointer) {
  if (!pointer) return;
  aoe_stack *stack = stack_of(user_context);
  block *freed = (block *)((uint8_t *)pointer - AOE_ALIGNMENT);
  if (stack) stack->blocks--;
  if (!freed->bytes) {
    free(freed);
  } else if (stack && (uint8_t *)freed + freed->bytes == stack->memory + stack->top) {
    stack->top -= freed->bytes;
  }
  if (stack && !stack->blocks) stack->top = stack->beside = 0;
}

__attribute__((destructor)) static void release_kept(void) {
  for (int scope = 0; scope < AOE_SCOPES; scope++)
    for (int slot = 0; slot < AOE_KEPT_STACKS; slot++) release(kept[scope][slot]);
}
