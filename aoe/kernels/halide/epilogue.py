"""Kernels around a sum of products: the chain behind it, computed where its results are made.

Anchored kernels (`anchored.py`) run over the loops of the chain. A product has loops of its own,
so here the chain is a workload that reads the product's result as one more input, and is computed
in whatever loops the product gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import halide as hl

from aoe.kernels.family import Support
from aoe.kernels.halide.chain import WRITTEN_OUT_CYCLES, build_chain, check_chain, estimate_cycles
from aoe.kernels.halide.iteration import Iteration, axis_names, plan_iteration
from aoe.kernels.halide.prologue import feeding
from aoe.kernels.halide.shapes import infer_shapes
from aoe.operators import OPERATORS, OperatorKind, facts_of, op_key
from aoe.workload import Operation, TensorSpec, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Epilogue:
    """A workload split at its sum of products.

    Attributes:
        product: The operator the kernel is built around; it reads workload inputs, its first
            input may be made by `front`.
        operations: Those behind it, in topological order; empty where none are.
        front: Those that make its first input, where a family takes them.
        scalars: Of the workload.
        result: Reference of the workload's result.
        numbers: Workload inputs the operations read.
        iteration: Loops of the result, none merged, and which of them each of those inputs has.
    """

    product: Operation
    operations: tuple[Operation, ...]
    scalars: tuple[float, ...]
    result: str
    numbers: tuple[int, ...]
    iteration: Iteration
    front: tuple[Operation, ...] = ()

    @property
    def cycles(self) -> int:
        """Rough cost of one vector of results, in cycles of one core."""
        return estimate_cycles(self.operations)

    @property
    def is_heavy(self) -> bool:
        """True if the chain is too long to be written out for every vector of a tile."""
        return self.cycles > WRITTEN_OUT_CYCLES

    def argument_extents(self) -> dict[int, tuple[int, ...]]:
        """Return the extents of the buffers the operations read, innermost first, by input."""
        return dict(zip(self.numbers, self.iteration.argument_extents, strict=False))

    def value(
        self, arguments: Sequence[hl.ImageParam], made: hl.Expr, variables: Sequence[hl.Var]
    ) -> hl.Expr:
        """Return one result.

        Args:
            arguments: Buffers of all workload inputs.
            made: What the product makes at `variables`.
            variables: Loop variables in the order of the result's buffer, innermost first.
        """
        product = hl.Func(self.product.output)
        product[tuple(variables)] = made
        values = {self.product.output: product[tuple(variables)]}
        outermost_first = tuple(reversed(variables))
        for number, axes in zip(self.numbers, self.iteration.operands, strict=False):
            place = tuple(outermost_first[at] for at in reversed(axes))
            values[f"x{number}"] = arguments[number][place]
        known = build_chain(self.operations, values, self.scalars, variables)
        return known[self.result]


def split_at_product(workload: Workload, *, takes_front: bool = False) -> Epilogue | Support:
    """Return `workload` split at its sum of products, or why it is not one with a chain.

    Args:
        workload: What is computed.
        takes_front: True if a chain in front of the product's first input is welcome.
    """
    is_product = [
        op_key(item) in OPERATORS and facts_of(item).kind is OperatorKind.PRODUCT
        for item in workload.operations  # of a bank, which may name anything
    ]
    if sum(is_product) != 1:
        return Support(f"{sum(is_product)} sums of products, kernels are built around one")
    at = is_product.index(True)
    product = workload.operations[at]
    front = feeding(product.inputs[0], workload.operations[:at]) if takes_front else ()
    operations = tuple(item for item in workload.operations if item not in (*front, product))
    given = product.inputs[1:] if front else product.inputs
    if not all(ref.startswith("x") for ref in given if ref):
        return Support(f"{product.op_type} reads a computed value or a scalar")
    chain = check_chain(operations)
    if not chain:
        return chain
    in_front = {item.output for item in front}
    if any(ref in in_front for item in operations for ref in item.inputs):
        return Support(f"what {product.op_type} reads is read again behind it")
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return Support(shapes)
    made = shapes[product.output]
    if made != workload.output.shape:
        return Support(f"the result of {product.op_type}, {made}, is broadcast by what follows")
    numbers = tuple(sorted({number for item in operations for number in _inputs_of(item)}))
    iteration = _chain_iteration(workload, product, operations, numbers)
    if isinstance(iteration, Support):
        return iteration
    return Epilogue(
        product=product,
        operations=operations,
        scalars=workload.scalars,
        result=workload.result,
        numbers=numbers,
        iteration=iteration,
        front=front,
    )


def _chain_iteration(
    workload: Workload,
    product: Operation,
    operations: tuple[Operation, ...],
    numbers: Sequence[int],
) -> Iteration | Support:
    """Return the loops of the chain; the product's result is its last input."""
    renamed = {f"x{number}": f"x{at}" for at, number in enumerate(numbers)}
    renamed[product.output] = f"x{len(numbers)}"
    chain = tuple(
        replace(item, inputs=tuple(renamed.get(ref, ref) for ref in item.inputs))
        for item in operations
    )
    alone = Operation(op_type="Identity", inputs=(renamed[product.output],), output="t0")
    made = replace(workload.output, constant=False)
    inputs: tuple[TensorSpec, ...] = (*(workload.inputs[number] for number in numbers), made)
    behind = replace(workload, inputs=inputs, operations=chain or (alone,))
    return plan_iteration(behind, keep=axis_names(behind))


def _inputs_of(operation: Operation) -> list[int]:
    return [int(ref[1:]) for ref in operation.inputs if ref.startswith("x")]
