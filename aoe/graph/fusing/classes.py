"""AOE's classes of fusions, with the limits it has by default.

Source: AOE, subgraph tuning: a convolution with at most 3 element-wise operators of one input and
one output; chains of at most 5 element-wise operators, of which only the first may have several
inputs; a reduction with at most 4 of them; segment operators likewise; a reduction and a segment
operator, which meet in the cache. `--tune_optimization_level O1` lifts the limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import onnx

from aoe.graph.model_graph import attributes_of
from aoe.operators import MICROSOFT_DOMAIN, OPERATORS, OperatorKind, op_key
from aoe.operators.products import PLAIN_CONVOLUTIONS


class FusionRole(StrEnum):
    """What an operator is in a class of fusions."""

    CONVOLUTION = "convolution"
    ELEMENTWISE = "element-wise"
    REDUCTION = "reduction"
    """Every result depends on all elements along an axis."""
    SEGMENT = "segment"
    """Elements are summed up, or compared, by an index."""
    OTHER = "other"
    """No class has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionClass:
    """One class.

    Attributes:
        name: For reports.
        first: What a fusion begins with.
        most_behind: Most element-wise operators behind it, None for any number.
        one_input: True if those must read one computed tensor only.
        joins: What may follow through the cache, once; None for nothing.
    """

    name: str
    first: FusionRole
    most_behind: int | None
    one_input: bool = True
    joins: FusionRole | None = None


FUSION_CLASSES: tuple[FusionClass, ...] = (
    FusionClass(name="conv_elementwise", first=FusionRole.CONVOLUTION, most_behind=3),
    FusionClass(name="elementwise_chain", first=FusionRole.ELEMENTWISE, most_behind=4),
    FusionClass(
        name="reduction_elementwise",
        first=FusionRole.REDUCTION,
        most_behind=4,
        joins=FusionRole.SEGMENT,
    ),
    FusionClass(name="segment_elementwise", first=FusionRole.SEGMENT, most_behind=4),
)
"""In the order in which they are asked; what a fusion begins with decides."""

_SEGMENTS = frozenset({("", "ScatterElements"), ("", "ScatterND")})
_MORE_ELEMENTWISE = frozenset(
    {
        *((MICROSOFT_DOMAIN, name) for name in ("BiasGelu", "FastGelu", "Gelu", "QuickGelu")),
        *(("", name) for name in ("Cast", "Gelu", "Mish", "Mod", "BitShift", "IsInf", "IsNaN")),
    }
)
"""One result of one element, though no kernel is made for them."""


def without_limits(
    classes: Sequence[FusionClass] = FUSION_CLASSES,
) -> tuple[FusionClass, ...]:
    """Return the classes as `--tune_optimization_level O1` has them.

    >>> [one.most_behind for one in without_limits()]
    [None, None, None, None]
    """
    return tuple(replace(one, most_behind=None, one_input=False) for one in classes)


def role_of(node: onnx.NodeProto) -> FusionRole:
    """Return the role of an operator in a class of fusions."""
    key = op_key(node)
    if key in PLAIN_CONVOLUTIONS:
        return FusionRole.CONVOLUTION
    if key in _SEGMENTS and attributes_of(node).get("reduction", "none") != "none":
        return FusionRole.SEGMENT
    if key in _MORE_ELEMENTWISE:
        return FusionRole.ELEMENTWISE
    facts = OPERATORS.get(key)
    if facts is None:
        return FusionRole.OTHER
    if facts.kind is OperatorKind.ELEMENTWISE:
        return FusionRole.ELEMENTWISE
    return FusionRole.REDUCTION if facts.kind is OperatorKind.AXIS else FusionRole.OTHER
