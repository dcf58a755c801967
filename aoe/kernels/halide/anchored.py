"""Kernels built around one operator: where it reads from, its loops, and the chain around it."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, replace
from typing import Any

import halide as hl

from aoe.kernels.family import Pipeline, Support
from aoe.kernels.halide.chain import (
    Operands,
    build_chain,
    chain_pipeline,
    check_chain,
    in_type,
    read_operands,
)
from aoe.kernels.halide.iteration import Axis, Iteration, plan_iteration
from aoe.operators import OperatorKey, is_reorder, op_key
from aoe.operators.element_types import element_types
from aoe.workload import Operation, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchored:
    """A workload split at its anchor.

    Attributes:
        workload: All of it.
        anchor: The operator the kernel is built around.
        source: Index of the workload input it reads.
        before: Operations the anchor's result does not enter and that precede it: reorders,
            and branches which join the chain later.
        after: Operations behind the anchor, in topological order.
    """

    workload: Workload
    anchor: Operation
    source: int
    before: tuple[Operation, ...]
    after: tuple[Operation, ...]


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
