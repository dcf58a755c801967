"""Reuse of each part of a model that was tuned before: reused, retuned, new, dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aoe.workload import TensorSpec, Workload, shape_text


class ReuseKind(StrEnum):
    """Reuse of a part of a model."""

    REUSED = "reused"
    """Taken as it was found then: its strategy, or that the default was best."""
    RETUNED = "retuned"
    """Tuned again: what is known does not hold any more, or is of a like one."""
    NEW = "new"
    """Nothing like it was there."""
    DROPPED = "dropped"
    """It was there, and the model has it no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """A part of a model and its reuse."""

    key: str  # Record key or identity of the subgraph
    op_type: str  # Kernel family
    op_names: tuple[str, ...]  # Its places in the model, or in the earlier one
    kind: ReuseKind  # What became of it
    reason: str  # Why, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseSummary:
    """Reuse of all parts of a model."""

    base: str  # The earlier result, as a person wrote it
    parts: tuple[Reuse, ...]  # Each with its reason

    def count(self, kind: ReuseKind) -> int:
        """Return the number of parts that became that."""
        return sum(part.kind is kind for part in self.parts)

    def __str__(self) -> str:
        return ", ".join(f"{self.count(kind)} {kind}" for kind in ReuseKind)


def reuse_to_json(summary: ReuseSummary | None) -> dict[str, Any] | None:
    """Return the member of a summary, None for a run without an earlier result."""
    if summary is None:
        return None
    return {
        "base": summary.base,
        "counts": {kind.value: summary.count(kind) for kind in ReuseKind},
        "parts": [part_to_json(part) for part in summary.parts],
    }


def part_to_json(part: Reuse) -> dict[str, Any]:
    """Return a part with its reason."""
    return {
        "key": part.key,
        "op_type": part.op_type,
        "op_names": list(part.op_names),
        "kind": part.kind.value,
        "reason": part.reason,
    }


def nearest_change(workload: Workload, others: Iterable[Workload]) -> str:
    """Return the difference from the most similar workload of the same operators.

    Args:
        workload: What is to be tuned.
        others: What was tuned before.

    Returns:
        As in `shape changed 56->64`; the empty string if no other has the same operators.
    """
    alike = [other for other in others if _operators(other) == _operators(workload)]
    if not alike:
        return ""
    nearest = min(alike, key=lambda other: _distance(workload, other))
    return _change(nearest, workload)


def _operators(workload: Workload) -> tuple[tuple[str, str], ...]:
    return tuple((op.domain, op.op_type) for op in workload.operations)


def _distance(one: Workload, other: Workload) -> tuple[int, float]:
    differing = sum(a != b for a, b in zip(_extents(one), _extents(other), strict=False))
    small, large = sorted((one.output.size, other.output.size))
    return differing + abs(len(_extents(one)) - len(_extents(other))), large / small


def _extents(workload: Workload) -> tuple[int, ...]:
    return tuple(extent for spec in _tensors(workload) for extent in spec.shape)


def _tensors(workload: Workload) -> Sequence[TensorSpec]:
    return (*workload.inputs, workload.output)


def _change(then: Workload, now: Workload) -> str:
    if then.precision is not now.precision:
        return f"precision changed {then.precision}->{now.precision}"
    shapes = [(a.shape, b.shape) for a, b in zip(_tensors(then), _tensors(now), strict=False)]
    changed = [(a, b) for a, b in shapes if a != b]
    if changed:
        return f"shape changed {shape_change(changed)}"
    attributes = dict(_attribute_changes(then, now))
    if attributes:
        name, (before, after) = next(iter(attributes.items()))
        return f"{name} changed {before}->{after}"
    return "another rewrite of the same operators"


def shape_change(changed: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> str:
    """Return the extents that differ where that says it all, else the first shape that does.

    Args:
        changed: Shapes then and now, one pair at least, none of equal ones.
    """
    if all(len(a) == len(b) for a, b in changed):
        pairs = {(x, y) for a, b in changed for x, y in zip(a, b, strict=True) if x != y}
        if len(pairs) == 1:
            ((before, after),) = pairs
            return f"{before}->{after}"
    before_shape, after_shape = changed[0]
    return f"{shape_text(before_shape)}->{shape_text(after_shape)}"


def _attribute_changes(
    then: Workload, now: Workload
) -> Iterable[tuple[str, tuple[object, object]]]:
    for a, b in zip(then.operations, now.operations, strict=True):
        for name in dict.fromkeys((*a.attributes, *b.attributes)):
            pair = (_get(a.attributes, name), _get(b.attributes, name))
            if pair[0] != pair[1]:
                yield name, pair


def _get(attributes: Mapping[str, Any], name: str) -> object:
    return attributes.get(name, "default")
