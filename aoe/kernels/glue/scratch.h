/* Memory of kernels: one stack a running kernel and one a running task of it, the same few stacks for
   all kernels of a library. */
#ifndef AOE_SCRATCH_H
#define AOE_SCRATCH_H

typedef struct aoe_stack aoe_stack;

/* First member of whatever a kernel gets as `user_context`. */
typedef struct {
  aoe_stack *stack;
} aoe_scratch;

/* What a stack is for: all tasks of a kernel read whole images that were transformed, and a task has
   blocks of its own, which are small. */
typedef enum { AOE_OF_TASK, AOE_OF_KERNEL } aoe_scope;

/* Returns an empty stack nobody else uses, or NULL where there is no memory. */
aoe_stack *aoe_take_stack(aoe_scope scope);
void aoe_return_stack(aoe_stack *stack);

#endif
