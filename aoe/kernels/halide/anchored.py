"""Kernels built around one operator: its loops, and the chains in front of it and behind it.

In front of a sum of products, the chain is computed where the kernel copies what it reads. Behind
it, a product has loops of its own: there the chain is a workload that reads the product's result as
one more input, and is computed in whatever loops the product gives it. All other operators run over
the loops of the chain behind them (`Anchored`).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import halide as hl

from aoe.kernels.family import Pipeline, Support
from aoe.kernels.halide.chain import (
    WRITTEN_OUT_CYCLES,
    Operands,
    build_chain,
    chain_pipeline,
    check_chain,
    estimate_cycles,
    in_type,
    read_operands,
)
from aoe.kernels.halide.iteration import Axis, Iteration, axis_names, plan_iteration
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.math.functions import constant
from aoe.operators import (
    KERNEL_DTYPES,
    OPERATORS,
    OperatorKey,
    OperatorKind,
    Shape,
    facts_of,
    is_reorder,
    op_key,
)
from aoe.operators.element_types import element_types
from aoe.workload import Operation, TensorSpec, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Prologue:
    """Operations that make what a product reads."""

    operations: tuple[Operation, ...]  # In topological order, the last one makes it
    scalars: tuple[float, ...]  # Of the workload
    made: TensorSpec  # Shape and layout of what they make
    numbers: tuple[int, ...]  # Workload inputs they read
    # Loops of what they make, none merged, and which of them each of those inputs has.
    iteration: Iteration
    # Those that are no padding of the blocked layout, whose rest they fill up with zeros; 0 where
    # they compute the padding, too.
    channels: int = 0

    @property
    def has_reorders(self) -> bool:
        """True if what is made leaves the blocked layout on its way, which no kernel has to."""
        return self.channels > 0 or any(is_reorder(item) for item in self.operations)

    def argument_extents(self) -> dict[int, tuple[int, ...]]:
        """Return the extents of the buffers the operations read, innermost first, by input."""
        return dict(zip(self.numbers, self.iteration.argument_extents, strict=True))

    def value(self, arguments: Sequence[hl.ImageParam], variables: Sequence[hl.Var]) -> hl.Expr:
        """Return one element.

        Args:
            arguments: Buffers of all workload inputs.
            variables: Where it is, innermost first.
        """
        outermost_first = tuple(reversed(variables))
        values = {
            f"x{number}": arguments[number][tuple(outermost_first[at] for at in reversed(axes))]
            for number, axes in zip(self.numbers, self.iteration.operands, strict=True)
        }
        known = build_chain(self.operations, values, self.scalars, variables)
        made = known[self.operations[-1].output]
        if not self.channels:
            return made
        inside, block = variables[0], variables[3]
        return hl.select(block * self.made.block + inside < self.channels, made, constant(0.0))


def feeding(ref: str, operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return the operations a value is made by, in topological order."""
    needed, found = {ref}, list[Operation]()
    for item in reversed(operations):
        if item.output in needed:
            needed.update(item.inputs)
            found.insert(0, item)
    return tuple(found)


def read_prologue(
    workload: Workload,
    operations: tuple[Operation, ...],
    shapes: Mapping[str, Shape],
    channels: int = 0,
) -> Prologue | Support:
    """Return the operations in front of a product, or the reason why they are not supported.

    Args:
        workload: All of it.
        operations: Operations in front, in topological order; at least one.
        shapes: Of all references.
        channels: See `Prologue`.
    """
    chain = check_chain(operations)
    if not chain:
        return chain
    shape, block = shapes[operations[-1].output], workload.output.block
    if block and shape[1] % block:
        return Support(f"what is made in front has {shape[1]} channels, no whole blocks of {block}")
    made = replace(workload.output, shape=shape, constant=False)
    refs = {ref for item in operations for ref in item.inputs if ref.startswith("x")}
    numbers = tuple(sorted(int(ref[1:]) for ref in refs))
    renamed = {f"x{number}": f"x{at}" for at, number in enumerate(numbers)}
    front = replace(
        workload,
        inputs=tuple(workload.inputs[number] for number in numbers),
        operations=tuple(
            replace(item, inputs=tuple(renamed.get(ref, ref) for ref in item.inputs))
            for item in operations
        ),
        output=made,
    )
    iteration = plan_iteration(front, keep=axis_names(front))
    if isinstance(iteration, Support):
        return iteration
    return Prologue(
        operations=operations,
        scalars=workload.scalars,
        made=made,
        numbers=numbers,
        iteration=iteration,
        channels=channels,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Epilogue:
    """A workload split at its sum of products."""

    # The operator the kernel is built around; it reads workload inputs, its first input may be made
    # by `front`.
    product: Operation
    operations: tuple[Operation, ...]  # Those behind it, in topological order; empty where none are
    scalars: tuple[float, ...]  # Of the workload
    result: str  # Reference of the workload's result
    numbers: tuple[int, ...]  # Workload inputs the operations read
    # Loops of the result, none merged, and which of them each of those inputs has.
    iteration: Iteration
    front: tuple[Operation, ...] = ()  # Those that make its first input, where a family takes them

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
    others = {workload.inputs[number].dtype for number in _inputs_of(product)} - KERNEL_DTYPES
    if others:
        return Support(f"{product.op_type} of {' and '.join(sorted(others))}")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchored:
    """A workload split at its anchor."""

    workload: Workload  # All of it
    anchor: Operation  # The operator the kernel is built around
    source: int  # Index of the workload input it reads
    # Operations the anchor's result does not enter and that precede it: reorders, and branches
    # which join the chain later.
    before: tuple[Operation, ...]
    after: tuple[Operation, ...]  # Operations behind the anchor, in topological order


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchoredNest:
    """A workload split at its anchor, and the loop nest both are computed in."""

    parts: Anchored
    iteration: Iteration

    @property
    def workload(self) -> Workload:
        """The whole workload."""
        return self.parts.workload

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Loops of the result, outermost first."""
        return self.iteration.axes


def split_at_anchor(workload: Workload, anchors: Container[OperatorKey]) -> Anchored | Support:
    """Return `workload` split at its anchor, or why it is not one anchor with a chain behind."""
    at = [i for i, item in enumerate(workload.operations) if op_key(item) in anchors]
    if not at:
        return Support("no operator of this family")
    operations = workload.operations
    anchor = operations[at[0]]
    before, after = operations[: at[0]], operations[at[0] + 1 :]
    source = _input_behind(anchor.inputs[0], before)
    if source is None:
        return Support(f"{anchor.op_type} reads a computed value")
    chain = check_chain((*before, *after), element_types(workload))
    if not chain:
        return chain
    return Anchored(workload=workload, anchor=anchor, source=source, before=before, after=after)


def plan_nest(parts: Anchored, keep: Collection[str] = ()) -> AnchoredNest | Support:
    """Return the loop nest of a split workload, or why there is none.

    Args:
        parts: The workload.
        keep: Axes that stay apart, see `plan_iteration`.
    """
    iteration = plan_iteration(parts.workload, keep)
    if isinstance(iteration, Support):
        return iteration
    return AnchoredNest(parts=parts, iteration=iteration)


def anchor_operands(nest: AnchoredNest) -> Operands:
    """Return the operands of the anchor: inputs, and results of the operations before it."""
    operands = read_operands(nest.workload, nest.iteration)
    values = build_chain(
        nest.parts.before, operands.values, nest.workload.scalars, operands.variables
    )
    return replace(operands, values=values)


def anchored_pipeline(
    nest: AnchoredNest,
    operands: Operands,
    result: hl.Expr,
    stages: Mapping[str, Any],
    loops: Mapping[str, tuple[tuple[str, int], ...]],
) -> Pipeline:
    """Return the pipeline of an anchor's result with the chain behind it inlined.

    Args:
        nest: The workload and its loops.
        operands: From `anchor_operands`.
        result: Of the anchor, for one iteration.
        stages: Functions `result` reads, by name.
        loops: Their loops.
    """
    anchor, types = nest.parts.anchor, element_types(nest.workload)
    normalised = hl.Func("normalised")
    normalised[operands.variables] = in_type(anchor, result, types[anchor.output])
    made = {nest.parts.anchor.output: normalised[operands.variables]}
    behind = replace(operands, values={**operands.values, **made})
    return chain_pipeline(nest.workload, behind, nest.parts.after, stages, loops)


def _input_behind(ref: str, operations: tuple[Operation, ...]) -> int | None:
    """Return the index of the workload input whose values `ref` has unchanged."""
    made_by = {operation.output: operation for operation in operations}
    while ref in made_by and _passes(made_by[ref]):
        ref = made_by[ref].inputs[0]
    return int(ref[1:]) if ref.startswith("x") else None


def _passes(operation: Operation) -> bool:
    """Return True for operations whose result has the values of their input."""
    return is_reorder(operation) or op_key(operation) == ("", "Identity")
