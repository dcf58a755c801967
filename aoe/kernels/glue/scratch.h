/* Memory of kernels: one stack a running task, the same few stacks for all kernels of a library. */
#ifndef AOE_SCRATCH_H
#define AOE_SCRATCH_H

typedef struct aoe_stack aoe_stack;

/* First member of whatever a kernel gets as `user_context`. */
typedef struct {
  aoe_stack *stack;
} aoe_scratch;

/* Returns an empty stack nobody else uses, or NULL where there is no memory. */
aoe_stack *aoe_take_stack(void);
void aoe_return_stack(aoe_stack *stack);

#endif
