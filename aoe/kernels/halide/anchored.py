"""Regions built around one operator: where it reads from, and the chain around it."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from aoe.kernels.family import Support
from aoe.kernels.halide.chain import check_chain
from aoe.operators import OperatorKey, is_reorder, op_key
from aoe.workload import Operation, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchored:
    """A workload split at its anchor.

    Attributes:
        anchor: The operator the kernel is built around.
        source: Index of the workload input it reads.
        before: Operations the anchor's result does not enter and that precede it: reorders,
            and branches which join the chain later.
        after: Operations behind the anchor, in topological order.
    """

    anchor: Operation
    source: int
    before: tuple[Operation, ...]
    after: tuple[Operation, ...]


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
    chain = check_chain((*before, *after))
    if not chain:
        return chain
    return Anchored(anchor=anchor, source=source, before=before, after=after)


def _input_behind(ref: str, operations: tuple[Operation, ...]) -> int | None:
    """Return the index of the workload input whose values `ref` has unchanged."""
    made_by = {operation.output: operation for operation in operations}
    while ref in made_by and _passes(made_by[ref]):
        ref = made_by[ref].inputs[0]
    return int(ref[1:]) if ref.startswith("x") else None


def _passes(operation: Operation) -> bool:
    """Return True for operations whose result has the values of their input."""
    return is_reorder(operation) or op_key(operation) == ("", "Identity")
