"""The chain in front of a sum of products: computed where the kernel copies what it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import halide as hl

from aoe.kernels.family import Support
from aoe.kernels.halide.chain import build_chain, check_chain
from aoe.kernels.halide.iteration import Iteration, axis_names, plan_iteration
from aoe.kernels.math.functions import constant
from aoe.operators import Shape, is_reorder
from aoe.workload import Operation, TensorSpec, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Prologue:
    """Operations that make what a product reads.

    Attributes:
        operations: In topological order, the last one makes it.
        scalars: Of the workload.
        made: Shape and layout of what they make.
        numbers: Workload inputs they read.
        iteration: Loops of what they make, none merged, and which of them each of those inputs
            has.
        channels: Those that are no padding of the blocked layout, whose rest they fill up with
            zeros; 0 where they compute the padding, too.
    """

    operations: tuple[Operation, ...]
    scalars: tuple[float, ...]
    made: TensorSpec
    numbers: tuple[int, ...]
    iteration: Iteration
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
