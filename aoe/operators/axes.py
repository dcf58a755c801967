"""Operators that read all, or the neighbours, along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from aoe.operators.facts import (
    MICROSOFT_DOMAIN,
    ConstantInput,
    OperatorFacts,
    OperatorKey,
    OperatorKind,
    Rounding,
    Shape,
    Signature,
    Specials,
    broadcast,
    first_shape,
    number,
)
from aoe.operators.quantised import LEVELS_TO_LEVELS
from aoe.workload import NCHWC_DOMAIN, Operation

SOFTMAX_ONE_AXIS_SINCE = 13
"""Version from which Softmax works on one axis, not on all from `axis` to the last."""
SOFTMAX_OF_LEVELS: OperatorKey = (MICROSOFT_DOMAIN, "QLinearSoftmax")


def softmax_version(operation: Operation) -> int:
    """Return the version of a Softmax; a QLinearSoftmax names that of the one it stands for."""
    return int(number(operation.attributes, "opset", operation.version))


def softmax_axis(operation: Operation) -> int:
    """Return the `axis` of a Softmax or LogSoftmax, its default filled in."""
    default = -1 if softmax_version(operation) >= SOFTMAX_ONE_AXIS_SINCE else 1
    return int(number(operation.attributes, "axis", default))


def _softmax_length(operation: Operation, shape: Shape) -> int:
    axis = softmax_axis(operation)
    one_axis = softmax_version(operation) >= SOFTMAX_ONE_AXIS_SINCE
    return shape[axis] if one_axis else prod(shape[axis:])


def _lrn_window(operation: Operation, shape: Shape) -> int:
    return int(number(operation.attributes, "size", 1))


_SOFTMAX = OperatorFacts(
    kind=OperatorKind.AXIS,
    shape=first_shape,
    specials=Specials.FEW,
    summed=_softmax_length,
    takes_prologue=True,
)


def normalized_axis(operation: Operation) -> int:
    """Return the first axis of a LayerNormalization or RMSNormalization; all behind are walked."""
    return int(number(operation.attributes, "axis", -1))


def _normalized_size(operation: Operation, shape: Shape) -> int:
    return prod(shape[normalized_axis(operation) :])


def _pixels(operation: Operation, shape: Shape) -> int:
    return prod(shape[2:])


def _skipped(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    """Return the shape of a sum of two tensors, normalised."""
    return broadcast(shapes[:2])


_LAYER = OperatorFacts(
    kind=OperatorKind.AXIS,
    inputs=(2, 3),
    shape=first_shape,
    specials=Specials.SUMMED,
    summed=_normalized_size,
    takes_prologue=True,
)
_SKIP_LAYER = replace(_LAYER, inputs=(3, 5), shape=_skipped, takes_prologue=False)


_GLOBAL_POOLS = frozenset({"GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"})


def reduced_axes(operation: Operation, rank: int) -> tuple[int, ...] | None:
    """Return the axes a reduction of a tensor of `rank` takes, sorted; None for none or wrong ones.

    Without axes that is all of them, unless the operator says that it then does nothing. A global
    pooling takes the axes behind the channels.
    """
    if operation.op_type in _GLOBAL_POOLS:
        return tuple(range(2, rank)) or None
    given = operation.attributes.get("axes", ())
    axes = [int(axis) for axis in given] if isinstance(given, tuple) else []
    if not axes and number(operation.attributes, "noop_with_empty_axes", 0):
        return None
    if any(not -rank <= axis < rank for axis in axes):
        return None
    return tuple(sorted({axis % rank for axis in axes})) if axes else tuple(range(rank)) or None


def keeps_dimensions(operation: Operation) -> bool:
    """Return True if a reduction leaves an axis of one element for each it takes."""
    return bool(number(operation.attributes, "keepdims", 1))


def _reduced(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    axes = reduced_axes(operation, len(shapes[0]))
    if axes is None:
        return None
    if keeps_dimensions(operation):
        return tuple(1 if at in axes else extent for at, extent in enumerate(shapes[0]))
    return tuple(extent for at, extent in enumerate(shapes[0]) if at not in axes)


def _reduced_size(operation: Operation, shape: Shape) -> int:
    return prod(shape[axis] for axis in reduced_axes(operation, len(shape)) or ())


def cumulated_axis(operation: Operation, rank: int) -> int | None:
    """Return the axis of a CumSum of a tensor of `rank`; None for none or a wrong one."""
    given = operation.attributes.get("axis", ())
    axis = given[0] if isinstance(given, tuple) and len(given) == 1 else given
    if not isinstance(axis, int) or not -rank <= axis < rank:
        return None
    return axis % rank


def _cumulated_size(operation: Operation, shape: Shape) -> int:
    axis = cumulated_axis(operation, len(shape))
    return 1 if axis is None else shape[axis]


def axis_of(operation: Operation, rank: int) -> int | None:
    """Return the axis an operator works along, the first by default; None for a wrong one."""
    given = operation.attributes.get("axis", 0)
    return given % rank if isinstance(given, int) and -rank <= given < rank else None


def _chosen(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    axis = axis_of(operation, len(shapes[0]))
    if axis is None:
        return None
    kept = (1,) if keeps_dimensions(operation) else ()
    return (*shapes[0][:axis], *kept, *shapes[0][axis + 1 :])


_REDUCTION = OperatorFacts(
    kind=OperatorKind.AXIS,
    inputs=(1, 2),
    shape=_reduced,
    constants=(ConstantInput(1, "axes"),),
    specials=Specials.SUMMED,
    summed=_reduced_size,
    takes_prologue=True,
)
_EXTREME = replace(
    _REDUCTION,
    specials=Specials.MODERATE,
    summed=lambda operation, shape: 1,
    rounding=Rounding.EXACT,
)
_GLOBAL_MEAN = replace(_REDUCTION, inputs=(1, 1), constants=())
_GLOBAL_EXTREME = replace(_EXTREME, inputs=(1, 1), constants=())

_CHOICE = OperatorFacts(
    kind=OperatorKind.AXIS,
    shape=_chosen,
    rounding=Rounding.EXACT,
    specials=Specials.MODERATE,
    makes_indices=True,
)
"""ONNX Runtime passes over NaN behind the first element, but not where it walks a whole tensor."""

AXIS_OPERATORS: dict[OperatorKey, OperatorFacts] = {
    ("", "ArgMax"): _CHOICE,
    ("", "ArgMin"): _CHOICE,
    ("", "CumSum"): OperatorFacts(
        kind=OperatorKind.AXIS,
        inputs=(2, 2),
        shape=first_shape,
        constants=(ConstantInput(1, "axis"),),
        specials=Specials.SUMMED,
        summed=_cumulated_size,
    ),
    ("", "GlobalAveragePool"): _GLOBAL_MEAN,
    ("", "GlobalLpPool"): replace(_GLOBAL_MEAN, since=2),
    ("", "GlobalMaxPool"): _GLOBAL_EXTREME,
    ("", "InstanceNormalization"): replace(
        _LAYER, inputs=(3, 3), since=6, per_channel=range(1, 3), summed=_pixels
    ),
    ("", "LRN"): OperatorFacts(
        kind=OperatorKind.WINDOW, shape=first_shape, specials=Specials.MODERATE, summed=_lrn_window
    ),
    ("", "LayerNormalization"): _LAYER,
    ("", "LogSoftmax"): _SOFTMAX,
    ("", "RMSNormalization"): replace(_LAYER, inputs=(2, 2)),
    ("", "SimplifiedLayerNormalization"): replace(_LAYER, inputs=(2, 2)),
    ("", "ReduceL1"): _REDUCTION,
    ("", "ReduceL2"): _REDUCTION,
    ("", "ReduceLogSum"): replace(_REDUCTION, positive=(0,)),
    ("", "ReduceLogSumExp"): _REDUCTION,
    ("", "ReduceMax"): _EXTREME,
    ("", "ReduceMean"): _REDUCTION,
    ("", "ReduceMin"): _EXTREME,
    ("", "ReduceProd"): replace(_REDUCTION, specials=Specials.MODERATE),
    ("", "ReduceSum"): _REDUCTION,
    ("", "ReduceSumSquare"): _REDUCTION,
    ("", "Softmax"): _SOFTMAX,
    SOFTMAX_OF_LEVELS: replace(
        _SOFTMAX, inputs=(5, 5), signature=Signature.LEVELS, quantised=LEVELS_TO_LEVELS
    ),
    (NCHWC_DOMAIN, "GlobalAveragePool"): _GLOBAL_MEAN,
    (NCHWC_DOMAIN, "GlobalMaxPool"): _GLOBAL_EXTREME,
    (MICROSOFT_DOMAIN, "SkipLayerNormalization"): _SKIP_LAYER,
    (MICROSOFT_DOMAIN, "SkipSimplifiedLayerNormalization"): replace(_SKIP_LAYER, inputs=(3, 4)),
}
